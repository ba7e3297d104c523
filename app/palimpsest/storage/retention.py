"""Finds the sessions that are kept longer than an operator wants; `palimpsest.storage.erasure` erases them.

Reads rows of all namespaces, and of each session as little as an erase needs. A session with an exchange in
progress is never among them.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from palimpsest.storage import erasure_rules as rules
from palimpsest.storage.database import SqlDatabase, Statement, p, rows_of
from palimpsest.storage.sql import LIMIT, of_namespace, there_is, total_of
from palimpsest.storage.tables import BODIES, EXCHANGES, KEYS, SESSIONS

# A row for each session is looked at: a large database takes its time, beside which others write.
_SECONDS = 3_600.0


@dataclass(frozen=True, slots=True)
class OldSession:
    """A session at rest, and when it was written to last (UTC seconds)."""

    namespace: str
    session: str
    external_id: str | None
    updated_at: float


class OldSessions:
    """See the module docstring; `palimpsest.storage.store` states the guarantees of every method."""

    def __init__(self, database: SqlDatabase) -> None:
        self._db = database

    async def before(self, at: float, limit: int) -> list[OldSession]:
        """Sessions that were written to last before `at`, the oldest first.

        Of all namespaces but those whose keys have limits of their own, or had some.
        """
        rows = await self._db.read_snapshot(rows_of(_BEFORE, at=at, limit=limit), seconds=_SECONDS)
        return [OldSession(*row) for row in rows]

    async def oldest(self, namespace: str, limit: int) -> list[OldSession]:
        """The namespace's sessions, the oldest first."""
        asked = {"namespace": namespace, "limit": limit}
        return [OldSession(*row) for row in await self._db.read_snapshot(rows_of(_OLDEST, **asked))]

    async def size(self, namespace: str, session: str) -> int:
        """Bytes of the session's bodies, those included that other sessions share."""
        asked = {"namespace": namespace, "session": session}
        return int((await self._db.read_snapshot(rows_of(_SIZE, **asked)))[0][0])


_COLUMNS = (SESSIONS.c.namespace, SESSIONS.c.id, SESSIONS.c.external_id, SESSIONS.c.updated_at)
AT_REST = ~there_is(
    EXCHANGES.c.session == SESSIONS.c.id,
    EXCHANGES.c.namespace == SESSIONS.c.namespace,
    EXCHANGES.c.state == sa.literal_column("'open'"),
)
_OLDEST_FIRST = (
    sa.select(*_COLUMNS).where(AT_REST).order_by(SESSIONS.c.updated_at, SESSIONS.c.id).limit(LIMIT)
)
_WITH_LIMITS = sa.select(KEYS.c.namespace).where(
    sa.or_(KEYS.c.retention_days.is_not(None), KEYS.c.retention_bytes.is_not(None))
)
_BEFORE = Statement(
    _OLDEST_FIRST.where(SESSIONS.c.updated_at < p("at", sa.Double), SESSIONS.c.namespace.not_in(_WITH_LIMITS))
)
_OLDEST = Statement(_OLDEST_FIRST.where(of_namespace(SESSIONS)))
_SIZE = Statement(
    sa.select(total_of(sa.func.length(BODIES.c.body))).where(
        BODIES.c.digest.in_(rules.digests(rules.SESSION)), of_namespace(BODIES)
    )
)
