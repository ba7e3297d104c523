"""Blocks of the rolling style without a model, and over rounds; budgets and fences."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from palimpsest.core.history.message import Message
from palimpsest.core.summary.rolling.digest import FORM, HEADING, TITLES, digest_of
from palimpsest.core.summary.rolling.record import decoded_record
from palimpsest.core.text.fence import unfenced

from tests.core.summary.rolling.asking import (
    ROLLING,
    after,
    asked,
    compacted,
    reply,
    sections,
    text_in,
)
from tests.core.summary.talk import calls, count, result, says, source, user

FIRST = [user("The port of the gate is 54329."), says("Noted, the gate listens there.")]
SECOND = [user("Deploy it on Friday to Lisbon."), says("Deployed.")]


FACTS, FLOW, THREADS = TITLES
AGENT: list[Message] = [
    user("Always use tabs. The ticket is OPS-48213 and the deadline is 4 May."),
    calls("edit", "a", path="src/gate.py", old_string="a = 1", new_string="a = 2"),
    result("done", "a"),
    says("I kept the gate on port 54329 because of the firewall."),
    user("Now write the tests in tests/test_gate.py."),
]


@pytest.mark.spec("B08")
def test_without_a_model_code_fills_the_sections() -> None:
    written = compacted(ROLLING, source(AGENT), None)
    digest = digest_of(unfenced(written.text))
    assert '- "Always use tabs."' in digest[FACTS]
    assert "The ticket is OPS-48213 and the deadline is 4 May." in digest[FACTS]
    assert "edited src/gate.py" in digest[FLOW]
    assert "54329" in digest[FACTS] + digest[FLOW]
    assert "turn 2, user: Now write the tests in tests/test_gate.py." in digest[FLOW]
    assert THREADS not in digest


def test_code_keeps_what_a_model_said_and_reads_the_rest_anew() -> None:
    first = compacted(ROLLING, source(FIRST), lambda *_: reply(sections("the gate has one owner")))
    second = compacted(ROLLING, after(first, FIRST, AGENT), None)
    third = compacted(ROLLING, after(second, [*FIRST, *AGENT], SECOND), None)
    assert third.text.count("the gate has one owner") == 1
    assert third.text.count("Always use tabs.") == 1
    assert third.text.count("edited src/gate.py") == 1
    assert third.text.count("54329 because of the firewall") == 1
    # What code wrote is no record: a later round does not read it back.
    assert decoded_record(third.state).summary == decoded_record(first.state).summary


def test_a_failure_and_an_open_question_stand_until_they_are_settled() -> None:
    talk = [
        user("Look at it."),
        calls("linearUpdate", "a", id="LIN-771"),
        result("ValueError: bad checksum 0x9f3c in src/auth/codec.py", "a"),
        says("I have looked at the thing and it is broken. Shall I replace the codec?"),
    ]
    first = compacted(ROLLING, source(talk), None)
    digest = digest_of(unfenced(first.text))
    assert "bad checksum 0x9f3c in src/auth/codec.py" in digest[FLOW]
    assert "Shall I replace the codec?" in digest[THREADS]
    settled = [user("Yes, replace it."), calls("linearUpdate", "b", id="LIN-771"), result("ok", "b")]
    second = compacted(ROLLING, after(first, talk, settled), None)
    assert "bad checksum" not in second.text
    assert THREADS not in digest_of(unfenced(second.text))


def test_what_code_wrote_is_shown_to_a_model_asked_later() -> None:
    first = compacted(ROLLING, source(AGENT), None)
    (request,), _ = asked(ROLLING, after(first, AGENT, SECOND))
    assert "edited src/gate.py" in text_in(request, "previous-summary")


def dear(text: str) -> int:
    """A count by which a whole is more than its parts."""
    return count(text) + 4 * text.count("\n")


@pytest.mark.parametrize("tokens", [250, 400, 700])
@pytest.mark.parametrize("told", [None, reply(sections("\n".join("fact" for _ in range(200))))])
def test_a_budget_holds_though_joined_texts_count_more(told: str | None, tokens: int) -> None:
    made = source([user(f"Wish {n} is short.") for n in range(60)])
    written = ROLLING.written(made, told, tokens, dear)
    assert tokens // 2 <= dear(written.text) <= tokens


def test_rounds_without_a_model_do_not_grow() -> None:
    written, past = None, list[Message]()
    for number in range(12):
        fresh = [user(f"Set the limit of zone {number} to {number * 37}."), says(f"Zone {number} is set.")]
        written = compacted(ROLLING, after(written, past, fresh), None, 500)
        past += fresh
        assert count(written.text) <= 500
        assert len(written.state) < 4_000


def test_a_small_view_costs_no_words_of_the_summary() -> None:
    told = reply(sections("\n".join(f"fact number {n} of the matter" for n in range(120))))
    first = compacted(ROLLING, source(FIRST), lambda *_: told)
    second = compacted(ROLLING, after(first, FIRST, SECOND), None, 300)
    assert count(second.text) <= 300
    assert "fact number 60 of" in decoded_record(second.state).summary


@pytest.mark.parametrize("damaged", [b"", b"{}", b"{broken", b'{"rolling":2}'])
def test_without_its_state_the_summary_is_read_from_the_block(damaged: bytes) -> None:
    first = compacted(ROLLING, source(FIRST), lambda *_: reply(sections("the owner is Marta"), tasks=["x"]))
    (request,), _ = asked(ROLLING, replace(after(first, FIRST, SECOND), state=damaged))
    assert text_in(request, "previous-summary").startswith("## KEY FACTS\nthe owner is Marta")
    assert text_in(request, "existing-workstream-state") == "(none)"


WORDS = st.text("abc XYZ\n.:#-é{}<>`", max_size=300)


@settings(max_examples=60)
@given(st.lists(WORDS, min_size=1, max_size=8), st.none() | WORDS, st.integers(0, 500))
def test_a_block_keeps_its_budget_and_its_fence(said: list[str], told: str | None, tokens: int) -> None:
    made = source([*(user(text) for text in said), says("done")])
    written = ROLLING.written(made, told, tokens, count)
    least = FORM.bare(ROLLING.tag)
    assert count(written.text) <= max(tokens, count(least))
    assert written.text.startswith(f"<{ROLLING.tag}>\n# {HEADING}\n")
    assert written.text.count(f"</{ROLLING.tag}>") == 1
    assert written == ROLLING.written(made, told, tokens, count)
