"""Stores compactions with their journal entries, and compactions prepared ahead.

A compaction is fenced by its session's epoch, not by a lock: one that comes too late stores nothing, nor do
its entries.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import msgspec
import sqlalchemy as sa

from palimpsest.core.view.compaction import Compaction, Mask
from palimpsest.storage.database import (
    Params,
    Repository,
    Row,
    SqlDatabase,
    Step,
    p,
    step,
)
from palimpsest.storage.journal import (
    ADD_EVENT,
    ADD_MEMORY,
    EventRow,
    KnownSessions,
    MemoryRow,
    memory_rows,
)
from palimpsest.storage.sql import (
    ONE,
    arrivals_step,
    columns_of,
    fields_of,
    in_order,
    key_of,
    new_row,
    of_namespace,
    of_session,
    packed,
    plain,
    replacing,
    row_in_session,
    rows_in,
    unpacked,
)
from palimpsest.storage.tables import COMPACTIONS, PREPARED, SESSION_SETTINGS

_VALUES = (
    *("id", "kind", "watermark", "kept", "masks", "summary", "policy", "trigger", "author", "model"),
    *("tokens_before", "tokens_after", "messages_folded", "parents", "reason", "state", "details", "memory"),
)
_MASK = struct.Struct(">32sQ")
# The rows of a longer summary are built on another thread: case-folding its text takes 10 ms per MB.
_INLINE_CHARS = 256 * 1024


@dataclass(frozen=True, slots=True)
class StoredCompaction:
    """A compaction with its times; newer ones have a higher `arrival`."""

    compaction: Compaction
    arrival: int
    created_at: float
    undone_at: float | None = None


@dataclass(frozen=True, slots=True)
class JournalEntries:
    """Memories and events stored in a compaction's transaction, in this order."""

    memories: Sequence[MemoryRow] = ()
    events: Sequence[EventRow] = ()


NO_ENTRIES = JournalEntries()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A compaction written ahead for a conversation with `model`; not in force yet."""

    compaction: Compaction
    model: str


# A compaction and when it was made.
DatedCompaction: TypeAlias = tuple[Compaction, float]


class Compactions(Repository):
    """See the module docstring; `palimpsest.storage.store` states the guarantees of every method."""

    def __init__(self, database: SqlDatabase, known: KnownSessions) -> None:
        super().__init__(database)
        self._known = known

    async def of_session(self, namespace: str, session: str) -> list[StoredCompaction]:
        """The session's compactions, oldest first, including undone ones."""
        return (await self.with_settings(namespace, session))[1]

    async def with_settings(
        self, namespace: str, session: str
    ) -> tuple[bytes | None, list[StoredCompaction]]:
        """The session's settings as stored, or None, and what `of_session` returns, by one statement."""
        if self._known.is_plain(namespace, session):
            return None, []
        rows = await self._few(_WITH_SETTINGS, namespace=namespace, session=session)
        payload = rows[0][0]
        # A session without compactions has one row.
        made = [_stored(row[1:]) for row in rows if row[1] is not None]
        if payload is None and not made:
            self._known.plain(namespace, session)
        return None if payload is None else bytes(payload), made

    async def authors(self, namespace: str, since: float) -> dict[str, int]:
        """How many compactions of all sessions were made since that time (UTC seconds), by their author."""
        rows = await self._rows(_AUTHORS, namespace=namespace, since=since)
        return {row[0]: row[1] for row in rows}

    async def get(self, namespace: str, compaction_id: str) -> tuple[str, StoredCompaction] | None:
        """The compaction with this id and its session; when imported sessions share it, the newest one's."""
        rows = await self._few(_BY_ID, namespace=namespace, id=plain(compaction_id))
        return (rows[0][0], _stored(rows[0][1:])) if rows else None

    async def add(
        self,
        namespace: str,
        session: str,
        epoch: int,
        compaction: Compaction,
        now: float,
        entries: JournalEntries = NO_ENTRIES,
    ) -> bool:
        """Store the compaction; removes the prepared one of this id.

        False, and nothing stored, not even `entries`, when the session's epoch is no longer `epoch`. True
        when the same compaction is added again.
        """
        self._known.writes(namespace, session)
        key = {"namespace": namespace, "session": session, "epoch": epoch}
        if len(compaction.summary) > _INLINE_CHARS:
            steps = await asyncio.to_thread(_adding, key, compaction, now, entries)
        else:
            steps = _adding(key, compaction, now, entries)
        return (await self._db.write([each for each in steps if each.rows]))[0] > 0

    async def undo(self, namespace: str, session: str, compaction_id: str, now: float) -> bool:
        """Mark the compaction as undone at `now`. False when it does not exist or was undone before."""
        key = {"namespace": namespace, "session": session, "id": plain(compaction_id)}
        return await self._wrote(_UNDO, **key, undone_at=now) > 0

    async def prepare(self, namespace: str, session: str, prepared: Prepared) -> None:
        """Store the session's prepared compaction in place of an earlier one; any server may use it."""
        key = key_of(namespace, session)
        payload = msgspec.msgpack.encode(_values(prepared.compaction))
        put = step(_PREPARE, **key, id=prepared.compaction.id, model=plain(prepared.model), payload=payload)
        await self._db.write([arrivals_step(key, 0), put])

    async def prepared(self, namespace: str, session: str) -> Prepared | None:
        """The session's prepared compaction; `add` of its id removes it."""
        rows = await self._few(_PREPARED, namespace=namespace, session=session)
        return Prepared(_compaction(msgspec.msgpack.decode(rows[0][1])), rows[0][0]) if rows else None


