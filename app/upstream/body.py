"""The request body on its way out, written so that we know whether a byte of it has left.

Knows nothing of answers, pools or retries: it records what happened, `client` decides.
"""

from __future__ import annotations

import select
from collections.abc import AsyncIterator, Callable
from types import TracebackType

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

# Bytes handed to the socket at a time: large enough that a 4 MB body is 16 writes, small enough
# that one body never holds the loop, and the socket's own buffer is awaited in between.
WRITE_BYTES = 256 * 1024

# What the kernel reports of a connection whose other side is gone. POLLRDHUP is "the peer has sent
# FIN"; unread data alone is not listed, since TLS 1.3 servers send session tickets at any time.
_GONE = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)


class StaleConnection(OSError):
    """The upstream had closed the connection before a byte of this request was written."""


class RequestBody(Payload):
    """A body of known bytes, or of bytes still arriving from the client.

    `started` is true once a byte of the request (head included: aiohttp holds the head back until
    the first body write) may have left this process. `failure` is what the client's own iterator
    raised, so that a client's hang-up is never reported as the upstream's. `when_sent` is called once a
    body of known bytes is on its way.
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
        """True for a body that is still on its way from the client."""
        return not isinstance(self._source, bytes)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:  # noqa: ARG002 - aiohttp's signature
        """Required by the interface; a body is bytes here and never text."""
        raise TypeError("a request body is never decoded")

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send the whole body; part of aiohttp's interface."""
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Send the body, at most `content_length` bytes of it, refusing a connection found dead."""
        if _is_gone(writer):
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
        if content_length is not None and sent != content_length:
            self.failure = ValueError(f"the body has {sent} bytes, its header said {content_length}")
            raise self.failure

    async def _arriving(self, source: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        with _Noted(self):
            async for chunk in source:
                if chunk:
                    yield chunk


class _Noted:
    """Notes on the body what its source raised; the exception goes on to aiohttp, which wraps it."""

    def __init__(self, body: RequestBody) -> None:
        self._body = body

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self._body.failure = error


def _is_gone(writer: AbstractStreamWriter) -> bool:
    transport = writer.transport
    if transport is None or transport.is_closing():
        return True
    sock = transport.get_extra_info("socket")
    if sock is None:
        return False
    poll = select.poll()
    poll.register(sock.fileno(), _GONE)
    return any(events & _GONE for _, events in poll.poll(0))
