"""The settings of single sessions. Asked for by every request of a session that goes on.

Must not know what can be set.
"""

from __future__ import annotations

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import Insert

from app.storage.database import Database, InsertInto, Params, Statement, Step, named, p, rows_of
from app.storage.journal_sql.arrivals import drawing
from app.storage.tables.conversations import SESSION_SETTINGS, SESSIONS


class SettingsRows:
    """See the contract in `app/storage/journal.py`."""

    _db: Database

    async def settings_of(self, namespace: str, session: str) -> bytes | None:
        """See the contract."""
        rows = await self._db.near(rows_of(_SETTINGS_OF, {"namespace": namespace, "session": session}))
        return bytes(rows[0][0]) if rows else None

    async def put_settings(self, namespace: str, session: str, payload: bytes | None) -> None:
        """See the contract."""
        key: Params = {"namespace": namespace, "session": session}
        if payload is None:
            await self._db.write([Step(_REMOVE_SETTINGS, [key])])
        else:
            # The draw locks the session: whoever erases it comes before or after.
            await self._db.write([drawing(key, 0), Step(_PUT_SETTINGS, [{**key, "payload": payload}])])


def _put_settings(insert: InsertInto) -> Insert:
    values = named(SESSION_SETTINGS)
    here = (SESSIONS.c.namespace == p("namespace"), SESSIONS.c.id == p("session"))
    row = select(*values.values()).select_from(SESSIONS).where(*here)
    new = insert(SESSION_SETTINGS).from_select(list(values), row)
    return new.on_conflict_do_update(
        index_elements=list(SESSION_SETTINGS.primary_key.columns), set_={"payload": new.excluded.payload}
    )


_OF_SESSION = (SESSION_SETTINGS.c.session == p("session"), SESSION_SETTINGS.c.namespace == p("namespace"))
_SETTINGS_OF = Statement(lambda _: select(SESSION_SETTINGS.c.payload).where(*_OF_SESSION))
_PUT_SETTINGS = Statement(_put_settings)
_REMOVE_SETTINGS = Statement(lambda _: delete(SESSION_SETTINGS).where(*_OF_SESSION))
