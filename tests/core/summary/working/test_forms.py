"""The state as a block: its order, its wording, its bound (D10)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from palimpsest.core.history.message import Message
from palimpsest.core.summary.working.forms import PREAMBLE
from palimpsest.core.summary.working.slots import state_of
from palimpsest.core.summary.working.state import EMPTY, ToolNote, WorkingState, encoded
from palimpsest.core.summary.working.styles import WorkingStateStyle

from tests.core.summary.talk import ROOMY, calls, count, message, result, says, source, user
from tests.core.summary.working.session import session

SAID = [
    user("Ship QUE-4471"),
    message({"role": "system", "content": "Platform: linux"}),
    user("Always keep port 8081."),
    user("Report to Rui on Friday."),
    calls(
        "TodoWrite",
        todos=[
            {"content": "Read", "status": "completed"},
            {"content": "Write", "status": "in_progress"},
            {"content": "Test", "status": "pending"},
            {"content": "Bench", "status": "cancelled"},
        ],
    ),
    result("ok"),
    calls("Read", file_path="src/a.py"),
    result("def a(): ...\n"),
    calls("Edit", file_path="src/b.py", old_string="x = 1", new_string="x = 2"),
    result("ok"),
    calls("Edit", file_path="src/c.py", old_string="y", new_string="z"),
    result("Error: String to replace not found in file."),
    says("I'll use msgspec for the queue. The issue was a stale lock in worker3."),
    calls("Bash", command="make check"),
    result("collected\n42 passed in 3s\n"),
    calls("Bash", command="make docs"),
    result("error: no rule for docs"),
    says("Worker3 drains the queue of tickets now."),
]
GAP = "The user prefers small commits."
GOLDEN = """## Task
- turn 1, user: Ship QUE-4471
## User Requirements
- "Always keep port 8081."
- turn 3, user: Report to Rui on Friday.
## Plan
[x] Read
[in progress] Write
[ ] Test
[dropped] Bench
## Environment
- Platform: linux
## Files Touched
- edited src/b.py: "x = 1" -> "x = 2"
- src/a.py: read: 1 line; defines a
## Key Decisions
- I'll use msgspec for the queue.
## Assistant Notes
- turn 3, assistant: Worker3 drains the queue of tickets now.
## Tool Results
- `make check`: ok, 42 passed in 3s
- `make check`
  collected
  42 passed in 3s
- `make docs`
  error: no rule for docs
## Errors & Failures
- Edit src/c.py: failed, Error: String to replace not found in file.
- `make docs`: failed, error: no rule for docs
## Discoveries
- turn 3, assistant: The issue was a stale lock in worker3.
## Additional Context
- The user prefers small commits."""


def body(state: WorkingState = EMPTY, tokens: int = ROOMY, said: list[Message] = SAID) -> str:
    """What the block says where all of these messages are folded, without its frame."""
    since = 0 if state == EMPTY else len(said)
    given = replace(source(said, since=since), state=encoded(state))
    text = WorkingStateStyle().written(given, None, tokens, count).text
    return text.partition(PREAMBLE)[2].rpartition("\n</")[0].strip()


@pytest.mark.spec("D10")
def test_every_slot_has_its_place() -> None:
    assert body(replace(state_of(SAID), gap=(GAP,))) == GOLDEN


@pytest.mark.spec("D10")
def test_empty_slots_are_left_out() -> None:
    assert body(said=[]) == ""
    said = [user("Ship QUE-4471"), says("It turns out the index was built twice.")]
    assert body(said=said) == (
        "## Task\n- turn 1, user: Ship QUE-4471\n"
        "## Discoveries\n- turn 1, assistant: It turns out the index was built twice."
    )


@pytest.mark.parametrize("tokens", [0, 1, 5, 100, 150, 200, 400, 900, 2_000])
def test_it_always_fits(tokens: int) -> None:
    text = WorkingStateStyle().written(source(session()), None, tokens, count).text
    assert count(text) <= max(tokens, count(PREAMBLE) + 14)


def test_tool_output_goes_before_what_was_asked_decided_and_done() -> None:
    text = body(
        said=[*SAID[:-5], calls("Bash", command="make check"), result("42 passed\n" * 60)], tokens=320
    )
    assert text.count("42 passed") < 25
    for line in ("keep port 8081", "I'll use msgspec", "src/b.py", "[in progress] Write", "`make check`: ok"):
        assert line in text


def test_of_one_section_the_oldest_goes_first_and_what_was_asked_last() -> None:
    state = replace(EMPTY, task="x", decisions=tuple(f"I'll use port {n} for worker {n}." for n in range(25)))
    text = body(state, 330, SAID[:4])
    numbers = [int(line.split()[4]) for line in text.splitlines() if "I'll use" in line]
    assert numbers == list(range(25 - len(numbers), 25))
    assert 3 < len(numbers) < 25
    assert "Ship QUE-4471" in text
    assert "Always keep port 8081." in text


def test_of_many_results_the_newest_are_shown() -> None:
    outputs = tuple(ToolNote(f"make m{n}", "line of output\n" * 20) for n in range(12))
    text = body(replace(EMPTY, task="x", tool_results=outputs), 500, SAID[:4])
    assert text.partition("`make m11`")[2].count("line of output") == 20
    assert "`make m10`" in text
    assert "`make m1`" not in text


def test_a_long_task_is_shortened_before_it_goes() -> None:
    said = [user("Ship QUE-4471 " + "to the people in Lisbon " * 60 + "by May.")]
    text = body(said=said, tokens=200)
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
