"""The client's side of one exchange: sends to the client and detects its disconnect.

A disconnect cancels the exchange, so that the upstream stops generating. Whatever is cancelled must record
what it has received.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from palimpsest.proxy.incoming import Receive, Send
from palimpsest.proxy.reports import RequestEntry

# Answers that never have a body, whatever their headers say (RFC 9110, 6.4.1).
BODILESS = frozenset({204, 304})


class Client:
    """A client that waits for an answer. `started` is true once the status line was sent, with `status`.

    `entry` is the log entry of its request.
    """

    def __init__(self, receive: Receive, send: Send, entry: RequestEntry | None = None) -> None:
        self.entry = entry or RequestEntry()
        self._receive = receive
        self._send = send
        self._attended = False
        self._gone = False
        self._done = False
        self.started = False
        self.status: int | None = None

    @asynccontextmanager
    async def attended(self, after: Callable[[], Awaitable[None]] | None = None) -> AsyncIterator[Client]:
        """Context manager that cancels its body when the client disconnects and suppresses that cancellation.

        Nested uses add nothing. It receives from the client, which nothing else may do meanwhile; it begins
        once `after` has returned.
        """
        if self._attended:
            yield self
            return
        self._attended = True
        owner = asyncio.current_task()
        assert owner is not None
        watch = asyncio.get_running_loop().create_task(self._watch(owner, after))
        try:
            yield self
        except asyncio.CancelledError:
            if not self._gone or owner.uncancel() > 0:
                raise
        finally:
            self._done = True
            watch.cancel()

    async def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Send the status line and the headers."""
        self.started = True
        self.status = status
        if status in BODILESS:
            # A 304 may state the length of the body it omits; the ASGI server would wait for those bytes.
            headers = [header for header in headers if header[0].lower() != b"content-length"]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def body(self, data: bytes) -> None:
        """Send more of the body; waits while the client reads slower than we write."""
        if data:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """Send the last bytes; from now on a disconnect is ignored."""
        self._done = True
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def _watch(self, owner: asyncio.Task[object], after: Callable[[], Awaitable[None]] | None) -> None:
        if after is not None:
            await after()
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                break
        if not self._done:
            self._gone = True
            owner.cancel()
