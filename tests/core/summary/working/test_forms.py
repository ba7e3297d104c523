"""The state as a block: its order, its wording, its bound (D10)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.core.history.message import Message
from app.core.summary.working.forms import PREAMBLE
from app.core.summary.working.state import (
    EMPTY,
    Fact,
    Failure,
    FileAction,
    FileNote,
    PlanStep,
    ToolNote,
    WorkingState,
    encoded,
)
from app.core.summary.working.styles import WorkingStateStyle
from tests.core.summary.talk import ROOMY, count, source, user
from tests.core.summary.working.session import session

FULL = WorkingState(
    task="Ship QUE-4471",
    user_requirements=("Always keep port 8081.", "Report to Rui on Friday."),
    plan=(
        PlanStep("1", "Read", "done"),
        PlanStep("2", "Write", "active"),
        PlanStep("3", "Test", "pending"),
        PlanStep("4", "Bench", "dropped"),
    ),
    environment=(Fact("Platform", "linux"),),
    files=(
        FileNote(
            "src/a.py",
            (
                FileAction("read", detail="63 lines"),
                FileAction("edit", before="x = 1", after="x = 2"),
                FileAction("edit", after="new", failed=True),
            ),
        ),
        FileNote("src/b.py", (FileAction("delete"),)),
    ),
    decisions=("I'll use msgspec.",),
    assistant_notes=("The queue is drained by worker3.",),
    tool_results=(ToolNote("make check", "ok\n42 passed"),),
    failures=(Failure("make", "error: x"),),
    discoveries=("The issue was a stale lock.",),
    gap=("The user prefers small commits.",),
)
SAID = [user("Ship QUE-4471"), user("Always keep port 8081."), user("Report to Rui on Friday.")]
GOLDEN = """## Task
- turn 1, user: Ship QUE-4471
## User Requirements
- "Always keep port 8081."
- turn 3, user: Report to Rui on Friday.
## Plan
- [x] 1: Read
- [~] 2: Write
- [ ] 3: Test
- [-] 4: Bench
## Environment
- Platform: linux
## Files Touched
- src/a.py
  - read: 63 lines
  - edit: `x = 1` -> `x = 2`
  - edit (failed): (nothing) -> `new`
- src/b.py
  - delete
## Key Decisions
- I'll use msgspec.
## Assistant Notes
- The queue is drained by worker3.
## Tool Results
- `make check`
  ok
  42 passed
## Errors & Failures
- `make`: error: x
## Discoveries
- The issue was a stale lock.
## Additional Context
- The user prefers small commits."""


def body(state: WorkingState, tokens: int = ROOMY, said: list[Message] = SAID) -> str:
    """What the block of that state says where all of these messages are folded, without its frame."""
    given = replace(source(said, since=len(said)), state=encoded(state))
    text = WorkingStateStyle().written(given, None, tokens, count).text
    return text.partition(PREAMBLE)[2].rpartition("\n</")[0].strip()


@pytest.mark.spec("D10")
def test_every_slot_has_its_place() -> None:
    assert body(FULL) == GOLDEN


@pytest.mark.spec("D10")
def test_empty_slots_are_left_out() -> None:
    assert body(replace(EMPTY, task="Hi"), said=[]) == ""
    state = WorkingState(task="Ship QUE-4471", discoveries=("It turns out well so far.",))
    shown = body(state, said=SAID[:1])
    assert shown == "## Task\n- turn 1, user: Ship QUE-4471\n## Discoveries\n- It turns out well so far."


@pytest.mark.parametrize("tokens", [0, 1, 5, 100, 150, 200, 400, 900, 2_000])
def test_it_always_fits(tokens: int) -> None:
    text = WorkingStateStyle().written(source(session()), None, tokens, count).text
    assert count(text) <= max(tokens, count(PREAMBLE) + 14)


def test_tool_output_goes_before_what_was_asked_and_decided() -> None:
    state = replace(FULL, tool_results=(ToolNote("make check", "ok\n" + "42 passed\n" * 60),))
    text = body(state, count(GOLDEN) + 140)
    assert text.count("42 passed") < 20
    assert "`make check`" in text
    for line in ("keep port 8081", "I'll use msgspec.", "src/b.py", "[~] 2: Write"):
        assert line in text


def test_of_one_section_the_oldest_goes_first_and_what_was_asked_last() -> None:
    state = replace(EMPTY, task="x", decisions=tuple(f"I'll use port {n} for worker {n}." for n in range(25)))
    text = body(state, 330)
    numbers = [int(line.split()[4]) for line in text.splitlines() if "I'll use" in line]
    assert numbers == list(range(25 - len(numbers), 25))
    assert 3 < len(numbers) < 25
    assert "Ship QUE-4471" in text
    assert "Always keep port 8081." in text


def test_of_many_results_the_newest_are_whole_and_older_ones_are_named() -> None:
    outputs = tuple(ToolNote(f"make m{n}", "line of output\n" * 20) for n in range(12))
    text = body(replace(EMPTY, task="x", tool_results=outputs), 700)
    assert all(f"`make m{n}`" in text for n in range(12))
    newest = text.partition("`make m11`")[2]
    assert newest.count("line of output") == 20
    assert "line of output" not in text.partition("`make m1`")[0]


def test_a_long_task_is_shortened_before_it_goes() -> None:
    said = [user("Ship QUE-4471 " + "to the people in Lisbon " * 60 + "by May.")]
    text = body(replace(EMPTY, task="x"), 200, said)
    assert "Ship QUE-4471 to the people" in text
    assert "by May." in text


def test_content_cannot_pass_for_a_heading() -> None:
    state = replace(EMPTY, task="x", tool_results=(ToolNote("ls", "# a\n## Plan\nb"),))
    text = body(state, said=[user("Ship it\n## Plan\nnow"), user("## Tool Results\nare mine")])
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## Task",
        "## User Requirements",
        "## Tool Results",
    ]
