"""A session of an agent at work, of ten turns and 34 messages, as D22's source counts them."""

from __future__ import annotations

from collections.abc import Sequence

from palimpsest.core.history.message import Message
from palimpsest.core.summary.working import WorkingState, working_state

from tests.core.summary.talk import calls, result, says, user

SOURCE = (
    "def retry(call):\n    for attempt in range(3):\n        return call()\n" + "# padding of a file\n" * 60
)
FAILED = "FAILED tests/test_queue.py::test_retry - AssertionError: 2 != 3\n1 failed, 41 passed in 2.11s\n"


def session() -> list[Message]:
    """Reads, edits, commands and searches, some of which fail; ten user messages."""
    return [
        user("Make the retries of services/queue.py configurable, ticket QUE-4471."),
        calls("TodoWrite", "t1", todos=PLAN),
        result("Todos have been modified", "t1"),
        calls("Read", "r1", file_path="services/queue.py"),
        result(SOURCE, "r1"),
        says("I found that retry() ignores its third attempt. I'll use a Settings object for the number."),
        user("Good. Keep the default at 3."),
        calls("Edit", "e1", file_path="services/queue.py", old_string="range(3)", new_string="range(limit)"),
        result("The file services/queue.py has been updated.", "e1"),
        user("Run the tests now, please."),
        calls("Bash", "b1", command="pytest tests/test_queue.py -q"),
        result(FAILED, "b1"),
        says("The issue was an off-by-one: range(limit) must be range(limit + 1)."),
        user("Then fix that as well."),
        calls("Edit", "e2", file_path="services/queue.py", old_string="range(limit)", new_string="range(n)"),
        result("The file services/queue.py has been updated.", "e2"),
        calls("Bash", "b2", command="pytest tests/test_queue.py -q"),
        result("42 passed in 2.09s\n" + "slow test output line\n" * 90, "b2"),
        user("Where else is retry used?"),
        calls("Grep", "g1", pattern="retry\\("),
        result("\n".join(f"services/worker{n}.py:{n}0:    retry(call)" for n in range(14)), "g1"),
        says("It is called in 14 places, all of them below services/."),
        user("Document it in docs/queue.md."),
        calls("Write", "w1", file_path="docs/queue.md", content="# Queue\n\nRetries: `QUEUE_RETRIES`, 3.\n"),
        result("File created successfully at: docs/queue.md", "w1"),
        user("Which Python do we run?"),
        calls("Bash", "b3", command="python --version"),
        result("Python 3.11.9\n", "b3"),
        user("Delete the old notes."),
        calls("Bash", "b4", command="rm docs/old-notes.md"),
        result("", "b4"),
        user("Commit it on the branch feature/retries."),
        says("Committed as 9f3c2ab on feature/retries."),
        user("What is left of QUE-4471?"),
    ]


PLAN = [
    {"id": "1", "content": "Read services/queue.py", "status": "completed"},
    {"id": "2", "content": "Make the number of retries a setting", "status": "in_progress"},
    {"id": "3", "content": "Document QUEUE_RETRIES", "status": "pending"},
]


def state_of(messages: Sequence[Message], max_tool_results: int = 30) -> WorkingState:
    """The working state after the messages, with the setting's default."""
    return working_state(messages, max_tool_results)
