"""The working state: ten slots of what a conversation has come to, and its stored form.

A value and its encoding. Knows nothing of how messages are read or how the state is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from app.core.summary.source import stored_as

StepStatus = Literal["pending", "active", "done", "dropped"]
ActionKind = Literal["read", "edit", "create", "rewrite", "delete", "move"]
# From so many populated slots on, a gap-fill is not worth a call (D12).
ENOUGH_SLOTS = 15

# Grows when a stored state can no longer be read as the present one.
VERSION = 1


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step of the plan. `id` is the tool's own, else the step's place counted from 1."""

    id: str
    label: str
    status: StepStatus


@dataclass(frozen=True, slots=True)
class Fact:
    """Something about the surroundings: "Platform", "linux"."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class FileAction:
    """What was done to a file. `detail`: what a read showed, how many lines were written, or where it went.

    `before` and `after` are an edit's sides.
    """

    kind: ActionKind
    detail: str = ""
    before: str = ""
    after: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class FileNote:
    """A file, its path as the tool was given it, and its newest actions, oldest first."""

    path: str
    actions: tuple[FileAction, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolNote:
    """A tool's outcome in short: the command or call, and what came of it."""

    label: str
    text: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """The line of a result that says what went wrong, and the call it came from."""

    label: str
    text: str


@dataclass(frozen=True, slots=True)
class WorkingState:
    """The ten slots, each oldest first; `files` by their last use.

    `gap` holds lines that models filled in, which are no slot.
    """

    task: str = ""
    user_requirements: tuple[str, ...] = ()
    plan: tuple[PlanStep, ...] = ()
    environment: tuple[Fact, ...] = ()
    files: tuple[FileNote, ...] = ()
    decisions: tuple[str, ...] = ()
    assistant_notes: tuple[str, ...] = ()
    tool_results: tuple[ToolNote, ...] = ()
    failures: tuple[Failure, ...] = ()
    discoveries: tuple[str, ...] = ()
    gap: tuple[str, ...] = ()

    @property
    def populated(self) -> int:
        """How many slots are filled: every entry of all ten categories counts (D12)."""
        entries = (
            self.user_requirements,
            self.plan,
            self.environment,
            self.files,
            self.decisions,
            self.assistant_notes,
            self.tool_results,
            self.failures,
            self.discoveries,
        )
        return bool(self.task) + sum(map(len, entries))


EMPTY = WorkingState()


def needs_gap_fill(state: WorkingState, llm_extraction: bool = True) -> bool:
    """True when so little was noted that a model should be asked what is missing (D12)."""
    return llm_extraction and state.populated < ENOUGH_SLOTS


@dataclass(frozen=True, slots=True)
class _Stored:
    kind: Literal["working_state"]
    version: int
    state: WorkingState


def encoded(state: WorkingState) -> bytes:
    """The state as JSON, which `decoded` gives back as it was."""
    return msgspec.json.encode(_Stored("working_state", VERSION, state))


def decoded(stored: bytes) -> WorkingState:
    """The stored state; the empty one for b"", damaged bytes, another version or another kind."""
    found = stored_as(_Stored, stored)
    return found.state if found and found.version == VERSION else EMPTY
