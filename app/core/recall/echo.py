"""What is only an echo of what is stored already: blocks of ours that were pasted, results of recall tools.

They are never found, and nothing is noted of them (C07, C08): a search that finds its own earlier results
finds nothing else in the end, and a summary of what was looked up tells as new what was said long ago. Knows
nothing of indexes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.core.history.message import Message
from app.core.recall.tool_schemas import NAMES
from app.core.summary.rolling.memory_block import MEMORY_TAG
from app.core.text.fence import DEFAULT_TAG
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
# What every echo has in its bytes, an escaped "<" included.
_SIGNS = (b"<", b"\\u003c", b"\\u003C", b"context_")


def may_echo(body: bytes) -> bool:
    """False for the bytes of most messages, without reading them as JSON."""
    return any(sign in body for sign in _SIGNS)


def without_echoes(message: Message) -> Message:
    """The message as facts are taken from it: blocks, results of recall tools and calls of them left out.

    Its text comes in parts as it was written, with a space where a block stood. `raw` stays.
    """
    if not may_echo(message.raw):
        return message
    fields = dict(message.fields)
    text = text_of(fields)
    pieces = [] if is_result(text) else pieces_of(text)
    if pieces != [text]:
        fields["content"] = _parts(pieces, fields.get("content"))
    told = fields.get("tool_calls")
    calls = told if isinstance(told, list | tuple) else ()
    own = [call for call in calls if not is_recall_tool(call)]
    if len(own) == len(calls):
        return replace(message, fields=fields) if pieces != [text] else message
    ids = tuple(call.get("id") for call in own if isinstance(call, Mapping))
    opened = tuple(ident for ident in message.calls if ident in ids)
    return replace(message, fields=fields | {"tool_calls": own}, calls=opened)


def without_blocks(text: str) -> str:
    """A text without the blocks in it; the text itself when there is none."""
    return " ".join(pieces_of(text))


def pieces_of(text: str) -> list[str]:
    """The pieces of a text between the blocks in it; the text alone when there is none. In linear time."""
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
    return [*pieces, text[start:]]


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


def _parts(pieces: list[str], content: object) -> list[dict[str, Any]]:
    """The pieces as text parts, white space between them; what is no text of `content` behind."""
    texts = [part for piece in pieces if piece.strip() for part in (" ", piece)][1:]
    others = [part for part in content if not _is_text(part)] if isinstance(content, list | tuple) else []
    return [*({"type": "text", "text": text} for text in texts), *others]


def _is_text(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "text"
