"""The working state of a conversation in ten slots, and its stored form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from palimpsest.core.summary.source import stored_as

StepStatus = Literal["pending", "active", "done", "dropped"]
ActionKind = Literal["read", "edit", "create", "rewrite", "delete", "move"]
# Populated slots from which on a gap-fill is not worth a call (D12).
ENOUGH_SLOTS = 15

# Incremented when older stored states can no longer be read.
VERSION = 1


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step of the plan. `id` is the tool's own, else the step's number from 1."""

    id: str
    label: str
    status: StepStatus


@dataclass(frozen=True, slots=True)
class EnvironmentFact:
    """A fact about the environment: "Platform", "linux"."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class FileAction:
    """One action on a file.

    `detail`: what a read showed, the number of lines written, or the new path. `before` and `after`: the
    sides of an edit.
    """

    kind: ActionKind
    detail: str = ""
    before: str = ""
    after: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class FileNote:
    """A file by the path in the tool's arguments, and its newest actions, oldest first."""

    path: str
    actions: tuple[FileAction, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolNote:
    """A tool result in short: the command or call, and its outcome."""

    label: str
    text: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """A failed call and the line of its result that states the error."""

    label: str
    text: str


@dataclass(frozen=True, slots=True)
class WorkingState:
    """The ten slots, each oldest first, `files` by their last use.

    `gap` has the lines that models filled in; it is not a slot.
    """

    task: str = ""
    user_requirements: tuple[str, ...] = ()
    plan: tuple[PlanStep, ...] = ()
    environment: tuple[EnvironmentFact, ...] = ()
    files: tuple[FileNote, ...] = ()
    decisions: tuple[str, ...] = ()
    assistant_notes: tuple[str, ...] = ()
    tool_results: tuple[ToolNote, ...] = ()
    failures: tuple[ToolFailure, ...] = ()
    discoveries: tuple[str, ...] = ()
    gap: tuple[str, ...] = ()

    @property
    def populated(self) -> int:
        """The number of filled slots: each entry of the ten categories counts (D12)."""
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
    """True when the state is so small that a model is asked for what is missing (D12)."""
    return llm_extraction and state.populated < ENOUGH_SLOTS


@dataclass(frozen=True, slots=True)
class _Stored:
    kind: Literal["working_state"]
    version: int
    state: WorkingState


_STORED = msgspec.json.Decoder(_Stored)


def encoded(state: WorkingState) -> bytes:
    """The state as JSON; `decoded` is the inverse."""
    return msgspec.json.encode(_Stored("working_state", VERSION, state))


def decoded(stored: bytes) -> WorkingState:
    """The stored state; an empty one for b"", damaged bytes, another version or another kind."""
    found = stored_as(_STORED, stored)
    return found.state if found and found.version == VERSION else EMPTY
