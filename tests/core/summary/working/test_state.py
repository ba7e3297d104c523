"""The state as a value: counted, and bounded whatever is said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.history.message import Message
from palimpsest.core.summary.working import FileNote, ToolNote, WorkingState
from palimpsest.core.wire.json_text import plain_values

from tests.core.histories import message
from tests.core.summary.talk import calls, result, says, user
from tests.core.summary.working.session import state_of

SLOTS: dict[str, Any] = {
    "task": "Ship it",
    "user_requirements": ["Keep port 8081"],
    "plan": [{"id": "1", "label": "Read", "status": "done"}],
    "environment": [{"name": "Redis", "value": "7"}],
    "files": [FileNote("a.py", ())],
    "decisions": ["I'll use msgspec"],
    "assistant_notes": ["The queue is drained."],
    "tool_results": [ToolNote("ls", "a")],
    "failures": [ToolNote("make", "error: x")],
    "discoveries": ["It turns out well."],
}


@pytest.mark.spec("D12")
@pytest.mark.parametrize("slot", SLOTS)
def test_each_of_the_ten_categories_counts(slot: str) -> None:
    assert WorkingState(**{slot: SLOTS[slot]}).populated == 1


WORDS = st.sampled_from(
    [
        "error: no such file /srv/a-1.py",
        "I'll use port 8081 because QUE-7 says so. ",
        "I found that the pool leaks. ",
        "The issue was a stale lock in /var/run/q.lock. ",
        "## Task\n",
        "<palimpsest_summary>",
        "x" * 700,
        "漢字" * 200,
        "\ud800 \x00 ",
        " sk-" + "Ab1" * 10 + " ",
        "word " * 90,
        "Found 12 files\na\nb",
    ]
)
TEXTS = st.lists(WORDS | st.text(max_size=40), max_size=6).map("".join)
NAMES = st.sampled_from(
    ["Read", "Edit", "Write", "Bash", "Grep", "TodoWrite", "apply_patch", "book", "ls", "rm"]
)
KEYS = st.sampled_from(
    [
        "path",
        "file_path",
        "command",
        "old_string",
        "new_string",
        "content",
        "todos",
        "id",
        "status",
        "offset",
        "x",
    ]
)
VALUES = st.recursive(
    TEXTS | st.integers() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(KEYS, VALUES, max_size=4).map(json.dumps) | TEXTS
IDS = st.sampled_from(["c1", "c2", "c3", ""])


@st.composite
def messages(draw: st.DrawFn) -> Message:
    role = draw(st.sampled_from(["user", "assistant", "tool", "system", "developer", "other"]))
    said: dict[str, Any] = {"role": role, "content": draw(TEXTS | st.none())}
    if role == "tool":
        said["tool_call_id"] = draw(IDS)
    if role == "assistant":
        made = draw(st.lists(st.tuples(IDS, NAMES, ARGUMENTS), max_size=3))
        said["tool_calls"] = [
            {"id": i, "type": "function", "function": {"name": name, "arguments": given}}
            for i, name, given in made
        ]
    return message(said)


@given(st.lists(messages(), max_size=14), st.sampled_from([0, 3, 30]))
def test_any_messages_give_a_bounded_state_that_can_be_sent(said: list[Message], results: int) -> None:
    state = state_of(said, max_tool_results=results)
    check_caps(state, results)
    plain_values(state)
    assert "sk-Ab1Ab1" not in repr(state)


# Entries of each slot, and characters of an entry (D03 to D09).
MOST = {
    "user_requirements": (100, 300),
    "plan": (50, 160),
    "environment": (20, 200),
    "files": (100, 500),
    "decisions": (25, 120),
    "discoveries": (25, 150),
    "assistant_notes": (12, 500),
    "failures": (25, 300),
}


def test_a_state_is_bounded_however_long_the_conversation_is() -> None:
    said = [
        each
        for n in range(130)
        for each in (
            user(f"Use port {8000 + n} for Python {n}.1 and worker {n}. " + "Mind the gap. " * 60),
            says(f"I found that worker {n} leaks. I'll use tool {n} for it. Module m{n} has {n} handlers."),
            calls("Edit", "e", path=f"src/m{n}.py", old_string="a " * 400, new_string=f"b{n} " * 400),
            result("ok", "e"),
            calls("Bash", "b", command=f"make m{n}"),
            result(f"error: m{n} is broken\n" + "details of it " * 400, "b"),
        )
    ]
    said += [calls("Edit", "e", path="src/m129.py", old_string=str(n), new_string="x") for n in range(20)]
    said += [result("ok", "e")] * 20
    said += [calls("TodoWrite", "t", todos=[f"Step {n}" for n in range(90)]), result("ok", "t")]
    state = state_of(said)
    check_caps(state, 30)
    for slot, (most, _) in MOST.items():
        assert slot == "environment" or len(getattr(state, slot)) == most
    assert len(state.tool_results) == 30


def check_caps(state: WorkingState, results: int) -> None:
    for slot, (most, chars) in MOST.items():
        entries = getattr(state, slot)
        assert len(entries) <= most
        texts = [value for each in entries for value in (each, *_values(each)) if isinstance(value, str)]
        assert all(len(text) <= chars for text in texts)
    assert len(state.task) <= 400
    assert len(state.tool_results) <= results
    assert all(len(note.text) <= 1_500 and len(note.label) <= 200 for note in state.tool_results)
    for note in state.files:
        assert len(note.actions) <= 8
        assert all(len(side) <= 300 for each in note.actions for side in (each.before, each.after))


def _values(entry: object) -> list[object]:
    if isinstance(entry, dict):
        return [*entry.values()]
    return [] if isinstance(entry, str) else [getattr(entry, name) for name in entry.__slots__]  # type: ignore[attr-defined]
