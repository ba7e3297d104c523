"""The summary that was written ahead for a session: one row, so that any server may put it into force.

Must not know when it is due. It goes when its compaction comes into force, or when a newer one is prepared.
"""

from __future__ import annotations

import msgspec
from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import Insert

from app.storage.database import Database, InsertInto, Params, Statement, Step, named, p, plain, rows_of
from app.storage.journal import Prepared
from app.storage.journal_sql.arrivals import drawing
from app.storage.journal_sql.compaction_values import compaction_of, values_of
from app.storage.tables.conversations import PREPARED, SESSIONS


class PreparedRows:
    """See the contract in `app/storage/journal.py`."""

    _db: Database

    async def prepared(self, namespace: str, session: str) -> Prepared | None:
        """See the contract."""
        rows = await self._db.near(rows_of(_PREPARED, {"namespace": namespace, "session": session}))
        if not rows:
            return None
        model, payload = rows[0]
        return Prepared(compaction_of(msgspec.msgpack.decode(payload)), model)

    async def prepare(self, namespace: str, session: str, prepared: Prepared) -> None:
        """See the contract."""
        key: Params = {"namespace": namespace, "session": session}
        row = {
            **key,
            "id": prepared.compaction.id,
            "model": plain(prepared.model),
            "payload": msgspec.msgpack.encode(values_of(prepared.compaction)),
        }
        # The draw locks the session: whoever erases it comes before or after.
        await self._db.write([drawing(key, 0), Step(_PREPARE, [row])])


def _prepare(insert: InsertInto) -> Insert:
    values = named(PREPARED)
    here = (SESSIONS.c.namespace == p("namespace"), SESSIONS.c.id == p("session"))
    row = select(*values.values()).select_from(SESSIONS).where(*here)
    new = insert(PREPARED).from_select(list(values), row)
    return new.on_conflict_do_update(
        index_elements=list(PREPARED.primary_key.columns),
        set_={name: new.excluded[name] for name in ("id", "model", "payload")},
    )


_OF_SESSION = (PREPARED.c.session == p("session"), PREPARED.c.namespace == p("namespace"))
_PREPARED = Statement(lambda _: select(PREPARED.c.model, PREPARED.c.payload).where(*_OF_SESSION))
_PREPARE = Statement(_prepare)
NO_LONGER_PREPARED = Statement(lambda _: delete(PREPARED).where(*_OF_SESSION, PREPARED.c.id == p("id")))
