"""Reads request bodies from the server, whole or piece by piece; logs each request at its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from palimpsest.errors import BodyTooLarge, ClientLeft, RequestTimeout
from palimpsest.proxy.incoming import ASGIApp, ASGIMessage, Receive, Scope, Send
from palimpsest.proxy.jobs import offload
from palimpsest.proxy.reports import Observer, RequestEntry, RequestLog, printable

# A body slower than this, on average over the idle time, times out: the default of Apache's mod_reqtimeout.
LEAST_BYTES_A_SECOND = 500
# How long the rest of a refused body is read and discarded: in all, and while nothing arrives. nginx's
# defaults (lingering_time, lingering_timeout).
_LINGER_SECONDS = 30.0
_LINGER_IDLE_SECONDS = 5.0
# In the scope: true until the request's body has been read to its end.
_UNREAD = "palimpsest.unread"


class ArrivingBody:
    """The pieces of one body. `finished` is true once the last one was read.

    It has at most `limit` bytes (None: any number) and may take any time as long as bytes arrive: it times
    out after `idle_seconds` without progress, not counting time in which no piece is requested.
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
        """True once the last piece was read."""
        return self._ended.is_set()

    async def ended(self) -> None:
        """Wait until the last piece was read."""
        await self._ended.wait()

    async def piece(self) -> bytes:
        """The next piece, perhaps empty.

        ClientLeft when the client hangs up, BodyTooLarge beyond the limit, RequestTimeout without progress.
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
        """The remaining pieces."""
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
    """The whole body; a Content-Length above `limit` is refused before any of the body is read."""
    body = ArrivingBody(scope, receive, limit, idle_seconds)
    if _announced(scope["headers"]) > limit:
        raise too_large()
    first = await body.piece()
    if body.finished:
        return first
    parts = [first]
    try:
        async for part in body:
            parts.append(part)  # noqa: PERF401  # a comprehension's list could not be cleared
        return await offload(sum(map(len, parts)), b"".join, parts)
    finally:
        # An error's traceback would hold them while the rest of the body is discarded.
        parts.clear()


def is_unread(scope: Scope) -> bool:
    """True when the request's body was not read to its end: the rest may still arrive."""
    return bool(scope.get(_UNREAD))


async def linger(receive: Receive) -> None:
    """Read and discard the rest of a refused body, for a limited time."""
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
    """The request's Content-Length; 0 without one."""
    return next((int(value) for name, value in headers if name == b"content-length" and value.isdigit()), 0)


# The keys of the log entry in a scope, and of our own error in the message that sends it.
ENTRY = "palimpsest.entry"
ERROR = "palimpsest.error"


class LoggedRequests:
    """ASGI middleware that logs requests below `/v1/` and `/s/`, and those to our own endpoints that failed.

    `observers` are called with each entry of the former as well, after those of the log.
    """

    def __init__(self, app: ASGIApp, log: RequestLog, observers: Sequence[Observer] = ()) -> None:
        self._app = app
        self._log = log
        self._observers = observers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, then log it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        entry = RequestEntry(
            method=printable(scope["method"]), path=_path(scope["path"]), headers=scope["headers"]
        )
        scope[ENTRY] = entry
        is_own = not scope["path"].startswith(("/v1/", "/s/"))
        if not is_own:
            self._log.begun()
        try:
            await self._app(scope, _hearing(entry, receive), _seeing(entry, send))
        finally:
            # The connection keeps the scope until its next request, and with it the whole turn.
            del scope[ENTRY]
            if is_own and entry.has_failed:
                self._log.write(entry)
            elif not is_own:
                self._noted(scope, entry)

    def _noted(self, scope: Scope, entry: RequestEntry) -> None:
        if spoken := scope.get("palimpsest.wire"):
            entry.event, entry.api = "exchange", spoken.name
        self._log.note(entry)
        for observe in self._observers:
            observe(entry)


def entry_of(scope: Scope) -> RequestEntry:
    """The request's log entry; a discarded one for requests that are not logged."""
    entry = scope.get(ENTRY)
    return entry if isinstance(entry, RequestEntry) else RequestEntry()


def _path(path: str) -> str:
    """Without the session's name, which is the client's text."""
    return printable("/v1/" + path.partition("/v1/")[2] if path.startswith("/s/") else path)


def _hearing(entry: RequestEntry, receive: Receive) -> Receive:
    async def heard() -> ASGIMessage:
        message = await receive()
        if message["type"] == "http.disconnect" and entry.end != "whole":
            entry.end = "left"
        return message

    return heard


def _seeing(entry: RequestEntry, send: Send) -> Send:
    async def seen(message: ASGIMessage) -> None:
        if message["type"] == "http.response.start":
            entry.status = message["status"]
            entry.request_id = _request_id(message)
            if error := message.pop(ERROR, None):
                entry.failed(error)
        elif message["type"] == "http.response.body":
            entry.bytes += len(message.get("body", b""))
            if not message.get("more_body", False) and entry.end != "left":
                entry.end = "whole"
        await send(message)

    return seen


def _request_id(message: ASGIMessage) -> str | None:
    for name, value in message.get("headers", ()):
        if name.lower() == b"x-request-id":
            return printable(value.decode("latin-1"), 100)
    return None
