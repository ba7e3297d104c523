"""The events of a session, as a list or as a stream of server-sent events (A23).

A stream polls the store, since on PostgreSQL another server may write events.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypedDict

from fastapi import APIRouter, Query, Request

from palimpsest.api.callers import Admitted, SessionName, still_admitted
from palimpsest.api.replies import Reply, UtcTime, described, object_with, raw_reply, utc_time
from palimpsest.core.runtime.events import EVENT_TYPES
from palimpsest.core.wire.json_text import array_of
from palimpsest.errors import InvalidParameter, ServerBusy
from palimpsest.proxy.archive import Archive
from palimpsest.proxy.client import Client
from palimpsest.proxy.incoming import Receive, Scope, Send
from palimpsest.proxy.journal.runtime import RuntimeReader
from palimpsest.storage.journal import EventRow, Journal

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


@dataclass(frozen=True, slots=True)
class Wanted:
    """A query for events: those of a session after `after`, of these types, or of all.

    `is_admitted` is asked before each read but the first: the stream ends once its caller may not read.
    """

    namespace: str
    session: str
    after: int
    types: tuple[str, ...]
    is_admitted: Callable[[], Awaitable[bool]]

    def after_seen(self, seen: int | None) -> Wanted:
        """The same query, after the event that the client saw last."""
        return self if seen is None else replace(self, after=seen)


# Each holds a connection and queries the database once a second.
MOST_STREAMS = 100


class EventStreams:
    """The open streams: at most `most`, at most half of them of one namespace (H05).

    All of them end when `ended` is set.
    """

    def __init__(
        self,
        journal: Journal,
        states: RuntimeReader,
        most: int,
        ended: asyncio.Event,
        pace: Pace | None = None,
    ) -> None:
        self._journal = journal
        self._states = states
        self._pace = pace or Pace()
        self._most = most
        self._ended = ended
        self._open: Counter[str] = Counter()

    def response(self, wanted: Wanted) -> Reply[Any]:
        """A streaming response; sending it raises ServerBusy when the limit is reached."""
        return _Stream(self, wanted)

    async def run(self, wanted: Wanted, client: Client) -> None:
        """Send the stream until it ends."""
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
            # Drops namespaces without a stream from the counter.
            self._open += Counter()

    async def _pieces(self, wanted: Wanted) -> AsyncIterator[bytes]:
        now = asyncio.get_running_loop().time
        ends = now() + self._pace.life_seconds
        # Tells the client at once that the stream is open.
        yield b": open\n\n"
        spoken = now()
        is_first = True
        while not self._ended.is_set() and now() < ends:
            if not (is_first or await wanted.is_admitted()):
                return
            is_first = False
            where = wanted.namespace, wanted.session
            rows = await self._journal.events(*where, wanted.after, _PAGE, wanted.types)
            if rows:
                yield b"".join(map(_message, await self._states.shown(*where, rows)))
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


class _Stream(Reply[Any]):
    """A streaming response."""

    def __init__(self, streams: EventStreams, wanted: Wanted) -> None:
        super().__init__()
        self._streams = streams
        self._wanted = wanted

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        await self._streams.run(self._wanted, Client(receive, send))


def _message(event: EventRow) -> bytes:
    """One event. Compact JSON has no line breaks, but a payload is whatever was stored."""
    lines = event.payload.replace(b"\r", b"").split(b"\n")
    data = b"".join(b"data: " + line + b"\n" for line in lines)
    return b"id: %d\nevent: %s\n%s\n" % (event.seq, event.type.encode(), data)


_MOST = 1_000
# The largest sequence number: databases use 64 bits.
MOST_SEQ = 2**63 - 1


class EventHead(TypedDict):
    """An event without its payload."""

    seq: Annotated[int, described("Later events of the session have a higher one, with gaps.")]
    id: str
    type: Annotated[str, described("An imported session has further types.")]
    created_at: UtcTime


class EventFields(EventHead):
    """An event; the payload is as it was stored."""

    payload: Any


class EventPage(TypedDict):
    """Events of a session, oldest first."""

    session: str
    next: Annotated[int | None, described("The `after` of the next page; null on the last one.")]
    events: list[EventFields]


class EventPages:
    """Events of a session."""

    def __init__(
        self, archive: Archive, journal: Journal, states: RuntimeReader, streams: EventStreams
    ) -> None:
        self._archive = archive
        self._journal = journal
        self._states = states
        self._streams = streams

    def on(self, api: APIRouter) -> None:
        """Register the route."""
        api.add_api_route("/sessions/{name:path}/events", self.list_events, methods=["GET"])

    async def list_events(
        self,
        request: Request,
        caller: Admitted,
        name: SessionName,
        after: Annotated[
            int,
            Query(ge=0, le=MOST_SEQ, description="The `next` of the page before, or the `seq` of an event."),
        ] = 0,
        limit: Annotated[int, Query(ge=1, le=_MOST, description="At most so many.")] = 100,
        types: Annotated[str, Query(description="Of these types only, separated by commas.")] = "",
    ) -> Reply[EventPage]:
        """List events, oldest first, as a list or a stream.

        A stream when the client accepts `text/event-stream`: it continues after `Last-Event-ID`, and sends
        new events as they arrive.
        """
        row = await self._archive.session(caller.namespace, name)
        wanted = Wanted(caller.namespace, row.id, after, _types(types), still_admitted(request))
        if _wants_stream(request):
            return self._streams.response(wanted.after_seen(_last_seen(request)))
        rows = await self._journal.events(caller.namespace, row.id, after, limit + 1, wanted.types)
        page = await self._states.shown(caller.namespace, row.id, rows[:limit])
        head = {"session": row.id, "next": page[-1].seq if len(rows) > limit else None}
        return raw_reply(object_with(head, events=array_of(_item(one) for one in page)))


def _item(event: EventRow) -> bytes:
    fields: EventHead = {
        "seq": event.seq,
        "id": event.id,
        "type": event.type,
        "created_at": utc_time(event.created_at),
    }
    return object_with(fields, payload=event.payload)


def _types(given: str) -> tuple[str, ...]:
    types = tuple(dict.fromkeys(word.strip() for word in given.split(",") if word.strip()))
    for one in types:
        if one not in EVENT_TYPES:
            raise InvalidParameter(
                f"There is no such type of event; the types are {', '.join(EVENT_TYPES)}.", param="types"
            )
    return types


def _wants_stream(request: Request) -> bool:
    accepted = request.headers.get("accept", "").lower()
    return "text/event-stream" in accepted


def _last_seen(request: Request) -> int | None:
    """The `Last-Event-ID` of a client that reconnects (HTML standard, 9.2.4)."""
    said = request.headers.get("last-event-id")
    if not said:
        return None
    if not (said.isascii() and said.isdigit() and len(said) < 20 and int(said) <= MOST_SEQ):
        raise InvalidParameter(f"The id of an event is a number from 0 to {MOST_SEQ}.", param="Last-Event-ID")
    return int(said)
