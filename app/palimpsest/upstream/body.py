"""The body of an outgoing request, which records whether any byte of it may have been sent.

`client` decides by these records whether a request may be sent again.
"""

from __future__ import annotations

import select
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

# Bytes per write: large enough that a 4 MB body takes 16 writes, small enough that one body does not
# block the event loop. Each write waits for the socket's buffer.
WRITE_BYTES = 256 * 1024

# Poll events of a connection that the other side has closed. POLLRDHUP means that it has sent FIN. Unread
# data is not such an event: TLS 1.3 servers send session tickets at any time.
_CLOSED_EVENTS = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)


class StaleConnection(OSError):
    """The upstream closed the connection before a byte of this request was written."""


class OutgoingBody(Payload):
    """A body of known bytes, or of bytes still arriving from the client.

    `started` is true once a byte of the request may have left this process (its head too: aiohttp holds it
    back until the first write of the body). `failure` is the exception that the client's iterator raised, so
    that a client's disconnect is never reported as the upstream's. `when_sent` is called once a body of known
    bytes has been written.
    """

    def __init__(self, source: bytes | AsyncIterator[bytes], length: int | None) -> None:
        super().__init__(source)
        self._source = source
        self._size = len(source) if isinstance(source, bytes) else length
        self._autoclose = True
        self.started = False
        self.failure: Exception | None = None
        self.when_sent: Callable[[], None] | None = None

    @property
    def is_arriving(self) -> bool:
        """True for a body that is streamed from the client."""
        return not isinstance(self._source, bytes)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:  # noqa: ARG002 - aiohttp's signature
        """Required by aiohttp's interface; never called here."""
        raise TypeError("a request body is never decoded")

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send the body. Raises StaleConnection when the connection is found closed.

        Raises ValueError when a streamed body does not have the length that was announced.
        """
        if _is_closed(writer):
            raise StaleConnection("closed by the upstream while idle")
        self.started = True
        if isinstance(self._source, bytes):
            for start in range(0, len(self._source), WRITE_BYTES):
                await writer.write(self._source[start : start + WRITE_BYTES])
            if self.when_sent is not None:
                self.when_sent()
            return
        self._consumed = True
        sent = 0
        async for chunk in self._arriving(self._source):
            sent += len(chunk)
            await writer.write(chunk)
        if self._size is not None and sent != self._size:
            self.failure = ValueError(f"the body has {sent} bytes, its header said {self._size}")
            raise self.failure

    async def _arriving(self, source: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        with ExitStack() as stack:
            stack.push(self._keep_failure)
            async for chunk in source:
                if chunk:
                    yield chunk

    def _keep_failure(self, _: object, error: BaseException | None, __: object) -> None:
        """Store an exception of the body's source; it propagates to aiohttp, which wraps it."""
        if isinstance(error, Exception):
            self.failure = error


def _is_closed(writer: AbstractStreamWriter) -> bool:
    transport = writer.transport
    if transport is None or transport.is_closing():
        return True
    if (sock := transport.get_extra_info("socket")) is None:
        return False
    poll = select.poll()
    poll.register(sock.fileno(), _CLOSED_EVENTS)
    return bool(poll.poll(0))
