"""Reading sessions, their branches and the exchanges that carried an idempotency key.

Must not know how a session is found by its messages. Session and exchange ids grow with time
(UUIDv7), so that they order listings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, CompoundSelect, Integer, Select, Table, func, select, union_all
from sqlalchemy.sql.expression import literal_column, true

from app.storage.contract import Head, SessionRow
from app.storage.database import Database, InsertInto, Row, Statement, p, plain, rows_of
from app.storage.exchange_sql import ON_PATH
from app.storage.tables import COMPACTIONS, EXCHANGES, MESSAGES, REBASES, SESSIONS

# Sorts after every id.
_AFTER_ALL = "\U0010ffff"


class SessionReads:
    """What the API lists."""

    _db: Database

    async def session(self, namespace: str, name: str) -> SessionRow | None:
        """See the contract."""
        key = {"namespace": namespace, "name": plain(name)}
        rows = await self._db.far(rows_of(_SESSION, key))
        # Our own id first: a client may have named its session like one of ours.
        found = sorted(rows, key=lambda row: bool(row[0] != name))
        return _session(found[0]) if found else None

    async def sessions(self, namespace: str, limit: int, before: str | None) -> Sequence[SessionRow]:
        """See the contract."""
        key = {"namespace": namespace, "before": before or _AFTER_ALL, "limit": limit}
        return [_session(row) for row in await self._db.far(rows_of(_SESSIONS, key))]

    async def heads(self, namespace: str, session: str) -> Sequence[Head]:
        """See the contract (rule 7)."""
        rows = await self._db.near(rows_of(_HEADS, {"namespace": namespace, "session": session}))
        heads = [Head(*row) for row in rows]
        return sorted(heads, key=lambda head: (head.answers, head.arrival), reverse=True)

    async def exchange_of_key(self, namespace: str, idempotency_key: str) -> tuple[str, bytes] | None:
        """See the contract."""
        key = {"namespace": namespace, "idempotency_key": plain(idempotency_key)}
        rows = await self._db.near(rows_of(_EXCHANGE_OF_KEY, key))
        return (rows[0][0], rows[0][1]) if rows else None


def _session(row: Row) -> SessionRow:
    ident, external_id, epoch, found_by, model, full_history, *rest = row
    return SessionRow(ident, external_id, epoch, found_by, model, bool(full_history), *rest)


def _counted(table: Table) -> ColumnElement[int]:
    return (
        select(func.count())
        .select_from(table)
        .where(table.c.namespace == SESSIONS.c.namespace, table.c.session == SESSIONS.c.id)
        .scalar_subquery()
    )


def _session_rows() -> Select[Any]:
    columns = ("id", "external_id", "epoch", "found_by", "model", "full_history", "created_at", "updated_at")
    return select(
        *(SESSIONS.c[name] for name in columns),
        *(_counted(table) for table in (MESSAGES, EXCHANGES, COMPACTIONS)),
    ).where(SESSIONS.c.namespace == p("namespace"))


def _heads(_: InsertInto) -> CompoundSelect[Any]:
    def of(table: Table, *where: ColumnElement[bool]) -> Select[Any]:
        columns = (table.c[name] for name in ("chain", "answers", "depth", "arrival", "preamble"))
        here = (table.c.namespace == p("namespace"), table.c.session == p("session"))
        return select(*columns).where(*here, table.c.is_head.is_(true()), *where)

    return union_all(of(MESSAGES, MESSAGES.c.state.in_(ON_PATH)), of(REBASES))


_SESSION = Statement(
    lambda _: _session_rows().where((SESSIONS.c.id == p("name")) | (SESSIONS.c.external_id == p("name")))
)
_SESSIONS = Statement(
    lambda _: (
        _session_rows()
        .where(SESSIONS.c.id < p("before"))
        .order_by(SESSIONS.c.id.desc())
        .limit(p("limit", Integer))
    )
)
_HEADS = Statement(_heads)
_EXCHANGE_OF_KEY = Statement(
    lambda _: (
        select(EXCHANGES.c.session, EXCHANGES.c.head)
        .where(
            EXCHANGES.c.namespace == p("namespace"),
            EXCHANGES.c.idempotency_key == p("idempotency_key"),
            EXCHANGES.c.idempotency_key.is_not(None),
        )
        .order_by(EXCHANGES.c.id.desc())
        .limit(literal_column("1"))
    )
)
