"""Messages that a user pins by writing so: who has nothing but a chat window can pin too.

Pure. Knows nothing of pins by hand, nor of how a pin stays in a view.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from app.core.budget.budget import Budget
from app.core.history.conversation import Conversation
from app.core.history.message import Message
from app.core.view.masking import text_of
from app.core.wire.json_text import decoded
from app.core.wire.responses.items import as_chat

MARKS = ("[pin]", "remember for this session:")


@dataclass(frozen=True, slots=True)
class TextPins:
    """Indexes of messages, oldest first: those that stay, and those for which newer ones leave no room."""

    kept: tuple[int, ...] = ()
    left_out: tuple[int, ...] = ()


def is_text_pin(message: Message) -> bool:
    """True for a user's message that begins with one of the marks, in any case, blanks before it apart."""
    return _may_be(message.role, message.raw) and _is_marked(message.fields)


def is_pin_body(role: str, body: bytes) -> bool:
    """The same of a stored message's exact bytes."""
    if not _may_be(role, body):
        return False
    fields = as_chat(decoded(body))
    return isinstance(fields, Mapping) and _is_marked(fields)


def text_pins(talk: Conversation, taken_back: Collection[bytes], room_tokens: int) -> TextPins:
    """The pins of a conversation that nobody has taken back: the newest first, each that fits `room_tokens`.

    One that is too large does not push out older ones that fit.
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
    """Tokens they may take: a share of what a compaction leaves to messages."""
    # One large message lifts the target of the moment, and the next turn lowers it again.
    target = min(budget.target_tokens, budget.carry_tokens)
    return max(0, int(share * (target - budget.fixed_tokens)))


def _may_be(role: str, raw: bytes) -> bool:
    """Most messages are told by their bytes, without their text being put together."""
    low = raw.lower() if role == "user" else b""
    return any(mark.encode() in low for mark in MARKS)


def _is_marked(fields: Mapping[str, Any]) -> bool:
    return text_of(fields).lstrip()[:_MOST].lower().startswith(MARKS)


_MOST = max(map(len, MARKS))
