"""A result that must not push the prompt over the window, cut to what fits.

Pure. Knows nothing of windows: the room is given, and so is how tokens are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.core.recall.rounds.calls import Call, answered
from app.core.wire.chat_request import Wire
from app.core.wire.json_text import decoded
from app.core.wire.responses.items import as_chat

# How often a limit is corrected towards its tokens: text is not evenly dense.
_ATTEMPTS = 8
_CORRECTION = 0.9


@dataclass(frozen=True, slots=True)
class Room:
    """What a result may take: characters, tokens in the count of its model, and on which wire it travels."""

    chars: int
    tokens: int
    count: Callable[[Mapping[str, Any]], int]
    wire: Wire = "chat"


def fitted(call: Call, result: str, room: Room) -> tuple[bytes, int]:
    """The message that answers the call, and its tokens.

    Of the result at most `room.chars` characters, and fewer where the message took more than `room.tokens`;
    with no character left it is as short as it can be.
    """
    message = answered(call, result, room.chars, room.wire)
    tokens = room.count(as_chat(decoded(message)))
    limit = min(room.chars, len(result))
    for attempt in range(_ATTEMPTS):
        if tokens <= room.tokens or not limit:
            break
        is_last = attempt == _ATTEMPTS - 1
        limit = 0 if is_last else int(limit * max(0, room.tokens) / tokens * _CORRECTION)
        message = answered(call, result, limit, room.wire)
        tokens = room.count(as_chat(decoded(message)))
    return message, tokens
