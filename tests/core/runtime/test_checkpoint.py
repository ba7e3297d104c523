"""When a checkpoint is due, and what it says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.runtime.checkpoint import (
    FLUSH_TOKENS,
    TITLES,
    checkpoint_of,
    completion_due,
    flush_due,
    flush_of,
    gist_of,
    is_trivial,
    periodic_spans,
)

from tests.core.histories import assistant, calls, conversation, count_text, result, user
from tests.core.runtime.records import NEW_YEAR, entries, exchanges

SECRET = "sk-" + "Ab1" * 7


@pytest.mark.spec("A37")
@pytest.mark.parametrize(("count", "due"), [(11, 0), (12, 1), (23, 1), (24, 2), (25, 2), (36, 3)])
def test_a_checkpoint_is_due_every_twelve_exchanges(count: int, due: int) -> None:
    assert len(periodic_spans(conversation(exchanges(count)).messages)) == due


@pytest.mark.spec("A37")
def test_spans_of_which_nothing_can_be_cited_are_still_told_apart() -> None:
    first = checkpoint_of("periodic", entries([user(SECRET)]), NEW_YEAR)
    second = checkpoint_of("periodic", entries([user(SECRET + "2")]), NEW_YEAR)
    assert (first.evidence, second.evidence) == ((), ())
    assert first.span_hash != second.span_hash


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  \n",
        "ok",
        "OK!",
        "Thanks",
        "Done.",
        "All done, thank you so much!",
        "You're welcome!",
        "Great, glad to help.",
        "👍",
        "Sure — let me know if you need anything else.",
    ],
)
def test_courtesies_are_trivial(text: str) -> None:
    assert is_trivial(text)
    assert not completion_due(conversation([user("hello"), assistant(text)]).messages)


@pytest.mark.parametrize(
    "text",
    [
        "We decided to use PostgreSQL.",
        "Written to src/app/main.py.",
        "See https://example.com/report",
        "```\nprint(1)\n```",
        "Done. Never deploy on Fridays.",
        "The port is 5432",
        "use Postgres",
        "The cat sat on the mat and looked at the other cat. " * 4,
    ],
)
def test_decisions_artifacts_and_long_texts_are_not(text: str) -> None:
    assert not is_trivial(text)
    assert completion_due(conversation([user("hello"), assistant(text)]).messages)


def test_a_decision_on_the_way_or_a_marker_makes_a_trivial_end_worth_it() -> None:
    end = [user("good?"), assistant("ok")]
    assert not completion_due(conversation(end).messages)
    assert completion_due(conversation([user("Let us settle it: we decided on Redis 7."), *end]).messages)
    assert completion_due(conversation(end).messages, "Shipped release 2.4.1 to production")
    assert not completion_due(conversation(end).messages, "done")
    assert not completion_due([], "Shipped release 2.4.1 to production")


@pytest.mark.spec("A39")
def test_the_summary_is_structured() -> None:
    gist = gist_of(
        conversation(
            [
                user("We decided to use PostgreSQL 16 for the ledger."),
                calls("call_1", arguments='{"command": "make check"}'),
                result("call_1", "TypeError: cannot add str and int"),
                assistant("The issue was a wrong type in ledger.py. Next, I will fix the parser."),
                user("And port 5432?"),
            ]
        ).messages
    )
    assert gist.decisions == ("We decided to use PostgreSQL 16 for the ledger.",)
    assert gist.key_findings == ("The issue was a wrong type in ledger.py.",)
    assert gist.open_loops == (
        "run command=make check: failed, TypeError: cannot add str and int",
        "And port 5432?",
    )
    assert gist.next_actions == ("Answer: And port 5432?",)


@pytest.mark.spec("A39")
def test_what_was_answered_or_overcome_is_not_in_the_summary() -> None:
    gist = gist_of(
        conversation(
            [
                user("Never deploy on Fridays. The deploy port is 8080."),
                calls("call_1", arguments='{"command": "make check"}'),
                result("call_1", "ConnectionError: refused"),
                calls("call_1", arguments='{"command": "make check"}'),
                result("call_1", "fine"),
                user("Actually, the deploy port is 9090."),
                assistant("Understood: 9090 it is."),
            ]
        ).messages
    )
    assert gist.decisions == ("Never deploy on Fridays.",)
    assert "Actually, the deploy port is 9090." in gist.key_findings
    assert gist.open_loops == ()
    assert gist.next_actions == ()


@pytest.mark.spec("A39")
def test_a_question_nobody_answered_is_an_open_loop() -> None:
    asked = [user("Set it up."), assistant("Shall I use Redis or Valkey?")]
    assert gist_of(conversation(asked).messages).open_loops == (
        'asked of the user: "Shall I use Redis or Valkey?"',
    )
    assert gist_of(conversation([*asked, user("Valkey."), assistant("Fine.")]).messages).open_loops == ()


def called(name: str, ident: str, arguments: str) -> dict[str, Any]:
    """A call of the tool of that name."""
    call = {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


@pytest.mark.spec("A39")
def test_files_changed_are_findings_and_tasks_not_done_are_next_actions() -> None:
    write = '{"path": "src/ledger.py", "content": "x = 1"}'
    todo = '{"todos": [{"content": "Write it", "status": "completed"}, {"content": "Test it"}]}'
    said = [
        user("Write the ledger."),
        called("write_file", "call_1", write),
        result("call_1", "ok"),
        called("todo_write", "call_2", todo),
        result("call_2", "ok"),
        assistant("The ledger is there."),
    ]
    gist = gist_of(conversation(said).messages)
    assert any(line.startswith("created src/ledger.py") for line in gist.key_findings)
    assert gist.next_actions == ("[ ] Test it",)


TALK = [
    user("We decided to use PostgreSQL 16 for the ledger."),
    calls("call_1", arguments='{"command": "make check"}'),
    result("call_1", "TypeError: cannot add str and int"),
    assistant("The issue was a wrong type in ledger.py. Next, I will fix the parser."),
    user("And port 5432?"),
]
NOTE = """\
## Decisions
- We decided to use PostgreSQL 16 for the ledger.
## Open loops
- run command=make check: failed, TypeError: cannot add str and int
- And port 5432?
## Next actions
- Answer: And port 5432?
## Key findings
- The issue was a wrong type in ledger.py."""


def due(
    slack: int = 100,
    messages: int = 10,
    at: float = 1_000.0,
    path: int = 9_000,
    last: tuple[float, int] | None = None,
) -> bool:
    return flush_due(slack, messages, at, path, last)


def note_of(fields: list[dict[str, Any]]) -> str:
    return flush_of(conversation(fields).messages, count_text)


@pytest.mark.spec("A43")
@pytest.mark.parametrize(("slack", "wanted"), [(1_200, False), (1_199, True), (0, True), (-50, True)])
def test_only_when_little_room_is_left(slack: int, wanted: bool) -> None:
    assert due(slack=slack) is wanted


@pytest.mark.spec("A43")
@pytest.mark.parametrize(("messages", "wanted"), [(3, False), (4, True)])
def test_only_with_four_messages(messages: int, wanted: bool) -> None:
    assert due(messages=messages) is wanted


@pytest.mark.spec("A43")
@pytest.mark.parametrize(("at", "wanted"), [(119.9, False), (120.0, True)])
def test_no_more_than_once_in_two_minutes(at: float, wanted: bool) -> None:
    assert due(at=500.0 + at, last=(500.0, 8_000)) is wanted


@pytest.mark.spec("A43")
@pytest.mark.parametrize(("path", "wanted"), [(8_249, False), (8_250, True), (7_751, False), (100, True)])
def test_only_when_enough_has_come_since(path: int, wanted: bool) -> None:
    assert due(path=path, last=(500.0, 8_000)) is wanted


@pytest.mark.spec("A43")
def test_the_note_has_four_sections_and_comes_without_a_model() -> None:
    assert note_of(TALK) == NOTE


@pytest.mark.spec("A43")
def test_secrets_are_not_in_the_note() -> None:
    note = note_of(
        [user(f"Remember: the key is {SECRET} for host db-7."), assistant(f"Because {SECRET}, ok.")]
    )
    assert "db-7" in note
    assert SECRET not in note


@pytest.mark.spec("A43")
def test_every_section_gets_its_share_and_the_newest_lines_win() -> None:
    rules = [
        user(f"Important: you must always deploy service{n} to region{n} before noon.") for n in range(40)
    ]
    note = note_of([*rules, *TALK])
    assert count_text(note) <= FLUSH_TOKENS
    assert all(f"## {title}\n- " in note for title in TITLES)
    assert "PostgreSQL 16" in note
    assert "service0 " not in note


@pytest.mark.spec("A43")
@given(
    st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), st.text(max_size=400)), max_size=12)
)
def test_the_note_is_the_same_every_time_and_within_its_bound(said: list[tuple[str, str]]) -> None:
    fields = [result("c1", t) if r == "tool" else user(t) if r == "user" else assistant(t) for r, t in said]
    note = note_of(fields)
    assert note == note_of(fields)
    assert count_text(note) <= FLUSH_TOKENS
    note.encode()
