"""Messages that users pin by how they begin, so that pinning needs no other interface than the chat."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from palimpsest.core.history.message import Conversation
from palimpsest.core.view.masking import text_of
from palimpsest.core.wire.json_text import decoded
from palimpsest.core.wire.responses.items import as_chat

MARKS = ("[pin]", "remember for this session:")


def is_pin_body(role: str, body: bytes) -> bool:
    """True for a stored user message that begins with one of the marks, in any case, after blanks."""
    if not _may_be(role, body):
        return False
    fields = as_chat(decoded(body))
    return isinstance(fields, Mapping) and _is_marked(fields)


def text_pins(
    talk: Conversation, taken_back: Collection[bytes], room_tokens: int
) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Chain digests of pins, oldest first: those kept, and those that newer pins leave no room for.

    Of the pins that were not withdrawn each is kept that fits into `room_tokens`, newest first. One that is
    too large does not displace older ones that fit.
    """
    kept: list[bytes] = []
    left_out: list[bytes] = []
    for message, chain in zip(reversed(talk.messages), reversed(talk.chains), strict=True):
        if not _may_be(message.role, message.raw) or not _is_marked(message.fields) or chain in taken_back:
            continue
        if message.tokens <= room_tokens:
            room_tokens -= message.tokens
            kept.append(chain)
        else:
            left_out.append(chain)
    return tuple(reversed(kept)), tuple(reversed(left_out))


def _may_be(role: str, raw: bytes) -> bool:
    """False for most messages, from their bytes alone."""
    low = raw.lower() if role == "user" else b""
    return any(mark.encode() in low for mark in MARKS)


def _is_marked(fields: Mapping[str, Any]) -> bool:
    return text_of(fields).lstrip()[: max(map(len, MARKS))].lower().startswith(MARKS)
