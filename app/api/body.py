"""A request's body as it comes in from the server: whole and bounded, or piece by piece.

Knows nothing of what the bytes mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from app.errors import BodyTooLarge, ClientLeft, RequestTimeout
from app.proxy.asgi import ASGIMessage, Receive, Scope
from app.proxy.offload import offload

# A body that brings less, on average over the idle time, stands still: what Apache's mod_reqtimeout demands
# by default.
LEAST_BYTES_A_SECOND = 500
# How long the rest of a refused body is taken in and thrown away: altogether, and while nothing comes. What
# nginx does by default (lingering_time, lingering_timeout).
_LINGER_SECONDS = 30.0
_LINGER_IDLE_SECONDS = 5.0
# In the scope: true while the request's body has not been read to its end by whoever reads it.
_UNREAD = "palimpsest.unread"


class ArrivingBody:
    """The pieces of one body. `finished` is true once the last one was read.

    It has at most `limit` bytes, None: any number, and may take any time as long as it moves: it is given up
    when it stands still for `idle_seconds`, time in which nobody asks for a piece apart.
    """

    def __init__(self, scope: Scope, receive: Receive, limit: int | None, idle_seconds: float) -> None:
        self._scope = scope
        self._receive = receive
        self._limit = limit
        self._idle_seconds = self._patience = idle_seconds
        self._missing = self._due = LEAST_BYTES_A_SECOND * idle_seconds
        self._ended = asyncio.Event()
        scope[_UNREAD] = True

    @property
    def finished(self) -> bool:
        """True once nothing more will come."""
        return self._ended.is_set()

    async def ended(self) -> None:
        """Returns when somebody has read the last piece."""
        await self._ended.wait()

    async def piece(self) -> bytes:
        """The next piece, perhaps empty.

        ClientLeft when it breaks off, BodyTooLarge beyond the limit, RequestTimeout when it stands still.
        """
        message = await self._moved()
        if message["type"] == "http.disconnect":
            raise ClientLeft("The client left before its request was complete.")
        part: bytes = message.get("body", b"")
        self._count(len(part))
        if not message.get("more_body", False):
            self._ended.set()
            self._scope[_UNREAD] = False
        return part

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The pieces that are left."""
        while not self.finished:
            yield await self.piece()

    async def _moved(self) -> ASGIMessage:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(self._patience):
                return await self._receive()
        except TimeoutError:
            raise RequestTimeout("The request's body does not move any more.") from None
        finally:
            self._patience -= loop.time() - began

    def _count(self, size: int) -> None:
        self._missing -= size
        if self._missing <= 0:
            self._missing, self._patience = self._due, self._idle_seconds
        if self._limit is not None:
            self._limit -= size
            if self._limit < 0:
                raise too_large()


async def read_body(scope: Scope, receive: Receive, limit: int, idle_seconds: float) -> bytes:
    """The whole body; one that is announced as longer than `limit` is refused before any of it is read."""
    body = ArrivingBody(scope, receive, limit, idle_seconds)
    if _announced(scope["headers"]) > limit:
        raise too_large()
    first = await body.piece()
    if body.finished:
        return first
    parts = [first, *[part async for part in body]]
    return await offload(sum(map(len, parts)), b"".join, parts)


def is_unread(scope: Scope) -> bool:
    """True where reading the request's body was given up: the rest of it may still be on its way."""
    return bool(scope.get(_UNREAD))


async def linger(receive: Receive) -> None:
    """Takes in what is still coming of a refused body, for a while."""
    try:
        async with asyncio.timeout(_LINGER_SECONDS):
            is_coming = True
            while is_coming:
                async with asyncio.timeout(_LINGER_IDLE_SECONDS):
                    is_coming = (await receive()).get("more_body", False)
    except TimeoutError:
        return


def too_large() -> BodyTooLarge:
    """The error of a body beyond the limit."""
    return BodyTooLarge("The request's body is larger than this proxy accepts.")


def _announced(headers: Sequence[tuple[bytes, bytes]]) -> int:
    """The length that a request states of its body; 0 without one."""
    return next((int(value) for name, value in headers if name == b"content-length" and value.isdigit()), 0)
