"""What is kept of a session besides its messages: its branches and its pins.

Must not know how a session is found by its messages nor how a view is made. Session and exchange
ids grow with time (UUIDv7), so that they order listings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Exists,
    Integer,
    LargeBinary,
    Select,
    Table,
    delete,
    exists,
    func,
    select,
    union_all,
)
from sqlalchemy.sql.expression import literal_column, true

from app.storage.branches import heads_of
from app.storage.contract import Head, SessionRow
from app.storage.database import (
    Database,
    InsertInto,
    Params,
    Row,
    Statement,
    Step,
    p,
    plain,
    rows_of,
)
from app.storage.exchange.asked import Asked
from app.storage.exchange.row_sql import arriving
from app.storage.journal_sql.arrivals import drawing
from app.storage.naming import BEGINS_UNSEEN, AnsweredAs, NamedSession
from app.storage.pins import PinRow
from app.storage.tables.conversations import (
    COMPACTIONS,
    EXCHANGES,
    HIDDEN_ROUNDS,
    MESSAGES,
    PINS,
    SESSIONS,
)

# Sorts after every id.
_AFTER_ALL = "\U0010ffff"
# Sorts after every digit of an id, whatever the database's collation.
_AFTER_DIGITS = "g"
_MOST_HEADS = 8
_MOST_LISTED = 50
# The fields of `NamedSession`, in order.
_NAMED_COLUMNS = ("id", "external_id", "epoch", "full_history", "appends")
# The fields of `Asked`, in order.
_SIZES = ("head", "model", "tokens_full", "tokens_forwarded", "prompt_tokens", "compaction", "finished_at")


class SessionRows:
    """Sessions, branches and pins."""

    _db: Database

    async def named(self, namespace: str, name: str) -> NamedSession | None:
        """See the contract."""
        rows = await self._db.near(rows_of(_NAMED, {"namespace": namespace, "name": plain(name)}))
        found = sorted(rows, key=lambda row: bool(row[0] != name))
        if not found:
            return None
        ident, external_id, epoch, full_history, appends = found[0]
        return NamedSession(ident, external_id, epoch, bool(full_history), bool(appends))

    async def session(self, namespace: str, name: str) -> SessionRow | None:
        """See the contract."""
        key = {"namespace": namespace, "name": plain(name)}
        rows = await self._db.far(rows_of(_SESSION, key))
        # Our own id first: a client may have named its session like one of ours.
        found = sorted((_session(row) for row in rows), key=lambda row: row.id != name)
        return found[0] if found else None

    async def sessions(
        self, namespace: str, limit: int, before: str | None, *, with_side: bool = True
    ) -> Sequence[SessionRow]:
        """See the contract."""
        key = {"namespace": namespace, "before": plain(before) if before else _AFTER_ALL, "limit": limit}
        return [_session(row) for row in await self._db.far(rows_of(_SESSIONS[with_side], key))]

    async def session_count(self, namespace: str, prefix: str, *, with_side: bool = True) -> int:
        """See the contract."""
        key = {"namespace": namespace, "first": prefix, "last": prefix + _AFTER_DIGITS}
        count: int = (await self._db.far(rows_of(_SESSION_COUNT[with_side], key)))[0][0]
        return count

    async def asked(self, namespace: str, session: str, heads: Sequence[bytes]) -> Asked | None:
        """See the contract."""
        if not heads:
            return None
        listed = {f"head_{i}": heads[min(i, len(heads) - 1)] for i in range(_MOST_HEADS)}
        key: Params = {"namespace": namespace, "session": session, **listed}
        rows = await self._db.near(rows_of(_ASKED, key))
        return Asked(*rows[0]) if rows else None

    async def newest_asked(self, namespace: str, sessions: Sequence[str]) -> Mapping[str, Asked]:
        """See the contract."""
        if not sessions:
            return {}
        listed = {f"session_{i}": sessions[min(i, len(sessions) - 1)] for i in range(_MOST_LISTED)}
        rows = await self._db.far(rows_of(_NEWEST_ASKED, {"namespace": namespace, **listed}))
        return {session: Asked(*asked) for session, *asked in rows}

    async def heads(self, namespace: str, session: str) -> Sequence[Head]:
        """See the contract (rule 33)."""
        return await self._db.far(heads_of(namespace, session))

    async def exchange_of_key(self, namespace: str, idempotency_key: str) -> tuple[str, bytes] | None:
        """See the contract."""
        key = {"namespace": namespace, "idempotency_key": plain(idempotency_key)}
        rows = await self._db.near(rows_of(_EXCHANGE_OF_KEY, key))
        return (rows[0][0], rows[0][1]) if rows else None

    async def answered_as(self, namespace: str, response_id: str) -> AnsweredAs | None:
        """See the contract."""
        key = {"namespace": namespace, "response_id": plain(response_id)}
        rows = await self._db.near(rows_of(_ANSWERED_AS, key))
        if not rows:
            return None
        session, chain, preamble, hidden, mode = rows[0]
        return AnsweredAs(session, chain, preamble, bool(hidden), mode == BEGINS_UNSEEN)

    async def pins(self, namespace: str, session: str) -> Sequence[PinRow]:
        """See the contract."""
        rows = await self._db.near(rows_of(_PINS, {"namespace": namespace, "session": session}))
        return [PinRow(chain, at, lifted_at is not None) for chain, at, lifted_at in rows]

    async def add_pin(self, namespace: str, session: str, chain: bytes, now: float) -> None:
        """See the contract. Nothing happens when there is no such session."""
        await self._put_pin(namespace, session, chain, now, lifted_at=None)

    async def lift_pin(self, namespace: str, session: str, chain: bytes, now: float) -> None:
        """See the contract. Nothing happens when there is no such session."""
        await self._put_pin(namespace, session, chain, now, lifted_at=now)

    async def _put_pin(
        self, namespace: str, session: str, chain: bytes, now: float, *, lifted_at: float | None
    ) -> None:
        key: Params = {"namespace": namespace, "session": session, "chain": chain}
        pin = {**key, "created_at": now, "lifted_at": lifted_at, "back": 0}
        await self._db.write([drawing(key, 1), Step(_PUT_PIN, [pin])])

    async def remove_pin(self, namespace: str, session: str, chain: bytes) -> bool:
        """See the contract."""
        key: Params = {"namespace": namespace, "session": session, "chain": chain}
        (removed,) = await self._db.write([Step(_REMOVE_PIN, [key])])
        return removed > 0


def _session(row: Row) -> SessionRow:
    is_side, *rest = row
    found = SessionRow(*rest)
    return replace(found, full_history=bool(found.full_history), is_side=bool(is_side))


def _counted(table: Table) -> ColumnElement[int]:
    return (
        select(func.count())
        .select_from(table)
        .where(table.c.namespace == SESSIONS.c.namespace, table.c.session == SESSIONS.c.id)
        .scalar_subquery()
    )


def _session_rows() -> Select[Any]:
    columns = (
        *("is_side", "id", "external_id", "epoch", "found_by", "model", "full_history"),
        *("created_at", "updated_at"),
    )
    return select(
        *(SESSIONS.c[name] for name in columns),
        *(_counted(table) for table in (MESSAGES, EXCHANGES, COMPACTIONS)),
    ).where(SESSIONS.c.namespace == p("namespace"))


def _sessions(_: InsertInto, *, with_side: bool) -> Select[Any]:
    rows = _session_rows().where(SESSIONS.c.id < p("before"))
    rows = rows if with_side else rows.where(SESSIONS.c.is_side.is_not(true()))
    return rows.order_by(SESSIONS.c.id.desc()).limit(p("limit", Integer))


def _session_count(_: InsertInto, *, with_side: bool) -> Select[Any]:
    counted = (
        select(func.count())
        .select_from(SESSIONS)
        .where(
            SESSIONS.c.namespace == p("namespace"),
            SESSIONS.c.id >= p("first"),
            SESSIONS.c.id < p("last"),
        )
    )
    return counted if with_side else counted.where(SESSIONS.c.is_side.is_not(true()))


def _has_hidden() -> Exists:
    """Something was hidden of an exchange's answer."""
    return exists(
        select(1).where(
            HIDDEN_ROUNDS.c.session == EXCHANGES.c.session,
            HIDDEN_ROUNDS.c.chain == EXCHANGES.c.answer,
            HIDDEN_ROUNDS.c.namespace == p("namespace"),
        )
    )


