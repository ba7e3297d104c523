"""What happened in a session: as a list, or as a stream that goes on (A23).

Knows nothing of when something happens.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from app.api.callers import Admitted
from app.api.replies import array_of, object_with, raw_reply
from app.api.session.stream import EventStreams, Wanted
from app.core.runtime.events import EVENT_TYPES
from app.errors import InvalidParameter
from app.proxy.archive import Archive
from app.storage.contract import Store
from app.storage.journal import StoredEvent

_MOST = 1_000
# A place in the store; databases count in 64 bits.
MOST_SEQ = 2**63 - 1


class EventPages:
    """Events of a session."""

    def __init__(self, archive: Archive, store: Store, streams: EventStreams) -> None:
        self._archive = archive
        self._store = store
        self._streams = streams

    def on(self, api: APIRouter) -> None:
        """The route is registered."""
        api.add_api_route("/sessions/{name:path}/events", self.events, methods=["GET"])

    async def events(
        self,
        request: Request,
        caller: Admitted,
        name: str,
        after: Annotated[int, Query(ge=0, le=MOST_SEQ)] = 0,
        limit: Annotated[int, Query(ge=1, le=_MOST)] = 100,
        types: str = "",
    ) -> Response:
        """Oldest first, those behind `after`; as a stream when the caller accepts one.

        A stream goes on from the id that the client saw last, and sends all that comes.
        """
        row = await self._archive.session(caller.namespace, name)
        wanted = Wanted(caller.namespace, row.id, after, _types(types))
        if _wants_stream(request):
            return self._streams.response(wanted.after_seen(_last_seen(request)))
        rows = await self._store.events(caller.namespace, row.id, after, limit + 1, wanted.types)
        page = rows[:limit]
        head = {"session": row.id, "next": page[-1].seq if len(rows) > limit else None}
        return raw_reply(object_with(head, "events", array_of(_item(one) for one in page)))


def _item(stored: StoredEvent) -> bytes:
    event = stored.event
    fields = {"seq": stored.seq, "id": event.id, "type": event.type, "created_at": event.created_at}
    return object_with(fields, "payload", event.payload)


def _types(given: str) -> tuple[str, ...]:
    types = tuple(dict.fromkeys(word.strip() for word in given.split(",") if word.strip()))
    for one in types:
        if one not in EVENT_TYPES:
            raise InvalidParameter("There is no such type of event.", param="types")
    return types


def _wants_stream(request: Request) -> bool:
    accepted = request.headers.get("accept", "").lower()
    return "text/event-stream" in accepted


def _last_seen(request: Request) -> int | None:
    """What a client sends that was cut off (HTML standard, 9.2.4)."""
    said = request.headers.get("last-event-id")
    if not said:
        return None
    if not (said.isascii() and said.isdigit() and len(said) < 20 and int(said) <= MOST_SEQ):
        raise InvalidParameter("The id of an event is a number.", param="Last-Event-ID")
    return int(said)
