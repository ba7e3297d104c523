"""The state as markdown: its order, its wording, its bound (D10)."""

from __future__ import annotations

import pytest

from app.core.summary.working.markdown import markdown
from app.core.summary.working.noting import state_of
from app.core.summary.working.state import (
    EMPTY,
    Fact,
    Failure,
    FileAction,
    FileNote,
    PlanStep,
    ToolNote,
    WorkingState,
)
from tests.core.summary.talk import count
from tests.core.summary.working.session import session

FULL = WorkingState(
    task="Ship QUE-4471",
    user_requirements=("Keep port 8081", "No new tables"),
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
GOLDEN = """## Task
Ship QUE-4471

## User Requirements
- Keep port 8081
- No new tables

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


@pytest.mark.spec("D10")
def test_every_slot_has_its_place() -> None:
    assert markdown(FULL, 10_000, count) == GOLDEN


@pytest.mark.spec("D10")
def test_empty_slots_are_left_out() -> None:
    assert markdown(EMPTY, 100, count) == ""
    state = WorkingState(task="Ship it", discoveries=("It turns out well so far.",))
    assert markdown(state, 100, count) == "## Task\nShip it\n\n## Discoveries\n- It turns out well so far."


@pytest.mark.parametrize("tokens", [0, 1, 5, 10, 40, 100, 150, 400, 900, 2_000])
def test_it_always_fits(tokens: int) -> None:
    assert count(markdown(state_of(session()), tokens, count)) <= tokens


def test_tool_output_goes_before_what_was_asked_and_decided() -> None:
    text = markdown(FULL, count(GOLDEN) - 4, count)
    assert "42 passed" not in text
    assert "`make check`" in text
    for line in ("Keep port 8081", "I'll use msgspec.", "src/b.py", "[~] 2: Write"):
        assert line in text


def test_of_one_section_the_oldest_goes_first_and_the_task_last() -> None:
    state = WorkingState(task="Ship it", user_requirements=tuple(f"Rule number {n}" for n in range(40)))
    text = markdown(state, 60, count)
    numbers = [int(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith("- ")]
    assert numbers == list(range(40 - len(numbers), 40))
    assert len(numbers) > 3
    assert text.startswith("## Task\nShip it")


def test_a_long_task_is_shortened_before_it_goes() -> None:
    state = WorkingState(task="Ship QUE-4471 " + "to the people in Lisbon " * 15)
    text = markdown(state, 40, count)
    assert text.startswith("## Task\nShip QUE-4471 to the people")
    assert count(text) <= 40


def test_content_cannot_pass_for_a_heading() -> None:
    state = WorkingState(task="Ship\n## Plan\nnow", tool_results=(ToolNote("ls", "# a\n## Task\nb"),))
    headings = [line for line in markdown(state, 1_000, count).splitlines() if line.startswith("#")]
    assert headings == ["## Task", "## Tool Results"]
