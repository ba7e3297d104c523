"""Where work for the processor is done: at once, or on a thread beside the event loop when it is much.

What is small is cheaper done at once. Beside the loop Python's threads take turns, so that others are served
while it goes on; a call into C that keeps the interpreter to itself still holds them up. What is handed over
must not change meanwhile. Whoever is cancelled leaves; the work goes on to its end, and nobody sees it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

from app.core.history.conversation import Conversation

P = ParamSpec("P")
T = TypeVar("T")

# Bytes. A body of as many takes 3 to 9 ms to read (msgspec, 35 ms a MB of unseen messages of 200 bytes).
INLINE_WEIGHT = 256 * 1024
# What a message costs beside its text, told as bytes: planning 2,000 small ones takes 30 ms.
MESSAGE_WEIGHT = 512
_TOKEN_WEIGHT = 4


class Weighed(Protocol):
    """A conversation, and the tokens of its whole prompt."""

    @property
    def conversation(self) -> Conversation:
        """Its messages."""

    @property
    def tokens(self) -> int:
        """The whole prompt's."""


async def offload(weight: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `work` returns or raises; done beside the event loop if `weight` is above the bound."""
    if weight <= INLINE_WEIGHT:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


def weight_of(subject: Weighed) -> int:
    """What looking at every message of a conversation weighs."""
    return _TOKEN_WEIGHT * subject.tokens + MESSAGE_WEIGHT * len(subject.conversation.messages)