def _newest_asked(_: InsertInto) -> Select[Any]:
    newest = (
        select(EXCHANGES.c.session, func.max(EXCHANGES.c.arrival).label("arrival"))
        .where(
            EXCHANGES.c.session.in_([p(f"session_{i}") for i in range(_MOST_LISTED)]),
            EXCHANGES.c.namespace == p("namespace"),
            EXCHANGES.c.tokens_full.is_not(None),
            EXCHANGES.c.mark.is_(None),
        )
        .group_by(EXCHANGES.c.session)
        .subquery()
    )
    same = (EXCHANGES.c.session == newest.c.session) & (EXCHANGES.c.arrival == newest.c.arrival)
    columns = (EXCHANGES.c[name] for name in ("session", *_SIZES))
    return select(*columns).join(newest, same).where(EXCHANGES.c.namespace == p("namespace"))


# Two selects: for an OR, SQLite reads the whole namespace.
_SESSION = Statement(
    lambda _: union_all(
        *(_session_rows().where(SESSIONS.c[name] == p("name")) for name in ("id", "external_id"))
    )
)
_NAMED = Statement(
    lambda _: union_all(
        *(
            select(*(SESSIONS.c[column] for column in _NAMED_COLUMNS)).where(
                SESSIONS.c.namespace == p("namespace"), SESSIONS.c[name] == p("name")
            )
            for name in ("id", "external_id")
        )
    )
)
_SESSIONS = {with_side: Statement(partial(_sessions, with_side=with_side)) for with_side in (False, True)}
_SESSION_COUNT = {
    with_side: Statement(partial(_session_count, with_side=with_side)) for with_side in (False, True)
}
_ASKED = Statement(
    lambda _: (
        select(*(EXCHANGES.c[name] for name in _SIZES))
        .where(
            EXCHANGES.c.session == p("session"),
            EXCHANGES.c.head.in_([p(f"head_{i}", LargeBinary) for i in range(_MOST_HEADS)]),
            EXCHANGES.c.namespace == p("namespace"),
            EXCHANGES.c.tokens_full.is_not(None),
        )
        .order_by(EXCHANGES.c.arrival.desc())
        .limit(literal_column("1"))
    )
)
_NEWEST_ASKED = Statement(_newest_asked)
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
_ANSWERED_AS = Statement(
    lambda _: (
        select(*(EXCHANGES.c[c] for c in ("session", "answer", "preamble")), _has_hidden(), EXCHANGES.c.mode)
        .where(
            EXCHANGES.c.namespace == p("namespace"),
            EXCHANGES.c.response_id == p("response_id"),
            EXCHANGES.c.response_id.is_not(None),
            EXCHANGES.c.answer.is_not(None),
        )
        .order_by(EXCHANGES.c.id.desc())
        .limit(literal_column("1"))
    )
)
_PINS = Statement(
    lambda _: (
        select(PINS.c.chain, PINS.c.created_at, PINS.c.lifted_at)
        .where(PINS.c.namespace == p("namespace"), PINS.c.session == p("session"))
        .order_by(PINS.c.arrival)
    )
)
_PUT_PIN = Statement(
    lambda insert: arriving(
        insert, PINS, ("namespace", "session", "chain", "created_at", "lifted_at")
    ).on_conflict_do_update(
        index_elements=[PINS.c.session, PINS.c.chain, PINS.c.namespace],
        set_={"lifted_at": p("lifted_at", PINS.c.lifted_at.type)},
    )
)
_REMOVE_PIN = Statement(
    lambda _: delete(PINS).where(
        PINS.c.namespace == p("namespace"),
        PINS.c.session == p("session"),
        PINS.c.chain == p("chain"),
        PINS.c.lifted_at.is_(None),
    )
)
