"""What is only an echo of what is stored already: blocks of ours that were pasted, results of recall tools.

They are never found (C07, C08): a search that finds its own earlier results finds nothing else in the end.
Knows nothing of indexes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from app.core.recall.tool_schemas import NAMES
from app.core.summary.fence import DEFAULT_TAG
from app.core.summary.rolling.memory_block import MEMORY_TAG
from app.core.view.masking import text_of
from app.core.view.presets import PRESETS

# Blocks that are put into prompts by us or by programs like us, and come back in what clients send.
ECHO_TAGS: frozenset[str] = frozenset(
    {
        DEFAULT_TAG,
        MEMORY_TAG,
        "memory_recall",
        "compaction_summary",
        "shared_context",
        "user_profile",
        "structured_memory",
        "recall_hints",
        *(policy.summary_tag for policy in PRESETS.values()),
    }
)
_FLAGS = re.IGNORECASE | re.ASCII
_OPENING = re.compile(rf"<({'|'.join(sorted(map(re.escape, ECHO_TAGS)))})>", _FLAGS)
_CLOSING: Mapping[str, re.Pattern[str]] = {
    tag: re.compile(rf"</{re.escape(tag)}>", _FLAGS) for tag in ECHO_TAGS
}
# How a result of ours begins, wherever a client has put it: results.py writes this member first.
_RESULT = re.compile(rf'\{{\s*"tool"\s*:\s*"(?:{"|".join(sorted(NAMES))})"')
# A result stands in a wrapper of so many characters at most ("[{"type":"text","text":"...").
_WRAPPER_CHARS = 200
_ESCAPED = '\\"'


def without_blocks(text: str) -> str:
    """A text without the blocks in it; the text itself when there is none. In linear time."""
    pieces: list[str] = []
    start = at = 0
    unclosed: set[str] = set()
    while (opening := _OPENING.search(text, at)) is not None:
        tag, at = opening[1].lower(), opening.end()
        # A tag that is closed nowhere behind one place is closed nowhere behind a later one.
        closing = None if tag in unclosed else _CLOSING[tag].search(text, at)
        if closing is None:
            unclosed.add(tag)
        else:
            pieces.append(text[start : opening.start()])
            start = at = closing.end()
    return " ".join((*pieces, text[start:])) if pieces else text


def is_echo(fields: Mapping[str, Any]) -> bool:
    """True for a message that is blocks alone, the result of a recall tool, or calls for recall alone."""
    text = text_of(fields)
    if not text.strip():
        return is_recall_call(fields)
    if is_result(text):
        return True
    return not without_blocks(text).strip()


def is_result(text: str) -> bool:
    """True for the result of a recall tool, also one that a client has wrapped."""
    return _RESULT.search(text[:_WRAPPER_CHARS].replace(_ESCAPED, '"')) is not None


def is_recall_call(fields: Mapping[str, Any]) -> bool:
    """True when the message calls recall tools and no others."""
    calls = fields.get("tool_calls")
    return isinstance(calls, list) and bool(calls) and all(is_recall_tool(call) for call in calls)


def is_recall_tool(call: object) -> bool:
    """True for a call of ours; clients put the server's name before the tool's ("mcp__palimpsest__...")."""
    called = call.get("function") if isinstance(call, Mapping) else None
    name = called.get("name") if isinstance(called, Mapping) else None
    return isinstance(name, str) and name.endswith(tuple(NAMES))
