"""`by_content` chooses by what is folded, and a change of ways loses nothing (D24)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from palimpsest.core.history.message import Message
from palimpsest.core.policy import Policy
from palimpsest.core.presets import PRESETS
from palimpsest.core.summary.acceptance import SummaryReply, WrittenBlock
from palimpsest.core.summary.prompt import SummaryLimits, SummaryRequest
from palimpsest.core.summary.styles import style_of
from palimpsest.core.summary.working.forms import BATCH_TITLES as TITLES
from palimpsest.core.summary.working.forms import INSTRUCTIONS as BATCH
from palimpsest.core.summary.working.styles import INSTRUCTIONS as GAP_FILL
from palimpsest.core.summary.working.styles import tool_share
from palimpsest.errors import SummaryRejected

from tests.core.summary.talk import ROOMY, calls, count, result, says, source, user

STYLE = style_of(PRESETS["by_content"])
LIMITS = SummaryLimits.of(Policy(), 200_000, 9_000)


def told(decision: str) -> str:
    """A batch summary that holds one decision."""
    lines = {title: f"- What there is to say of {title.lower()}." for title in TITLES}
    lines["Key Decisions"] = f"- {decision}"
    return "\n".join(f"## {title}\n{line}" for title, line in lines.items())


def work(first: int, steps: int) -> list[Message]:
    """So many calls with their results."""
    said: list[Message] = []
    for step in range(first, first + steps):
        said += [
            calls("read_file", f"c{step}", path=f"src/part{step}.py"),
            result(f"def part{step}(): return {step}", f"c{step}"),
        ]
    return said


def talk(first: int, turns: int) -> list[Message]:
    """So many questions and answers."""
    said: list[Message] = []
    for turn in range(first, first + turns):
        said += [
            user(f"Question {turn}: why is the harbour wall so low?"),
            says(f"Because of reason {turn}."),
        ]
    return said


def questions(
    said: Sequence[Message], since: int = 0, before: WrittenBlock | None = None
) -> list[SummaryRequest]:
    """What a model would be asked."""
    given = source(said, since=since, previous=before.text if before else "")
    requests = STYLE.requests(replace(given, state=before.state if before else b""), LIMITS, count, "")
    return list(requests)


@pytest.mark.spec("D24")
@pytest.mark.parametrize(
    ("said", "share"),
    [
        ([], 0.0),
        (talk(0, 4), 0.0),
        (work(0, 4), 1.0),
        ([*talk(0, 1), *work(0, 1)], 0.5),
        ([*talk(0, 3), *work(0, 2)], 0.4),
    ],
)
def test_calls_and_results_are_counted(said: list[Message], share: float) -> None:
    assert tool_share(said) == share


@pytest.mark.spec("D24")
def test_work_is_noted_by_code_and_talk_is_told_by_a_model() -> None:
    assert questions([user("Read them all."), *work(0, 20)]) == []
    (asked,) = questions(talk(0, 6))
    assert asked.system == BATCH
    # Little work: code asks for what its few slots leave out, as `working_state` does.
    (gap,) = questions([user("Read it."), *work(0, 1)])
    assert gap.system == GAP_FILL
    # A half of the messages is enough, and less is not.
    assert questions([*talk(0, 10), *work(0, 10)]) == []
    assert questions([*talk(0, 11), *work(0, 10)])[0].system == BATCH


@pytest.mark.spec("D24")
def test_an_answer_is_judged_by_the_way_that_asked() -> None:
    (batch,) = questions(talk(0, 6))
    (gap,) = questions([user("Read it."), *work(0, 1)])
    complete = SummaryReply("COMPLETE", "stop")
    assert STYLE.accepted(complete, gap, 4_000, count) == "COMPLETE"
    with pytest.raises(SummaryRejected):
        STYLE.accepted(complete, batch, 4_000, count)


@pytest.mark.spec("D24")
def test_ways_alternate_and_nothing_is_lost() -> None:
    said = talk(0, 6)
    first = STYLE.written(source(said), told("The wall stays low, for the herons' sake."), ROOMY, count)
    more = [*said, *work(0, 20)]
    assert questions(more, len(said), first) == []
    given = replace(source(more, since=len(said), previous=first.text), state=first.state)
    second = STYLE.written(given, None, ROOMY, count)
    for kept in ("for the herons' sake", "src/part19.py", "Question 0"):
        assert kept in second.text
    last = [*more, *talk(6, 6)]
    (asked,) = questions(last, len(more), second)
    assert "for the herons' sake" in asked.user
    assert "src/part19.py" in asked.user
    # Whatever the model leaves out of what code has noted comes back with the next work.
    given = replace(source(last, since=len(more), previous=second.text), state=second.state)
    third = STYLE.written(given, told("The wall is painted teal."), ROOMY, count)
    end = [*last, *work(20, 20)]
    given = replace(source(end, since=len(last), previous=third.text), state=third.state)
    fourth = STYLE.written(given, None, ROOMY, count)
    for kept in ("painted teal", "src/part19.py", "src/part39.py", "Question 0"):
        assert kept in fourth.text


@pytest.mark.spec("D24")
def test_a_long_summary_outlasts_rounds_without_a_model() -> None:
    facts = [
        f"Rule {number // 10}: of quay {number // 10} berth {number % 10} is kept free for the pilot."
        for number in range(300)
    ]
    said = talk(0, 6)
    first = STYLE.written(source(said), told("\n- ".join(facts)), ROOMY, count)
    more = [*said, *work(0, 20)]
    given = replace(source(more, since=len(said), previous=first.text), state=first.state)
    second = STYLE.written(given, None, 40_000, count)
    assert all(fact in second.text for fact in facts)


def test_a_block_without_new_messages_stays_as_it_is() -> None:
    said = [user("Read them all."), *work(0, 20)]
    block = STYLE.written(source(said), None, ROOMY, count)
    again = replace(source(said, since=len(said), previous=block.text), state=block.state)
    assert STYLE.written(again, None, ROOMY, count) == block
