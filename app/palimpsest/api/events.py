"""The events of a session as a stream of server-sent events (A23).

A stream polls the store, since on PostgreSQL another server may write events.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from palimpsest.api.callers import ApiCaller
from palimpsest.api.replies import Reply
from palimpsest.errors import ServerBusy
from palimpsest.proxy.incoming import Receive, Scope, Send
from palimpsest.proxy.reports import Client
from palimpsest.storage.journal import EventRow

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

    # Events are no more frequent than turns.
    poll_seconds: float = 1.0
    # Intermediate proxies close silent connections, the strictest after some 30 seconds.
    keep_alive_seconds: float = 15.0
    # Then the stream ends and the client reconnects.
    life_seconds: float = 3_600.0


_PACE = Pace()


class EventStream(Reply[Any]):
    """A stream of the caller's events of a session after `after`, of these types, or of all.

    At most `most` are open, at most half of them of one namespace (H05): ServerBusy. A stream ends when its
    caller may not read any more, and when the server stops.
    """

    def __init__(
        self,
        caller: ApiCaller,
        session: str,
        after: int,
        types: tuple[str, ...],
        # Each holds a connection and queries the database once a second.
        most: int = 100,
        pace: Pace = _PACE,
    ) -> None:
        super().__init__()
        self._caller = caller
        self._where = caller.namespace, session
        self._after = after
        self._types = types
        self._most = most
        self._pace = pace

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Send the stream until it ends."""
        opened, whose = self._caller.parts.streams, self._caller.namespace
        if opened.total() >= self._most:
            raise ServerBusy("As many streams of events as are allowed are open; try again soon.")
        if opened[whose] >= (self._most + 1) // 2:
            raise ServerBusy("As many streams of events as one caller may have are open; try again soon.")
        opened[whose] += 1
        client = Client(receive, send)
        try:
            async with client.attended():
                await client.start(200, _HEADERS)
                async for piece in self._pieces():
                    await client.body(piece)
                await client.end()
        finally:
            opened[whose] -= 1
            # Drops namespaces without a stream from the counter.
            opened += Counter()

    async def _pieces(self) -> AsyncIterator[bytes]:
        parts, after = self._caller.parts, self._after
        now = asyncio.get_running_loop().time
        ends = now() + self._pace.life_seconds
        # Tells the client at once that the stream is open.
        yield b": open\n\n"
        spoken = now()
        is_first = True
        while not parts.ended.is_set() and now() < ends:
            if not (is_first or await self._caller.still_admitted()):
                return
            is_first = False
            rows = await parts.store.journal.events(*self._where, after, _PAGE, self._types)
            if rows:
                yield b"".join(map(_message, await parts.states.shown(*self._where, rows)))
                after, spoken = rows[-1].seq, now()
            elif now() - spoken >= self._pace.keep_alive_seconds:
                yield b": still here\n\n"
                spoken = now()
            if len(rows) < _PAGE:
                waiting = asyncio.ensure_future(parts.ended.wait())
                try:
                    await asyncio.wait({waiting}, timeout=self._pace.poll_seconds)
                finally:
                    waiting.cancel()


def _message(event: EventRow) -> bytes:
    """One event. Compact JSON has no line breaks, but a payload is whatever was stored."""
    lines = event.payload.replace(b"\r", b"").split(b"\n")
    data = b"".join(b"data: " + line + b"\n" for line in lines)
    return b"id: %d\nevent: %s\n%s\n" % (event.seq, event.type.encode(), data)
