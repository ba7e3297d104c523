"""What happened in a session, in order. Rows are added and never changed.

Must not know what an event means.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Integer, Select, Text, select
from sqlalchemy.dialects.postgresql import Insert

from app.storage.database import Database, InsertInto, Params, Row, Statement, Step, named, p, plain, rows_of
from app.storage.journal import Event, StoredEvent
from app.storage.journal_sql.arrivals import drawing, in_epoch
from app.storage.tables.conversations import EVENTS, SESSIONS

# Types asked for at once.
_MOST_TYPES = 32
_COLUMNS = ("id", "type", "payload", "created_at")


class EventRows:
    """See the contract in `app/storage/journal.py`."""

    _db: Database

    async def add_events(self, namespace: str, session: str, events: Sequence[Event]) -> None:
        """See the contract."""
        if not events:
            return
        key: Params = {"namespace": namespace, "session": session}
        await self._db.write([drawing(key, len(events)), Step(ADD_EVENT, event_rows(key, events))])

    async def events(
        self, namespace: str, session: str, after: int, limit: int, types: Sequence[str] = ()
    ) -> Sequence[StoredEvent]:
        """See the contract."""
        key = {"namespace": namespace, "session": session, "after": after, "limit": limit}
        listed = {f"type_{i}": plain(types[min(i, len(types) - 1)]) for i in range(_MOST_TYPES) if types}
        rows = await self._db.far(rows_of(_EVENTS[bool(types)], {**key, **listed}))
        return [_stored(row) for row in rows]


def event_rows(key: Params, events: Sequence[Event]) -> list[Params]:
    """The rows of `events`, the last that arrive of what the unit draws."""
    last = len(events) - 1
    return [{**key, **_row(event), "back": last - i} for i, event in enumerate(events)]


def _row(event: Event) -> Params:
    return {
        "id": event.id,
        "type": plain(event.type),
        "payload": event.payload,
        "created_at": event.created_at,
    }


def _stored(row: Row) -> StoredEvent:
    seq, ident, type_, payload, created_at = row
    return StoredEvent(Event(ident, type_, bytes(payload), created_at), seq)


def _add_event(insert: InsertInto, *, fenced: bool) -> Insert:
    own = named(EVENTS, "session", "namespace", *_COLUMNS)
    values = {**own, "seq": SESSIONS.c.arrivals - p("back", BigInteger)}
    here = [SESSIONS.c.namespace == p("namespace"), SESSIONS.c.id == p("session")]
    row = select(*values.values()).where(*here, *([in_epoch()] if fenced else []))
    return insert(EVENTS).from_select(list(values), row).on_conflict_do_nothing()


def _events(_: InsertInto, *, of_types: bool) -> Select[Any]:
    types: list[ColumnElement[bool]] = []
    if of_types:
        types = [EVENTS.c.type.in_([p(f"type_{i}", Text) for i in range(_MOST_TYPES)])]
    return (
        select(EVENTS.c.seq, *(EVENTS.c[name] for name in _COLUMNS))
        .where(
            EVENTS.c.namespace == p("namespace"),
            EVENTS.c.session == p("session"),
            EVENTS.c.seq > p("after", BigInteger),
            *types,
        )
        .order_by(EVENTS.c.seq)
        .limit(p("limit", Integer))
    )


ADD_EVENT = Statement(partial(_add_event, fenced=False))
ADD_EVENT_IN_EPOCH = Statement(partial(_add_event, fenced=True))
_EVENTS = {of_types: Statement(partial(_events, of_types=of_types)) for of_types in (False, True)}
