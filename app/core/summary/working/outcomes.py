"""What came of a call: whether it failed and by which line (D04), and its output in short (D05).

Works on texts. Knows nothing of states beyond the note it makes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from app.core.notes.results import looked_at
from app.core.summary.working.clipping import clipped, clipped_line, clipped_middle
from app.core.summary.working.limits import SlotLimits
from app.core.summary.working.state import OpenCall, ToolNote

# Tools whose results quote files or answer in a word.
_QUOTING = frozenset({"read", "edit", "write", "delete", "search", "plan"})
# Commands that show texts, in which words of failure are content.
_SHOWING = re.compile(
    r"\s*(?:\Z|(?:cd|cat|bat|head|tail|less|more|nl|sed\s+-n|awk|grep|rg|ag|find|ls|tree|wc|jq|echo|sort"
    r"|git\s+(?:show|diff|log|grep|blame))\b)"
)
_THEN = re.compile(r"&&|\|\||[;\n]")
_COUNTED = re.compile(r"\s*found (\d+) (?:match|result|file|line)", re.IGNORECASE)
_NO_MATCH = re.compile(r"\s*(?:no (?:match|result|file)\w*(?: found)?\b|found 0 )", re.IGNORECASE)


def failure_in(text: str, call: OpenCall, limits: SlotLimits) -> str:
    """The line that says what went wrong, on one line; "" when the result looks fine (see `notes.results`).

    Results that quote files (reads, edits, searches, commands that show texts) fail only by how they begin.
    """
    seen = looked_at(text)
    if not seen.failed(quoting=call.kind in _QUOTING or _only_shows(call)):
        return ""
    return clipped_line(seen.error(), limits.failure_chars)


def tool_note(call: OpenCall, text: str, failed: bool, limits: SlotLimits) -> ToolNote:
    """The result in short: a search by its count and first lines, anything else by head and tail."""
    label = clipped_line(call.label, limits.label_chars)
    if call.kind == "search" and not failed:
        return ToolNote(label, _search_text(text, limits))
    most = limits.failed_shell_chars if failed else limits.shell_chars
    return ToolNote(label, clipped_middle(text.strip("\n").rstrip(), most), failed)


def shell_text(text: str) -> str:
    """What a shell printed, taken out of the JSON some tools wrap it in; a failing exit code leads it."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        found = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return text
    if not isinstance(found, dict):
        return text
    parts = [found[key] for key in ("stdout", "output", "stderr") if isinstance(found.get(key), str)]
    if not parts:
        return text
    code = _exit_code(found)
    lead = f"exit code {code}\n" if code else ""
    return lead + "\n".join(part.strip("\n") for part in parts if part.strip())


def _exit_code(found: Mapping[str, Any]) -> int:
    inner = found.get("metadata")
    places = (found, inner) if isinstance(inner, dict) else (found,)
    values = (place.get(key) for place in places for key in ("exit_code", "exitCode", "returncode", "code"))
    return next((value for value in values if isinstance(value, int)), 0)


def _only_shows(call: OpenCall) -> bool:
    """True for a command line no part of which does more than show a text."""
    return bool(call.command) and all(_SHOWING.match(part) for part in _THEN.split(call.command))


def _search_text(text: str, limits: SlotLimits) -> str:
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    counted = _COUNTED.match(text)
    if not lines or _NO_MATCH.match(text):
        return "0 matches"
    number = int(counted.group(1)) if counted else len(lines)
    count = f"{number} match{'' if number == 1 else 'es'}"
    shown = lines[1:] if counted else lines
    room = limits.search_chars - len(count) - 1
    return "\n".join((count, clipped("\n".join(shown[: limits.search_lines]), room))).rstrip()
