"""The client's side of one exchange: sends to it, and notices when it leaves.

Knows nothing of what is sent. A client that leaves cancels the exchange, so that the upstream is not
asked to write what nobody reads; what has been said until then is recorded by whoever is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from app.proxy.asgi import Receive, Send
from app.proxy.request_log import RequestEntry

# Answers that never have a body, whatever their headers say (RFC 9110, 6.4.1).
BODILESS = frozenset({204, 304})


class Client:
    """One waiting client. `started` is true once the status line has gone out, `status` is its number.

    `entry` is what is logged of its request.
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
        """While it lasts, the client's leaving cancels the current task; that end is silent.

        Within another of its kind it adds nothing. It reads from the client, so nobody else may; when
        somebody still does, it begins `after` that.
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
        """The status line and the headers go out."""
        self.started = True
        self.status = status
        if status in BODILESS:
            # A 304 may state the length of what it does not send; the server would wait for those bytes.
            headers = [header for header in headers if header[0].lower() != b"content-length"]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def body(self, data: bytes) -> None:
        """More of the body goes out; waits while the client reads slower than we write."""
        if data:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """The last bytes go out; after this the client's leaving means nothing."""
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
