"""The one question a working state may ask, and what becomes of the answer (D11, D12)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from palimpsest.core.history.message import Message
from palimpsest.core.policy import Policy
from palimpsest.core.summary.acceptance import SummaryReply
from palimpsest.core.summary.prompt import SummaryLimits, SummaryRequest
from palimpsest.core.summary.source import SummarySource
from palimpsest.core.summary.working.forms import GAP_TITLE
from palimpsest.core.summary.working.slots import state_of
from palimpsest.core.summary.working.state import EMPTY
from palimpsest.core.summary.working.styles import (
    COMPLETE,
    INSTRUCTIONS,
    WorkingStateStyle,
    gap_request,
    with_gap,
)
from palimpsest.errors import SummaryRejected

from tests.core.summary.talk import ROOMY, calls, count, result, says, source, user
from tests.core.summary.working.session import session

LIMITS = SummaryLimits.of(Policy(), 100_000, 4_000)
FILE = "\n```\nbudget_line = 7731-B, port = 5432\n```\n"
TALK = [
    user("Move the launch to 9 May, ticket LCH-204."),
    says(f"Moved it. {FILE} " + "Some prose of no use. " * 30),
]
MISSING = "- The crew in Lisbon wants to hear of it before anybody else does.\n- Budget line: 7731-B"
STYLE = WorkingStateStyle()


def asked(given: SummarySource, style: WorkingStateStyle = STYLE, focus: str = "") -> list[SummaryRequest]:
    return list(style.requests(given, LIMITS, count, focus))


def spoken(number: int) -> list[Message]:
    """Messages that fill so many slots, the task among them."""
    return [user("Count the parts."), *(user(f"Take part {n} as well.") for n in range(1, number))]


@pytest.mark.spec("D12")
@pytest.mark.parametrize(("slots", "calls_made"), [(14, 1), (15, 0)])
def test_fifteen_slots_make_the_question_unnecessary(slots: int, calls_made: int) -> None:
    given = source(spoken(slots))
    assert state_of(spoken(slots)).populated == slots
    assert len(asked(given)) == calls_made


@pytest.mark.spec("D12")
@pytest.mark.spec("D16")
def test_the_question_can_be_switched_off_and_is_on_by_default() -> None:
    assert len(asked(source(TALK))) == 1
    assert asked(source(TALK), WorkingStateStyle(llm_extraction=False)) == []


@pytest.mark.spec("D12")
def test_slots_of_earlier_rounds_count() -> None:
    many = spoken(15)
    before = STYLE.written(source(many), None, ROOMY, count)
    later = replace(source([*many, *TALK], since=15, previous=before.text), state=before.state)
    assert asked(later) == []


@pytest.mark.spec("D11")
def test_the_question_is_small_and_holds_state_and_newest_messages() -> None:
    said = [user("The task is T-1."), *(says(f"Part number {n} " + "goes on " * 900) for n in range(30))]
    (request,) = asked(source(said), focus="the budget of LCH-204")
    assert request.max_tokens == 2_048
    assert len(request.user) <= 12_000
    assert "The task is T-1." in request.user.partition("CONVERSATION")[0]
    assert "Part number 29 " in request.user
    assert "Part number 3 " not in request.user
    assert "the budget of LCH-204" in request.user
    talk = request.user.partition("CONVERSATION\n")[2].partition("\n\nFOCUS")[0]
    entries = talk.split("\n\nASSISTANT")
    assert len(entries) >= 4
    assert max(len(entry) for entry in entries) <= 2_000
    assert [json.loads(raw)["role"] for raw in request.messages] == ["system", "user"]


@pytest.mark.spec("D11")
def test_the_question_fits_a_small_window() -> None:
    said = [user("The task is T-1."), *(says(f"Part {n} " + "goes on " * 900) for n in range(9))]
    small = replace(LIMITS, window_tokens=2_500, max_tokens=500)
    request = gap_request(source(said), state_of(said), small, count)
    assert request is not None
    assert count(request.user) + count(INSTRUCTIONS) + request.max_tokens <= 2_500
    assert request.max_tokens == 500
    assert gap_request(source(said), state_of(said), replace(LIMITS, window_tokens=600), count) is None


def test_the_question_holds_no_secrets() -> None:
    key = "sk-" + "Ab1" * 10
    (request,) = asked(source([user(f"Use {key} for it"), says("Done.")]), focus=f"the key {key}")
    assert key not in request.user


def accepted(text: str, finish: str = "stop", tools: bool = False) -> str:
    (request,) = asked(source(TALK))
    return STYLE.accepted(SummaryReply(text, finish, tools), request, 2_000, count)


@pytest.mark.spec("D11")
@pytest.mark.parametrize("text", ["COMPLETE", "Complete.", "**COMPLETE**\n", '"COMPLETE"'])
def test_nothing_missing_leaves_the_state_as_it_is(text: str) -> None:
    assert accepted(text) == COMPLETE
    given = source(TALK)
    told = STYLE.written(given, COMPLETE, ROOMY, count)
    assert told == STYLE.written(given, None, ROOMY, count)
    assert GAP_TITLE not in told.text


@pytest.mark.spec("D11")
def test_what_is_missing_stands_under_its_own_heading() -> None:
    assert accepted(MISSING) == MISSING
    text = STYLE.written(source(TALK), MISSING, ROOMY, count).text
    body = text.partition(f"## {GAP_TITLE}\n")[2]
    assert body.startswith(f"{MISSING}\n</palimpsest_summary>")
    assert "LCH-204" in text


@pytest.mark.spec("D11")
@pytest.mark.parametrize(
    ("text", "finish", "tools"),
    [
        ("COMPLETE", "length", False),
        ("COMPLETE", "stop", True),
        (MISSING, "content_filter", False),
        ("Error: the service is not available at the moment, please try again.", "stop", False),
        ("", "stop", False),
        ("word " * 3_000, "stop", False),
    ],
)
def test_a_bad_answer_is_refused_and_the_slots_alone_remain(text: str, finish: str, tools: bool) -> None:
    with pytest.raises(SummaryRejected):
        accepted(text, finish, tools)
    alone = STYLE.written(source(TALK), None, ROOMY, count)
    assert "LCH-204" in alone.text
    assert GAP_TITLE not in alone.text


@pytest.mark.spec("D11")
def test_what_was_filled_in_survives_later_rounds_once() -> None:
    first = STYLE.written(source(TALK), MISSING, ROOMY, count)
    more = [*TALK, user("Tell Rui."), says("Told him.")]
    given = replace(source(more, since=2, previous=first.text), state=first.state)
    second = STYLE.written(given, "- Rui answers on Fridays only.\n- Budget line: 7731-B", ROOMY, count)
    third = STYLE.written(
        replace(given, state=second.state, since=4, previous=second.text), None, ROOMY, count
    )
    for each in (second, third):
        assert each.text.count("7731-B") == 1
        assert "Lisbon" in each.text
        assert "Fridays" in each.text


@pytest.mark.spec("D11")
def test_what_a_later_word_replaces_stands_beside_it() -> None:
    first = STYLE.written(
        source(TALK), "- The release port of the ledger is 5432.\n- Lisbon is told.", ROOMY, count
    )
    talk = [*TALK, user("Change the release port of the ledger to 7700."), says("Changed.")]
    given = replace(source(talk, since=len(TALK), previous=first.text), state=first.state)
    block = STYLE.written(given, None, ROOMY, count).text
    assert "user: Change the release port of the ledger to 7700." in block
    # Nothing of what a model wrote is taken back by a guess.
    assert "is 5432" in block
    assert "Lisbon is told." in block


@pytest.mark.spec("D11")
def test_what_was_filled_in_is_bounded_the_oldest_going_first() -> None:
    state = EMPTY
    for n in range(50):
        state = with_gap(state, "\n".join(f"- Fact {n}-{m} is about LCH-204." for m in range(4)), 900)
    gap = state.gap
    assert sum(map(len, gap)) <= 900
    assert gap[-1] == "Fact 49-3 is about LCH-204."
    assert len(gap) > 10


@pytest.mark.spec("D22")
def test_a_working_session_needs_no_model_and_comes_down_to_five_messages() -> None:
    said = session()
    assert len(said) == 34
    assert sum(message.role == "user" for message in said) == 10
    tail = said[30:]
    given = source(said[:30], tail=tail)
    assert asked(given) == []
    block = STYLE.written(given, None, ROOMY, count).text
    view = [block, *tail]
    assert len(view) == 5
    assert count(block) < sum(message.tokens for message in said[:30]) / 2
    for kept in ("QUE-4471", "services/queue.py", "docs/queue.md", "Python 3.11.9", "off-by-one"):
        assert kept in block


def test_without_a_model_a_tool_call_is_still_related_to_its_result() -> None:
    first = STYLE.written(source([user("Go on."), calls("Bash", "b1", command="make x")]), None, ROOMY, count)
    more = [user("Go on."), calls("Bash", "b1", command="make x"), result("built x.o", "b1")]
    given = replace(source(more, since=2, previous=first.text), state=first.state)
    assert "`make x`\n  built x.o" in STYLE.written(given, None, ROOMY, count).text
