"""What is folded and masked, and what is stored together with it.

Must not know how a view is made. A compaction is fenced by its session's epoch, not by a lock: one that
comes too late stores nothing, nor what came with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sqlalchemy import select, update
from sqlalchemy.sql.expression import literal_column

from app.core.view.compaction import Compaction
from app.storage.contract import StoredCompaction
from app.storage.database import Database, Params, Row, Statement, Step, p, plain, rows_of
from app.storage.exchange.row_sql import arriving
from app.storage.journal import NOTHING, Also
from app.storage.journal_sql.arrivals import drawing_in_epoch, in_epoch
from app.storage.journal_sql.compaction_values import compaction_of, values_of
from app.storage.journal_sql.events import ADD_EVENT_IN_EPOCH, event_rows
from app.storage.journal_sql.memories import ADD_MEMORY_IN_EPOCH, memory_rows
from app.storage.journal_sql.prepared import NO_LONGER_PREPARED
from app.storage.tables.conversations import COMPACTIONS

_COLUMNS = (
    *("id", "kind", "watermark", "kept", "masks", "summary", "policy", "trigger", "author", "model"),
    *("tokens_before", "tokens_after", "messages_folded", "parents", "reason", "state", "details"),
    *("memory", "created_at"),
)

# The rows of a longer summary are made beside the event loop: its words are folded to one case, 10 ms a MB.
_INLINE_CHARS = 256 * 1024


class CompactionRows:
    """See the contract in `app/storage/contract.py`, and `app/storage/journal.py` for the undoing."""

    _db: Database

    async def compactions(self, namespace: str, session: str) -> Sequence[StoredCompaction]:
        """See the contract."""
        rows = await self._db.near(rows_of(_COMPACTIONS, {"namespace": namespace, "session": session}))
        return [_stored(row) for row in rows]

    async def compaction(self, namespace: str, compaction_id: str) -> tuple[str, StoredCompaction] | None:
        """See the contract."""
        key = {"namespace": namespace, "id": plain(compaction_id)}
        rows = await self._db.near(rows_of(_COMPACTION, key))
        return (rows[0][0], _stored(rows[0][1:])) if rows else None

    async def add_compaction(
        self,
        namespace: str,
        session: str,
        epoch: int,
        compaction: Compaction,
        now: float,
        also: Also = NOTHING,
    ) -> bool:
        """See the contract. True again when the same compaction is added again."""
        key: Params = {"namespace": namespace, "session": session, "epoch": epoch}
        if len(compaction.summary) > _INLINE_CHARS:
            steps = await asyncio.to_thread(_adding, key, compaction, now, also)
        else:
            steps = _adding(key, compaction, now, also)
        return (await self._db.write([step for step in steps if step.rows]))[0] > 0

    async def undo_compaction(self, namespace: str, session: str, compaction_id: str, now: float) -> bool:
        """See the contract."""
        key = {"namespace": namespace, "session": session, "id": plain(compaction_id), "undone_at": now}
        (undone,) = await self._db.write([Step(_UNDO_COMPACTION, [key])])
        return undone > 0


def _adding(key: Params, compaction: Compaction, now: float, also: Also) -> list[Step]:
    beside = len(also.memories) + len(also.events)
    return [
        drawing_in_epoch(key, 1 + beside),
        Step(ADD_COMPACTION_IN_EPOCH, [{**key, **values_of(compaction), "created_at": now, "back": beside}]),
        Step(ADD_MEMORY_IN_EPOCH, memory_rows(key, also.memories, len(also.events))),
        Step(ADD_EVENT_IN_EPOCH, event_rows(key, also.events)),
        Step(NO_LONGER_PREPARED, [{**key, "id": compaction.id}]),
    ]


def compaction_rows(key: Params, made: Sequence[tuple[Compaction, float]], back: int) -> list[Params]:
    """The rows of compactions and their times; the last stands `back` places before what the unit draws."""
    last = len(made) - 1 + back
    return [
        {**key, **values_of(compaction), "created_at": at, "back": last - place}
        for place, (compaction, at) in enumerate(made)
    ]


def _stored(row: Row) -> StoredCompaction:
    arrival, undone_at, *rest = row
    values = dict(zip(_COLUMNS, rest, strict=True))
    created_at = values.pop("created_at")
    return StoredCompaction(compaction_of(values), arrival, created_at, undone_at)


_STORED = (COMPACTIONS.c.arrival, COMPACTIONS.c.undone_at, *(COMPACTIONS.c[name] for name in _COLUMNS))
_COMPACTION = Statement(
    lambda _: (
        select(COMPACTIONS.c.session, *_STORED)
        .where(COMPACTIONS.c.id == p("id"), COMPACTIONS.c.namespace == p("namespace"))
        .order_by(COMPACTIONS.c.session.desc())
        .limit(literal_column("1"))
    )
)
_COMPACTIONS = Statement(
    lambda _: (
        select(*_STORED)
        .where(COMPACTIONS.c.namespace == p("namespace"), COMPACTIONS.c.session == p("session"))
        .order_by(COMPACTIONS.c.arrival)
    )
)
ADD_COMPACTION_IN_EPOCH = Statement(
    lambda insert: arriving(
        insert, COMPACTIONS, ("namespace", "session", *_COLUMNS), in_epoch()
    ).on_conflict_do_nothing()
)
_UNDO_COMPACTION = Statement(
    lambda _: (
        update(COMPACTIONS)
        .where(
            COMPACTIONS.c.session == p("session"),
            COMPACTIONS.c.id == p("id"),
            COMPACTIONS.c.namespace == p("namespace"),
            COMPACTIONS.c.undone_at.is_(None),
        )
        .values(undone_at=p(COMPACTIONS.c.undone_at))
    )
)