def _adding(key: Params, compaction: Compaction, now: float, entries: JournalEntries) -> list[Step]:
    beside = len(entries.memories) + len(entries.events)
    return [
        # The fence: in another epoch the unit ends here.
        replace(arrivals_step(key, 1 + beside), needed=True),
        Step(_ADD_COMPACTION, [{**key, **compaction_row(compaction, now), "back": beside}]),
        Step(ADD_MEMORY, memory_rows(key, entries.memories, len(entries.events))),
        Step(ADD_EVENT, in_order(key, map(fields_of, entries.events))),
        step(_NO_LONGER_PREPARED, **key, id=compaction.id),
    ]


def compaction_row(compaction: Compaction, now: float) -> Params:
    """The values of a compaction that was made then, by name."""
    return {**_values(compaction), "created_at": now}


def _values(compaction: Compaction) -> Params:
    """A compaction's fields as text, bytes and integers, by name."""
    return fields_of(compaction) | {
        "kept": packed(compaction.kept),
        "masks": b"".join(_MASK.pack(mask.chain, mask.limit_chars) for mask in compaction.masks),
        # A summary may quote a lone surrogate from a message.
        "summary": compaction.summary.encode("utf-8", "surrogatepass"),
        "parents": json.dumps(compaction.parents),
        "memory": compaction.memory.encode("utf-8", "surrogatepass"),
    }


def _compaction(values: Mapping[str, Any]) -> Compaction:
    """The inverse of `_values`; ValueError for a damaged record."""
    fields = dict(values)
    try:
        fields["kept"] = unpacked(fields["kept"])
        fields["masks"] = tuple(Mask(*mask) for mask in _MASK.iter_unpack(fields["masks"]))
    except struct.error as error:
        raise ValueError("the record of a compaction is damaged") from error
    fields["summary"] = fields["summary"].decode("utf-8", "surrogatepass")
    # Rows written before revision 0002 have none.
    fields["memory"] = (fields["memory"] or b"").decode("utf-8", "surrogatepass")
    fields["parents"] = tuple(json.loads(fields["parents"]))
    return Compaction(**fields)


def _stored(row: Row) -> StoredCompaction:
    arrival, undone_at, created_at, *values = row
    compaction = _compaction(dict(zip(_VALUES, values, strict=True)))
    return StoredCompaction(compaction, arrival, created_at, undone_at)


_STORED = columns_of(COMPACTIONS, "arrival", "undone_at", "created_at", *_VALUES)
_BY_ID = (
    sa.select(COMPACTIONS.c.session, *_STORED)
    .where(COMPACTIONS.c.id == p("id"), of_namespace(COMPACTIONS))
    .order_by(COMPACTIONS.c.session.desc())
    .limit(ONE)
)
_AUTHORS = (
    sa.select(COMPACTIONS.c.author, sa.func.count())
    .where(of_namespace(COMPACTIONS), COMPACTIONS.c.created_at >= p("since"))
    .group_by(COMPACTIONS.c.author)
)
_ONE_ROW = sa.select(ONE.label("one")).subquery()
_WITH_SETTINGS = (
    sa.select(SESSION_SETTINGS.c.payload, *_STORED)
    .select_from(_ONE_ROW)
    .outerjoin(SESSION_SETTINGS, of_session(SESSION_SETTINGS))
    .outerjoin(COMPACTIONS, of_session(COMPACTIONS))
    .order_by(COMPACTIONS.c.arrival)
)
_ADD_COMPACTION = row_in_session(COMPACTIONS, undone_at=sa.null()).on_conflict_do_nothing()
ADD_DATED_COMPACTION = new_row(COMPACTIONS, undone_at=sa.null()).on_conflict_do_nothing()
_UNDO = (
    sa.update(COMPACTIONS)
    .where(of_session(COMPACTIONS), COMPACTIONS.c.id == p("id"), COMPACTIONS.c.undone_at.is_(None))
    .values(undone_at=p(COMPACTIONS.c.undone_at))
)
_PREPARED = rows_in(PREPARED, "model", "payload")
_PREPARE = replacing(row_in_session(PREPARED), "id", "model", "payload")
_NO_LONGER_PREPARED = sa.delete(PREPARED).where(of_session(PREPARED), PREPARED.c.id == p("id"))
