"""Messages that users pin by how they begin, so that pinning needs no other interface than the chat."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from palimpsest.core.budget.budget import Budget
from palimpsest.core.history.message import Conversation, Message
from palimpsest.core.view.masking import text_of
from palimpsest.core.wire.json_text import decoded
from palimpsest.core.wire.responses.items import as_chat

MARKS = ("[pin]", "remember for this session:")


@dataclass(frozen=True, slots=True)
class TextPins:
    """Indexes of pinned messages, oldest first: those kept, and those that newer pins leave no room for."""

    kept: tuple[int, ...] = ()
    left_out: tuple[int, ...] = ()


def is_text_pin(message: Message) -> bool:
    """True for a user message that begins with one of the marks, in any case, after optional blanks."""
    return _may_be(message.role, message.raw) and _is_marked(message.fields)


def is_pin_body(role: str, body: bytes) -> bool:
    """As `is_text_pin`, for a stored message's exact bytes."""
    if not _may_be(role, body):
        return False
    fields = as_chat(decoded(body))
    return isinstance(fields, Mapping) and _is_marked(fields)


def text_pins(talk: Conversation, taken_back: Collection[bytes], room_tokens: int) -> TextPins:
    """The pins of a conversation that were not withdrawn: newest first, each that fits into `room_tokens`.

    One that is too large does not displace older ones that fit.
    """
    kept, left_out = [], []
    for index in range(len(talk.messages) - 1, -1, -1):
        message = talk.messages[index]
        if not is_text_pin(message) or talk.chains[index] in taken_back:
            continue
        if message.tokens <= room_tokens:
            room_tokens -= message.tokens
            kept.append(index)
        else:
            left_out.append(index)
    return TextPins(tuple(reversed(kept)), tuple(reversed(left_out)))


def room_for_text_pins(budget: Budget, share: float) -> int:
    """Tokens that text pins may take: a share of what a compaction leaves to messages."""
    return max(0, int(share * (budget.target_tokens - budget.fixed_tokens)))


def _may_be(role: str, raw: bytes) -> bool:
    """False for most messages, from their bytes alone."""
    low = raw.lower() if role == "user" else b""
    return any(mark.encode() in low for mark in MARKS)


def _is_marked(fields: Mapping[str, Any]) -> bool:
    return text_of(fields).lstrip()[:_MOST].lower().startswith(MARKS)


_MOST = max(map(len, MARKS))
