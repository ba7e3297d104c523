"""The bounds of a working state's slots, and which tools count as what.

Plain values, every one a setting. Knows nothing of messages or of what is noted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from app.core.notes.names import tool_named

ToolKind = Literal["read", "edit", "write", "delete", "shell", "search", "plan", "other"]
FILE_KINDS: frozenset[str] = frozenset({"read", "edit", "write", "delete"})

# From so many populated slots on, a gap-fill is not worth a call (D12).
ENOUGH_SLOTS = 15

_NOT_IN_NAMES = re.compile(r"[^a-z0-9]")


@dataclass(frozen=True, slots=True)
class SlotLimits:
    """How much a slot may hold: `max_` numbers count entries, `_chars` characters of one entry.

    Where a slot is full the oldest entry goes, of files the one touched longest ago.
    """

    # D16, D05: the rolling window of tool results.
    max_tool_results: int = 30
    # D04, D07, D08.
    max_failures: int = 25
    max_decisions: int = 25
    max_discoveries: int = 25
    # The specification leaves these open; they keep the state of a long session below a megabyte.
    max_user_requirements: int = 100
    max_plan_steps: int = 50
    max_environment: int = 20
    max_files: int = 100
    max_file_actions: int = 8
    max_assistant_notes: int = 12
    # Calls whose result has not come; an aborted one must not wait for ever.
    max_open_calls: int = 64

    # D06; a requirement shorter than the least is "yes" or "ok".
    task_chars: int = 400
    requirement_chars: int = 300
    least_requirement_chars: int = 5
    plan_step_chars: int = 400
    environment_chars: int = 200
    # D03: each side of an edit, and what a read says of its file.
    edit_chars: int = 300
    read_chars: int = 200
    path_chars: int = 500
    # D04, D05.
    failure_chars: int = 300
    shell_chars: int = 800
    failed_shell_chars: int = 1_500
    search_lines: int = 10
    search_chars: int = 600
    label_chars: int = 200
    # D07, D08: shorter captures say nothing.
    least_capture_chars: int = 10
    decision_chars: int = 120
    discovery_chars: int = 150
    # D09: of one message.
    note_sentences: int = 5
    note_chars: int = 500
    # What models filled in, all rounds together (D11).
    gap_chars: int = 8_000


DEFAULT_LIMITS = SlotLimits()


def kind_of(name: str) -> ToolKind:
    """What a tool of that name does, as every reader of calls takes it (`notes.names`)."""
    tool = tool_named(name)
    kinds: tuple[tuple[ToolKind, bool], ...] = (
        ("plan", tool.keeps_tasks),
        ("shell", tool.runs_scripts or tool.runs_commands or tool.runs_code),
        ("edit", tool.edits == "edited" or tool.patches),
        ("write", tool.edits == "created"),
        ("delete", tool.edits == "deleted"),
        ("read", tool.shows_files),
        ("search", tool.searches),
    )
    return next((kind for kind, is_so in kinds if is_so), "other")


def plain_name(name: str) -> str:
    """A tool's name as the classes hold it: "mcp__files__read_file" and "files.readFile" are "readfile"."""
    last = name.rpartition("__")[2].rpartition(".")[2]
    return _NOT_IN_NAMES.sub("", last.lower())
