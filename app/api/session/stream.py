"""Events of a session as a stream of server-sent events (HTML standard, 9.2).

Knows nothing of who may see them. The store is asked again and again: on PostgreSQL another server may
have written what is to be told.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from fastapi import Response

from app.errors import ServerBusy
from app.proxy.asgi import Receive, Scope, Send
from app.proxy.client import Client
from app.storage.contract import Store
from app.storage.journal import StoredEvent

_PAGE = 100
_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-accel-buffering", b"no"),
)


@dataclass(frozen=True, slots=True)
class Pace:
    """Times of a stream, in seconds."""

    # Events are made at the pace of turns.
    poll_seconds: float = 1.0
    # Proxies on the way close what is silent for longer, the strictest after 30 seconds or so.
    keep_alive_seconds: float = 15.0
    # Then the stream ends, and the client comes back: a key that was revoked stops working.
    life_seconds: float = 3_600.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events: those of a session behind `after`, of these types, or of all."""

    namespace: str
    session: str
    after: int
    types: tuple[str, ...]

    def after_seen(self, seen: int | None) -> Wanted:
        """The same, behind what the client saw last."""
        return self if seen is None else replace(self, after=seen)


class EventStreams:
    """The streams that are open, at most `most`, half of them of one namespace (H05).

    All of them end when `ended` is set.
    """

    def __init__(self, store: Store, most: int, ended: asyncio.Event, pace: Pace | None = None) -> None:
        self._store = store
        self._pace = pace or Pace()
        self._most = most
        self._ended = ended
        self._open: Counter[str] = Counter()

    def response(self, wanted: Wanted) -> Response:
        """What streams; ServerBusy, as it is sent, when as many as are allowed are open."""
        return _Stream(self, wanted)

    async def run(self, wanted: Wanted, client: Client) -> None:
        """The stream, to its end."""
        if self._open.total() >= self._most:
            raise ServerBusy("As many streams of events as are allowed are open; try again soon.")
        whose = wanted.namespace
        if self._open[whose] >= (self._most + 1) // 2:
            raise ServerBusy("As many streams of events as one caller may have are open; try again soon.")
        self._open[whose] += 1
        try:
            async with client.attended():
                await client.start(200, _HEADERS)
                async for piece in self._pieces(wanted):
                    await client.body(piece)
                await client.end()
        finally:
            self._open[whose] -= 1
            # Namespaces come and go; those without a stream are not kept.
            self._open += Counter()

    async def _pieces(self, wanted: Wanted) -> AsyncIterator[bytes]:
        now = asyncio.get_running_loop().time
        ends = now() + self._pace.life_seconds
        # Whoever opens a stream learns at once that it is open.
        yield b": open\n\n"
        spoken = now()
        while not self._ended.is_set() and now() < ends:
            rows = await self._store.events(
                wanted.namespace, wanted.session, wanted.after, _PAGE, wanted.types
            )
            if rows:
                yield b"".join(map(_message, rows))
                wanted, spoken = replace(wanted, after=rows[-1].seq), now()
            elif now() - spoken >= self._pace.keep_alive_seconds:
                yield b": still here\n\n"
                spoken = now()
            if len(rows) < _PAGE:
                await self._pause()

    async def _pause(self) -> None:
        waiting = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({waiting}, timeout=self._pace.poll_seconds)
        finally:
            waiting.cancel()


class _Stream(Response):
    """A response without an end of its own."""

    def __init__(self, streams: EventStreams, wanted: Wanted) -> None:
        super().__init__()
        self._streams = streams
        self._wanted = wanted

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        await self._streams.run(self._wanted, Client(receive, send))


def _message(stored: StoredEvent) -> bytes:
    """One event. JSON has no line breaks of its own, but a payload is whatever was stored."""
    lines = stored.event.payload.replace(b"\r", b"").split(b"\n")
    data = b"".join(b"data: " + line + b"\n" for line in lines)
    return b"id: %d\nevent: %s\n%s\n" % (stored.seq, stored.event.type.encode(), data)
