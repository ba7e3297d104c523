"""The state as a value: counted, stored, read back, bounded whatever is said."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.history.message import Message
from app.core.summary.working.limits import DEFAULT_LIMITS, SlotLimits
from app.core.summary.working.markdown import markdown
from app.core.summary.working.noting import state_of
from app.core.summary.working.state import (
    EMPTY,
    Fact,
    Failure,
    FileNote,
    PlanStep,
    ToolNote,
    WorkingState,
    decoded,
    encoded,
    needs_gap_fill,
)
from tests.core.histories import message
from tests.core.summary.talk import count
from tests.core.summary.working.session import session

SLOTS: dict[str, Any] = {
    "task": "Ship it",
    "user_requirements": ("Keep port 8081",),
    "plan": (PlanStep("1", "Read", "done"),),
    "environment": (Fact("Platform", "linux"),),
    "files": (FileNote("a.py"),),
    "decisions": ("I'll use msgspec",),
    "assistant_notes": ("The queue is drained.",),
    "tool_results": (ToolNote("ls", "a"),),
    "failures": (Failure("make", "error: x"),),
    "discoveries": ("It turns out well.",),
}


@pytest.mark.spec("D12")
@pytest.mark.parametrize("slot", SLOTS)
def test_each_of_the_ten_categories_counts(slot: str) -> None:
    assert WorkingState(**{slot: SLOTS[slot]}).populated == 1


@pytest.mark.spec("D12")
def test_what_models_filled_in_and_open_calls_are_no_slots() -> None:
    state = replace(state_of(session()[:2]), gap=("a",))
    assert state.open_calls
    assert state.populated == 1 + len(state.plan)


@pytest.mark.spec("D12")
def test_fifteen_slots_are_enough_and_fourteen_are_not() -> None:
    ten = WorkingState(**SLOTS)
    fourteen = replace(ten, plan=tuple(PlanStep(str(n), "Read", "done") for n in range(5)))
    fifteen = replace(fourteen, decisions=("one", "two"))
    assert (ten.populated, fourteen.populated, fifteen.populated) == (10, 14, 15)
    assert needs_gap_fill(fourteen)
    assert not needs_gap_fill(fifteen)
    assert not needs_gap_fill(fourteen, llm_extraction=False)


def test_a_state_is_read_back_as_it_was() -> None:
    state = replace(state_of(session()[:11]), gap=("one", "two"))
    assert state.open_calls
    assert decoded(encoded(state)) == state


def test_what_cannot_be_read_is_the_empty_state() -> None:
    stored = encoded(state_of(session()))
    other_version = json.dumps(json.loads(stored) | {"version": 99}).encode()
    other_kind = json.dumps(json.loads(stored) | {"kind": "rolling"}).encode()
    wrong = json.dumps({"kind": "working_state", "version": 1, "state": {"task": 7}}).encode()
    for damaged in (b"", b"{}", b"[" * 5_000, stored[:-9], b"\xff\xfe", other_version, other_kind, wrong):
        assert decoded(damaged) == EMPTY


@given(st.binary())
def test_no_bytes_are_an_error(stored: bytes) -> None:
    assert decoded(stored) == EMPTY


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


SMALL = SlotLimits(
    max_tool_results=3,
    max_failures=2,
    max_decisions=2,
    max_discoveries=2,
    max_user_requirements=2,
    max_plan_steps=2,
    max_environment=2,
    max_files=2,
    max_file_actions=2,
    max_assistant_notes=2,
    max_open_calls=2,
)


@given(st.lists(messages(), max_size=14), st.sampled_from([DEFAULT_LIMITS, SMALL]), st.integers(0, 600))
def test_any_messages_give_a_bounded_state_that_can_be_stored(
    said: list[Message], limits: SlotLimits, tokens: int
) -> None:
    state = state_of(said, limits=limits)
    assert decoded(encoded(state)) == state
    check_caps(state, limits)
    text = markdown(state, tokens, count)
    assert count(text) <= tokens
    text.encode()
    assert "sk-Ab1Ab1" not in repr(state)


def check_caps(state: WorkingState, limits: SlotLimits) -> None:
    bounds = {
        "user_requirements": limits.requirement_chars,
        "decisions": limits.decision_chars,
        "discoveries": limits.discovery_chars,
        "assistant_notes": limits.note_chars,
    }
    for field in fields(WorkingState):
        if field.name not in ("task", "gap"):
            most = getattr(limits, "max_plan_steps" if field.name == "plan" else f"max_{field.name}")
            assert len(getattr(state, field.name)) <= most
    for name, chars in bounds.items():
        assert all(len(text) <= chars for text in getattr(state, name))
    assert len(state.task) <= limits.task_chars
    assert all(len(note.text) <= limits.failed_shell_chars for note in state.tool_results)
    assert all(len(note.label) <= limits.label_chars for note in state.tool_results)
    assert all(len(failure.text) <= limits.failure_chars for failure in state.failures)
    assert all(len(step.label) <= limits.plan_step_chars for step in state.plan)
    for note in state.files:
        assert len(note.path) <= limits.path_chars
        assert len(note.actions) <= limits.max_file_actions
        sides = [side for action in note.actions for side in (action.before, action.after)]
        assert all(len(side) <= limits.edit_chars for side in sides)
