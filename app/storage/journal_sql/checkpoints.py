"""What a session can be taken up from, once for each span that it covers.

Must not know what a payload holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Integer, Select, select

from app.storage.database import Database, Params, Row, Statement, Step, p, plain, rows_of
from app.storage.exchange.row_sql import arriving
from app.storage.journal import Checkpoint, StoredCheckpoint
from app.storage.journal_sql.arrivals import drawing
from app.storage.tables.conversations import CHECKPOINTS

_COLUMNS = ("id", "kind", "span_hash", "schema", "payload", "created_at")


class CheckpointRows:
    """See the contract in `app/storage/journal.py`."""

    _db: Database

    async def add_checkpoint(self, namespace: str, session: str, checkpoint: Checkpoint) -> bool:
        """See the contract."""
        key: Params = {"namespace": namespace, "session": session}
        row = {
            **key,
            "id": checkpoint.id,
            "kind": checkpoint.kind,
            "span_hash": checkpoint.span_hash,
            "schema": plain(checkpoint.schema),
            "payload": checkpoint.payload,
            "created_at": checkpoint.created_at,
            "back": 0,
        }
        _, added = await self._db.write([drawing(key, 1), Step(_ADD_CHECKPOINT, [row])])
        return added > 0

    async def checkpoints(self, namespace: str, session: str, limit: int) -> Sequence[StoredCheckpoint]:
        """See the contract."""
        key = {"namespace": namespace, "session": session, "limit": limit}
        return [_stored(row) for row in await self._db.far(rows_of(_CHECKPOINTS, key))]

    async def checkpoint(self, namespace: str, session: str, checkpoint_id: str) -> StoredCheckpoint | None:
        """See the contract."""
        key = {"namespace": namespace, "session": session, "id": plain(checkpoint_id)}
        rows = await self._db.far(rows_of(_CHECKPOINT, key))
        return _stored(rows[0]) if rows else None


def _stored(row: Row) -> StoredCheckpoint:
    arrival, ident, kind, span_hash, schema, payload, created_at = row
    of_span = Checkpoint(ident, kind, bytes(span_hash), schema, bytes(payload), created_at)
    return StoredCheckpoint(of_span, arrival)


def _of_session() -> Select[Any]:
    return select(CHECKPOINTS.c.arrival, *(CHECKPOINTS.c[name] for name in _COLUMNS)).where(
        CHECKPOINTS.c.namespace == p("namespace"), CHECKPOINTS.c.session == p("session")
    )


_ADD_CHECKPOINT = Statement(
    lambda insert: arriving(insert, CHECKPOINTS, ("session", "namespace", *_COLUMNS)).on_conflict_do_nothing()
)
_CHECKPOINTS = Statement(
    lambda _: _of_session().order_by(CHECKPOINTS.c.arrival.desc()).limit(p("limit", Integer))
)
_CHECKPOINT = Statement(lambda _: _of_session().where(CHECKPOINTS.c.id == p("id")))
