"""Compaction items of the Responses API that this program makes itself, and the answers that hold them.

The item's `encrypted_content` is opaque to clients and readable here: a client may send it back with any
later request, whichever upstream answers that one. Pure. Shapes as in the API reference ("Responses",
compact, `compaction_trigger`), 2026-11.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from palimpsest.core.wire.chat_answers import Usage
from palimpsest.core.wire.json_spans import raw_elements
from palimpsest.core.wire.json_text import decoded, encoded

KIND = "compaction"
TRIGGER = "compaction_trigger"
MANAGEMENT = "context_management"
# Tokens. Lower thresholds are ignored: instructions and tools alone take more.
LEAST_THRESHOLD = 1_000
# The prefix of our own `encrypted_content`. No upstream's has it: theirs is ciphertext in base64.
MARK = "palimpsest:1:"
_MARK = MARK.encode()


def item_of(summary: str, ident: str) -> dict[str, Any]:
    """The compaction item that carries `summary`."""
    text = MARK + base64.urlsafe_b64encode(summary.encode()).decode()
    return {"id": f"cmp_{ident}", "type": KIND, "encrypted_content": text}


def summary_in(item: Mapping[str, Any]) -> str | None:
    """The summary in an item made by `item_of`; None for any other item."""
    text = item.get("encrypted_content")
    if item.get("type") != KIND or not isinstance(text, str) or not text.startswith(MARK):
        return None
    try:
        summary = base64.b64decode(text.removeprefix(MARK).encode(), altchars=b"-_", validate=True)
        return summary.decode() or None
    except (binascii.Error, UnicodeError):
        return None


def threshold_in(management: object) -> int:
    """The lowest `compact_threshold` (tokens) of a request's `context_management`; 0 without any."""
    entries = management if isinstance(management, list) else ()
    stated = (entry.get("compact_threshold") for entry in entries if isinstance(entry, Mapping))
    return min(
        (tokens for tokens in stated if isinstance(tokens, int) and tokens >= LEAST_THRESHOLD), default=0
    )


def is_ours(raw: bytes) -> bool:
    """True for a message that is, or contains, a compaction item of this program's."""
    return _MARK in raw and any(summary is not None for _, summary in _summaries(raw))


def with_plain_summaries(raw: bytes) -> bytes:
    """A message's items as sent to an upstream: our compaction items become user messages with the summary.

    An answer is stored as the array of its items; the result has no brackets around it.
    """
    if _MARK not in raw:
        return raw[1:-1] if raw.startswith(b"[") else raw
    return b",".join(
        element if summary is None else encoded({"type": "message", "role": "user", "content": summary})
        for element, summary in _summaries(raw)
    )


def compaction_answer(
    head: Mapping[str, Any], kept: Sequence[bytes], item: Mapping[str, Any], usage: Usage
) -> dict[str, Any]:
    """The answer of `POST /responses/compact`: the kept messages, then the item.

    The messages have a type, an id, a status and content parts, as output items do.
    """
    output: list[Mapping[str, Any]] = []
    for number, raw in enumerate(kept):
        said = decoded(raw)
        content = said.get("content")
        parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
        named = {"id": f"msg_{head['id']}_{number}", "type": "message", "status": "completed"}
        output.append({**named, **said, "content": parts})
    return {**head, "object": "response.compaction", "output": [*output, item], "usage": _counts(usage)}


def triggered_answer(
    head: Mapping[str, Any], model: str, item: Mapping[str, Any], usage: Usage
) -> dict[str, Any]:
    """The answer to a request that ends with a `compaction_trigger`: the item alone."""
    state = {"status": "completed", "error": None, "incomplete_details": None, "instructions": None}
    tools = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "metadata": {}}
    response = {**head, "object": "response", "model": model, **state, **tools}
    return {**response, "output": [item], "usage": _counts(usage)}


def events_of(answer: Mapping[str, Any]) -> Iterator[bytes]:
    """An answer as the frames of an event stream."""
    begun = {**answer, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
    for place, item in enumerate(answer["output"]):
        at = {"output_index": place, "item": item}
        events += [{"type": f"response.output_item.{moment}", **at} for moment in ("added", "done")]
    events.append({"type": "response.completed", "response": answer})
    for number, event in enumerate(events):
        data = encoded({**event, "sequence_number": number})
        yield b"event: " + event["type"].encode() + b"\ndata: " + data + b"\n\n"


def _counts(usage: Usage) -> dict[str, Any]:
    read, written = usage.prompt_tokens or 0, usage.completion_tokens or 0
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + written,
    }


def _summaries(raw: bytes) -> Iterator[tuple[bytes, str | None]]:
    """The items of a message, each with the summary that this program put into it, if any."""
    for element in raw_elements(raw) if raw.startswith(b"[") else [raw]:
        item = decoded(element)
        yield element, summary_in(item) if isinstance(item, dict) else None
