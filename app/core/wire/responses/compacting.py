"""Compactions of the Responses API that this program makes itself: the item, and the answers that hold it.

The item's `encrypted_content` is opaque to clients and readable here: whoever sends it back through this
program is understood, whichever upstream answers then. Pure; knows nothing of how summaries are written.
Shapes as in the API reference ("Responses", compact, `compaction_trigger`), 2026-11.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.core.wire.answered import Usage
from app.core.wire.json_members import raw_elements
from app.core.wire.json_text import decoded, encoded

KIND = "compaction"
TRIGGER = "compaction_trigger"
MANAGEMENT = "context_management"
# Below it a threshold means nothing: instructions and tools alone take more (tokens).
LEAST_THRESHOLD = 1_000
# What stands before our own summaries, and in no upstream's: theirs are ciphertext in base64.
MARK = "palimpsest:1:"
_MARK = MARK.encode()


def item_of(summary: str, ident: str) -> dict[str, Any]:
    """The item that stands for what a summary tells of."""
    text = MARK + base64.urlsafe_b64encode(summary.encode()).decode()
    return {"id": f"cmp_{ident}", "type": KIND, "encrypted_content": text}


def summary_in(item: Mapping[str, Any]) -> str | None:
    """The summary in an item of ours; None for any other item."""
    text = item.get("encrypted_content")
    if item.get("type") != KIND or not isinstance(text, str) or not text.startswith(MARK):
        return None
    try:
        told = base64.b64decode(text.removeprefix(MARK).encode(), altchars=b"-_", validate=True)
        return told.decode() or None
    except (binascii.Error, UnicodeError):
        return None


def threshold_in(management: object) -> int:
    """The least `compact_threshold` (tokens) of a request's `context_management`; 0 without any."""
    entries = management if isinstance(management, list) else ()
    told = (entry.get("compact_threshold") for entry in entries if isinstance(entry, Mapping))
    return min(
        (tokens for tokens in told if isinstance(tokens, int) and tokens >= LEAST_THRESHOLD), default=0
    )


def is_ours(raw: bytes) -> bool:
    """True for a message that is, or holds, an item of ours."""
    return _MARK in raw and any(summary_in(item) is not None for item in _objects(raw))


def in_plain(raw: bytes) -> bytes:
    """A message's items as an upstream is sent them: of ours, which it could not read, the summary.

    Without the brackets of an answer, which is stored as the array of its items.
    """
    if _MARK not in raw:
        return raw[1:-1] if raw.startswith(b"[") else raw
    return b",".join(_plain(element) for element in _elements(raw))


def compaction_answer(
    head: Mapping[str, Any], kept: Sequence[bytes], item: Mapping[str, Any], usage: Usage
) -> dict[str, Any]:
    """The answer of `POST /responses/compact`: the messages that are kept, then the item."""
    output = [*_as_output(kept, str(head["id"])), item]
    return {**head, "object": "response.compaction", "output": output, "usage": _counts(usage)}


def triggered_answer(
    head: Mapping[str, Any], model: str, item: Mapping[str, Any], usage: Usage
) -> dict[str, Any]:
    """The answer to a request that ends with a `compaction_trigger`: the item alone."""
    state = {"status": "completed", "error": None, "incomplete_details": None, "instructions": None}
    tools = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "metadata": {}}
    told = {**head, "object": "response", "model": model, **state, **tools}
    return {**told, "output": [item], "usage": _counts(usage)}


def events_of(answer: Mapping[str, Any]) -> Iterator[bytes]:
    """An answer as the frames of a stream."""
    begun = {**answer, "status": "in_progress", "output": [], "usage": None}
    told: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
    for place, item in enumerate(answer["output"]):
        at = {"output_index": place, "item": item}
        told += [{"type": f"response.output_item.{moment}", **at} for moment in ("added", "done")]
    told.append({"type": "response.completed", "response": answer})
    for number, event in enumerate(told):
        data = encoded({**event, "sequence_number": number})
        yield b"event: " + event["type"].encode() + b"\ndata: " + data + b"\n\n"


def _as_output(kept: Sequence[bytes], ident: str) -> Iterator[dict[str, Any]]:
    """The client's messages with what items of answers have: a kind, an id, a state, a list of parts."""
    for number, raw in enumerate(kept):
        item = decoded(raw)
        content = item.get("content")
        parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
        named = {"id": f"msg_{ident}_{number}", "type": "message", "status": "completed"}
        yield {**named, **item, "content": parts}


def _counts(usage: Usage) -> dict[str, Any]:
    read, written = usage.prompt_tokens or 0, usage.completion_tokens or 0
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + written,
    }


def _elements(raw: bytes) -> list[bytes]:
    return raw_elements(raw) if raw.startswith(b"[") else [raw]


def _objects(raw: bytes) -> Iterator[dict[str, Any]]:
    values = (decoded(element) for element in _elements(raw))
    return (value for value in values if isinstance(value, dict))


def _plain(element: bytes) -> bytes:
    item = decoded(element)
    summary = summary_in(item) if isinstance(item, dict) else None
    return element if summary is None else encoded({"type": "message", "role": "user", "content": summary})
