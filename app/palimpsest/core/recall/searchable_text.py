"""The searchable text of stored messages, without recall output.

Recall output repeats stored messages and comes back in what clients send: summaries, memory blocks, and
recall calls with their results. It is neither searched nor used for notes (C07, C08): searches would end up
finding their own earlier results only, and summaries would report old facts as new.

The text of a message without calls is the one that `GET /api/context` pages through. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from palimpsest.core.history.message import Message
from palimpsest.core.presets import PRESETS
from palimpsest.core.recall.tool_calls import NAMES
from palimpsest.core.recall.words import Words
from palimpsest.core.summary.memory_block import MEMORY_TAG
from palimpsest.core.text.fence import DEFAULT_TAG, unfenced
from palimpsest.core.view.masking import text_of
from palimpsest.core.wire.json_text import decoded
from palimpsest.core.wire.responses.items import as_chat

# Characters of one text that are searched: two million tokens, more than any window holds.
MOST_CHARS = 8_000_000


def message_text(body: bytes) -> str:
    """The text of a message's exact bytes, followed by its tool calls; "" if it has neither."""
    return whole_text(body)[:MOST_CHARS]


def whole_text(body: bytes) -> str:
    """As `message_text`, without its limit."""
    fields = _fields_in(body)
    return "\n".join(filter(None, (text_of(fields), *_calls(fields))))


def _fields_in(body: bytes) -> Mapping[str, Any]:
    """The message as chat completions have it; empty for what is no message."""
    fields = as_chat(decoded(body))
    return fields if isinstance(fields, Mapping) else {}


def name_in(body: bytes) -> str:
    """Whom a user's or assistant's message names as its speaker, in its `name`; "" for most."""
    fields = decoded(body) if b'"name"' in body else None
    if not isinstance(fields, Mapping) or fields.get("role") not in ("user", "assistant"):
        return ""
    return str(fields.get("name", ""))


def own_text(body: bytes) -> str:
    """The text of a message that is searched: `message_text` without recall output (C07)."""
    if not may_hold_recall_output(body):
        return message_text(body)
    fields = _fields_in(body)
    if is_recall_output(fields):
        return ""
    said = without_blocks(text_of(fields))
    return "\n".join(filter(None, (said, *_calls(fields, recall=False))))[:MOST_CHARS]


def index_words(texts: Sequence[tuple[bytes, bool]]) -> list[list[str]]:
    """The words that each message is found by, or each summary where the flag is set, with repetitions."""
    words = known_words()
    return [words.of(summary_text(body) if is_summary else own_text(body)) for body, is_summary in texts]


@cache
def known_words() -> Words:
    """The words of what this process has read for the index; `cache_clear` forgets them (P6)."""
    return Words()


def is_recall_output_body(body: bytes) -> bool:
    """True for the bytes of a message that is nothing but recall output (C08)."""
    return may_hold_recall_output(body) and is_recall_output(_fields_in(body))


def _calls(fields: Mapping[str, Any], *, recall: bool = True) -> list[str]:
    value = fields.get("tool_calls")
    # Clients and upstreams may send any shape.
    texts = []
    for call in value if isinstance(value, list) else ():
        if isinstance(call, Mapping) and (recall or not is_recall_tool(call)):
            called = call.get("function") or call.get("custom")
            fields = called if isinstance(called, Mapping) else {}
            said = fields.get("arguments", fields.get("input", ""))
            texts.append(f"{fields.get('name', '')} {said if isinstance(said, str) else ''}".strip())
    return texts


def summary_text(body: bytes) -> str:
    """The text of a compaction's summary."""
    return unfenced(body.decode("utf-8", "surrogatepass"))


