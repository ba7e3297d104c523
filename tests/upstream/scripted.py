"""An upstream that does what a test tells it, over real HTTP/1.1 on a loopback socket.

Knows nothing of the program under test. A script is a coroutine over one `Wire`; it may cut, reset,
stall and send whatever bytes it likes. A request nobody scripted is answered 599 and fails the test
when the server closes.

    async with Scripted() as server:
        server.expects(replies(b'{"ok": true}'), cuts_after(10, b"..."))
        ...
        assert server.requests[0].header("authorization") == "Bearer k"
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType


@dataclass
class Request:
    """What arrived. `head` is the raw head; `gone` is set once the client has closed the connection."""

    head: bytes
    connection: int
    body: bytes = b""
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def method(self) -> str:
        return self.head.split(b" ", 1)[0].decode()

    @property
    def target(self) -> str:
        return self.head.split(b" ", 2)[1].decode()

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        lines = self.head.split(b"\r\n")[1:]
        return [(name, value.lstrip()) for name, _, value in (line.partition(b":") for line in lines) if name]

    def header(self, name: str) -> str | None:
        wanted = name.lower().encode()
        return next((value.decode() for key, value in self.headers if key.lower() == wanted), None)


class Wire:
    """One request's connection, seen from the server."""

    def __init__(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.request = request
        self._reader = reader
        self._writer = writer
        self.open = True

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def until(self, ending: bytes) -> bytes:
        """What the client sends up to and including `ending`."""
        return await self._reader.readuntil(ending)

    async def cut(self) -> None:
        """Close in order: the client sees the end of the stream."""
        self.open = False
        self._writer.close()

    async def reset(self) -> None:
        """Close with RST: the client sees a reset."""
        self.open = False
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def stall(self) -> None:
        """Say nothing more until the client has closed."""
        self.open = False
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(65536):
                pass
        self.request.gone.set()


Script = Callable[[Wire], Awaitable[None]]


class Scripted:
    """The server. `requests` are all that came, in order; `connections` counts those ever accepted."""

    def __init__(self, tls: ssl.SSLContext | None = None, *, reads_bodies: bool = True) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self.port = 0
        self.unexpected: list[Request] = []
        self._tls = tls
        self._reads_bodies = reads_bodies
        self._expected: deque[Script] = deque()
        self._otherwise: Script | None = None
        self._news = asyncio.Condition()
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._idle: set[asyncio.StreamWriter] = set()

    def expects(self, *scripts: Script) -> None:
        """The next requests, in the order of their arrival, are handled so."""
        self._expected.extend(scripts)

    def always(self, script: Script) -> None:
        """Every request that nothing else is scripted for is handled so."""
        self._otherwise = script

    async def arrived(self, count: int) -> Request:
        """The request number `count` (1 for the first), once its head is here."""
        async with asyncio.timeout(10), self._news:
            await self._news.wait_for(lambda: len(self.requests) >= count)
        return self.requests[count - 1]

    async def settled(self, connections: int) -> None:
        """Once no more than `connections` are open."""
        async with asyncio.timeout(10), self._news:
            await self._news.wait_for(lambda: len(self._open) <= connections)

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    async def close_idle(self) -> None:
        """Close every connection that waits for a request, as a server does after its idle time."""
        for writer in list(self._idle):
            writer.close()

    async def __aenter__(self) -> Scripted:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for writer, task in list(self._open.items()):
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*self._open.values(), return_exceptions=True)
        await self._server.wait_closed()
        if error is None:
            assert not self.unexpected, f"not expected: {[request.head for request in self.unexpected]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._open[writer] = task
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._one(self.connections, reader, writer):
                    pass
        finally:
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()
            del self._open[writer]
            async with self._news:
                self._news.notify_all()

    async def _one(self, connection: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        self._idle.add(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        finally:
            self._idle.discard(writer)
        request = Request(head[:-4], connection)
        async with self._news:
            self.requests.append(request)
            self._news.notify_all()
        wire = Wire(request, reader, writer)
        if self._reads_bodies:
            request.body = await _body(request, reader)
        script = self._expected.popleft() if self._expected else self._otherwise
        if script is None:
            self.unexpected.append(request)
            script = replies(b"not expected", status=599)
        await script(wire)
        return wire.open


async def _body(request: Request, reader: asyncio.StreamReader) -> bytes:
    if (request.header("transfer-encoding") or "").lower() != "chunked":
        return await reader.readexactly(int(request.header("content-length") or 0))
    pieces = []
    while size := int(await reader.readline(), 16):
        pieces.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(pieces)


Headers = Sequence[tuple[bytes, bytes]]


def head(status: int = 200, headers: Headers = ()) -> bytes:
    """A status line and headers, as bytes."""
    lines = [b"HTTP/1.1 %d Said" % status, *(name + b": " + value for name, value in headers)]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def replies(body: bytes, status: int = 200, headers: Headers = ()) -> Script:
    """A whole answer with its length."""

    async def script(wire: Wire) -> None:
        payload = b"" if wire.request.method == "HEAD" else body
        await wire.send(head(status, [*headers, (b"Content-Length", b"%d" % len(body))]) + payload)

    return script


def streams(pieces: Iterable[bytes], headers: Headers = ((b"Content-Type", b"text/event-stream"),)) -> Script:
    """A chunked answer, one chunk a piece, ended properly."""

    async def script(wire: Wire) -> None:
        await wire.send(head(200, [*headers, (b"Transfer-Encoding", b"chunked")]))
        for piece in pieces:
            await wire.send(chunk(piece))
        await wire.send(b"0\r\n\r\n")

    return script


def cuts_after(count: int, wire_bytes: bytes, *, reset: bool = False) -> Script:
    """The first `count` bytes of an answer as it would stand on the wire, then the end."""

    async def script(wire: Wire) -> None:
        await wire.send(wire_bytes[:count])
        await (wire.reset() if reset else wire.cut())

    return script


def stalls_after(wire_bytes: bytes) -> Script:
    """These bytes, then silence until the client closes."""

    async def script(wire: Wire) -> None:
        await wire.send(wire_bytes)
        await wire.stall()

    return script
