"""Conversations for the summary's tests, written as one says them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from palimpsest.core.history.message import Message
from palimpsest.core.summary.source import SummarySource

ROOMY = 4_000


def count(text: str) -> int:
    """About what a tokenizer says: a token for four characters, more for a long word."""
    return (len(text) + 3) // 4


def message(fields: dict[str, Any]) -> Message:
    raw = json.dumps(fields).encode()
    digest = hashlib.sha256(raw).digest()
    calls = tuple(call["id"] for call in fields.get("tool_calls", ()))
    return Message(
        raw=raw,
        digest=digest,
        role=fields["role"],
        canonical=digest,
        tokens=count(raw.decode()),
        fields=fields,
        calls=calls,
        answers=fields.get("tool_call_id"),
    )


def user(text: Any) -> Message:
    return message({"role": "user", "content": text})


def says(text: str) -> Message:
    return message({"role": "assistant", "content": text})


def calls(name: str, ident: str = "c1", text: str | None = None, **arguments: Any) -> Message:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": ident, "type": "function", "function": function}
    return message({"role": "assistant", "content": text, "tool_calls": [call]})


def result(text: str, ident: str = "c1") -> Message:
    return message({"role": "tool", "tool_call_id": ident, "content": text})


def source(
    messages: Sequence[Message], *, since: int = 0, previous: str = "", tail: Sequence[Message] = ()
) -> SummarySource:
    """The source of a fold of `messages`, named by digests that grow with the past."""
    past = b""
    folded = []
    for each in messages:
        past = hashlib.sha256(past + each.digest).digest()
        folded.append((past, each))
    return SummarySource(folded=tuple(folded), since=since, previous=previous, tail=tuple(tail))
