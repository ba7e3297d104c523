"""A request's body as it comes in from the server: whole and bounded, or piece by piece.

Knows nothing of what the bytes mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from app.errors import BodyTooLarge, ClientLeft
from app.proxy.asgi import Receive


class ArrivingBody:
    """The pieces of one body, at most `limit` bytes. `finished` is true once the last one was read."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._ended = asyncio.Event()

    @property
    def finished(self) -> bool:
        """True once nothing more will come."""
        return self._ended.is_set()

    async def ended(self) -> None:
        """Returns when somebody has read the last piece."""
        await self._ended.wait()

    async def piece(self) -> bytes:
        """The next piece, perhaps empty. ClientLeft when it breaks off, BodyTooLarge beyond the limit."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft("The client left before its request was complete.")
        part: bytes = message.get("body", b"")
        self._limit -= len(part)
        if self._limit < 0:
            raise BodyTooLarge("The request's body is larger than this proxy accepts.")
        if not message.get("more_body", False):
            self._ended.set()
        return part

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The pieces that are left."""
        while not self.finished:
            yield await self.piece()


async def read_body(receive: Receive, limit: int) -> bytes:
    """The whole body."""
    body = ArrivingBody(receive, limit)
    first = await body.piece()
    if body.finished:
        return first
    return b"".join([first, *[part async for part in body]])
