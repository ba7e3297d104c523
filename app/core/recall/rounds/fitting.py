"""A result that must not push the prompt over the window, cut to what fits.

Pure. Knows nothing of windows: the room is given, and so is how tokens are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from app.core.recall.rounds.calls import Call, answered
from app.core.wire.json_text import decoded

# How often a limit is corrected towards its tokens: text is not evenly dense.
_ATTEMPTS = 8
_CORRECTION = 0.9


def fitted(
    call: Call, result: str, chars: int, room_tokens: int, count: Callable[[Mapping[str, Any]], int]
) -> tuple[bytes, int]:
    """The tool message that answers the call, and its tokens.

    Of the result at most `chars` characters, and fewer where the message took more than `room_tokens`; with
    no character left it is as short as it can be.
    """
    message = answered(call, result, chars)
    tokens = count(decoded(message))
    limit = min(chars, len(result))
    for attempt in range(_ATTEMPTS):
        if tokens <= room_tokens or not limit:
            break
        is_last = attempt == _ATTEMPTS - 1
        limit = 0 if is_last else int(limit * max(0, room_tokens) / tokens * _CORRECTION)
        message = answered(call, result, limit)
        tokens = count(decoded(message))
    return message, tokens