# Blocks that this program, or others like it, put into prompts, and that clients may send back.
RECALL_OUTPUT_TAGS: frozenset[str] = frozenset(
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
_OPENING = re.compile(rf"<({'|'.join(sorted(map(re.escape, RECALL_OUTPUT_TAGS)))})>", _FLAGS)
_CLOSING: Mapping[str, re.Pattern[str]] = {
    tag: re.compile(rf"</{re.escape(tag)}>", _FLAGS) for tag in RECALL_OUTPUT_TAGS
}
# The beginning of a recall result: `tool_results` writes this member first.
_RESULT = re.compile(rf'\{{\s*"tool"\s*:\s*"(?:{"|".join(sorted(NAMES))})"')
# Characters of a client's wrapper before a result, at most ("[{"type":"text","text":"...").
_WRAPPER_CHARS = 200
_ESCAPED = '\\"'
# All recall output has one of these in its bytes.
_MARKERS = (b"<", b"\\u003c", b"\\u003C", b"context_")


def may_hold_recall_output(body: bytes) -> bool:
    """False if the bytes hold no recall output, as in most messages; a check without parsing."""
    return any(sign in body for sign in _MARKERS)


def without_recall_output(message: Message) -> Message:
    """The message without blocks, recall results and recall calls, for taking notes.

    Its text becomes parts with a space in place of each block. `raw` stays unchanged.
    """
    if not may_hold_recall_output(message.raw):
        return message
    fields = dict(message.fields)
    text = text_of(fields)
    pieces = [] if is_result(text) else pieces_of(text)
    if pieces != [text]:
        # Text parts with a space between them, then the parts that are not text.
        texts = [part for piece in pieces if piece.strip() for part in (" ", piece)][1:]
        content = fields.get("content")
        others = [
            part
            for part in (content if isinstance(content, list | tuple) else ())
            if not (isinstance(part, Mapping) and part.get("type") == "text")
        ]
        fields["content"] = [*({"type": "text", "text": text} for text in texts), *others]
    value = fields.get("tool_calls")
    calls = value if isinstance(value, list | tuple) else ()
    own = [call for call in calls if not is_recall_tool(call)]
    if len(own) == len(calls):
        return replace(message, fields=fields) if pieces != [text] else message
    ids = tuple(call.get("id") for call in own if isinstance(call, Mapping))
    opened = tuple(ident for ident in message.calls if ident in ids)
    return replace(message, fields=fields | {"tool_calls": own}, calls=opened)


def without_blocks(text: str) -> str:
    """A text without its blocks; unchanged if it has none."""
    return " ".join(pieces_of(text))


def pieces_of(text: str) -> list[str]:
    """The pieces of a text between its blocks; the whole text if it has none. In linear time."""
    pieces: list[str] = []
    start = at = 0
    unclosed: set[str] = set()
    while (opening := _OPENING.search(text, at)) is not None:
        tag, at = opening[1].lower(), opening.end()
        # A tag without a closing tag after one place has none after a later place.
        closing = None if tag in unclosed else _CLOSING[tag].search(text, at)
        if closing is None:
            unclosed.add(tag)
        else:
            pieces.append(text[start : opening.start()])
            start = at = closing.end()
    return [*pieces, text[start:]]


def is_recall_output(fields: Mapping[str, Any]) -> bool:
    """True for a message of nothing but blocks, a recall result, or calls of recall tools and no others."""
    text, calls = text_of(fields), fields.get("tool_calls")
    if not text.strip():
        return isinstance(calls, list) and bool(calls) and all(map(is_recall_tool, calls))
    return is_result(text) or not without_blocks(text).strip()


def is_result(text: str) -> bool:
    """True for a recall result, also one that a client has wrapped."""
    return _RESULT.search(text[:_WRAPPER_CHARS].replace(_ESCAPED, '"')) is not None


def is_recall_tool(call: object) -> bool:
    """True for a call of a recall tool; MCP clients prefix the server's name ("mcp__palimpsest__...")."""
    called = call.get("function") if isinstance(call, Mapping) else None
    name = called.get("name") if isinstance(called, Mapping) else None
    return isinstance(name, str) and name.endswith(tuple(NAMES))
