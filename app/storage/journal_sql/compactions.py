"""What is folded and masked, and what is stored together with it.

Must not know how a view is made. A compaction is fenced by its session's epoch, not by a lock: one that
comes too late stores nothing, nor what came with it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

from sqlalchemy import select, update
from sqlalchemy.sql.expression import literal_column

from app.core.view.compaction import Compaction, Mask
from app.storage.contract import StoredCompaction
from app.storage.database import Database, Params, Row, Statement, Step, p, plain, plain_or_none, rows_of
from app.storage.exchange.row_sql import arriving
from app.storage.journal import NOTHING, Also
from app.storage.journal_sql.arrivals import drawing_in_epoch, in_epoch
from app.storage.journal_sql.events import ADD_EVENT_IN_EPOCH, event_rows
from app.storage.journal_sql.memories import ADD_MEMORY_IN_EPOCH, memory_rows
from app.storage.packing import packed, unpacked
from app.storage.tables.conversations import COMPACTIONS

_MASK = struct.Struct(">32sQ")
_COLUMNS = (
    *("id", "kind", "watermark", "kept", "masks", "summary", "policy", "trigger", "author", "model"),
    *("tokens_before", "tokens_after", "messages_folded", "parents", "reason", "state", "details"),
    *("memory", "created_at"),
)


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
        beside = len(also.memories) + len(also.events)
        steps = [
            drawing_in_epoch(key, 1 + beside),
            Step(ADD_COMPACTION_IN_EPOCH, [{**key, **_row(compaction), "created_at": now, "back": beside}]),
            Step(ADD_MEMORY_IN_EPOCH, memory_rows(key, also.memories, len(also.events))),
            Step(ADD_EVENT_IN_EPOCH, event_rows(key, also.events)),
        ]
        return (await self._db.write([step for step in steps if step.rows]))[0] > 0

    async def undo_compaction(self, namespace: str, session: str, compaction_id: str, now: float) -> bool:
        """See the contract."""
        key = {"namespace": namespace, "session": session, "id": plain(compaction_id), "undone_at": now}
        (undone,) = await self._db.write([Step(_UNDO_COMPACTION, [key])])
        return undone > 0


def compaction_rows(key: Params, made: Sequence[tuple[Compaction, float]], back: int) -> list[Params]:
    """The rows of compactions and their times; the last stands `back` places before what the unit draws."""
    last = len(made) - 1 + back
    return [
        {**key, **_row(compaction), "created_at": at, "back": last - place}
        for place, (compaction, at) in enumerate(made)
    ]


def _row(compaction: Compaction) -> Params:
    return {
        "id": compaction.id,
        "kind": compaction.kind,
        "watermark": compaction.watermark,
        "kept": packed(compaction.kept),
        "masks": b"".join(_MASK.pack(mask.chain, mask.limit_chars) for mask in compaction.masks),
        # A summary may quote half of a surrogate pair, as its messages may.
        "summary": compaction.summary.encode("utf-8", "surrogatepass"),
        "policy": compaction.policy,
        "trigger": compaction.trigger,
        "author": compaction.author,
        "model": plain_or_none(compaction.model),
        "tokens_before": compaction.tokens_before,
        "tokens_after": compaction.tokens_after,
        "messages_folded": compaction.messages_folded,
        "parents": json.dumps(compaction.parents),
        "reason": plain(compaction.reason),
        "state": compaction.state,
        "details": compaction.details,
        "memory": compaction.memory.encode("utf-8", "surrogatepass"),
    }


def _stored(row: Row) -> StoredCompaction:
    arrival, undone_at, *rest = row
    values = dict(zip(_COLUMNS, rest, strict=True))
    created_at = values.pop("created_at")
    values["kept"] = unpacked(values["kept"])
    values["masks"] = tuple(Mask(*mask) for mask in _MASK.iter_unpack(values["masks"]))
    values["summary"] = values["summary"].decode("utf-8", "surrogatepass")
    # Rows of before there was one have none.
    values["memory"] = (values["memory"] or b"").decode("utf-8", "surrogatepass")
    values["parents"] = tuple(json.loads(values["parents"]))
    return StoredCompaction(Compaction(**values), arrival, created_at, undone_at)


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
