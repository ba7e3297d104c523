"""Finding points of history by digest: the two questions every request asks.

Must not know what is decided from the answers. Both are bounded, whatever a namespace holds: a
greeting may open ten thousand sessions, so of the points that share a digest only the sessions
created last are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, LargeBinary, Select, column, exists, or_, select, union_all, values
from sqlalchemy.sql.expression import FromClause, literal_column, true

from app.core.history.known import Known
from app.storage.database import Database, InsertInto, Params, Reading, Row, Statement, p, rows_of
from app.storage.exchange.row_sql import ON_PATH, is_extended, spot_of
from app.storage.tables.conversations import EXCHANGES, MESSAGES, REBASES

# Sessions looked at for one digest, newest first.
TWINS = 64
# Digests asked for at once. Most requests are answered by the first four: the last answer is there.
_SIZES = (4, 32, 256)
_NEAR = _SIZES[0] + _SIZES[1]
_CANONICALS = 8
# How the newest exchange at a point ended without a whole answer. An open one may still be answered.
_FAILED = frozenset({"failed", "rejected", "refused", "incomplete"})


class KnownReads:
    """`known` and `relayed` of the contract."""

    _db: Database

    async def known(self, namespace: str, chains: Sequence[bytes], session: str | None) -> Sequence[Known]:
        """See the contract. Deepest points first; at most 64 sessions for one digest."""
        newest, older = chains[-_NEAR:], chains[:-_NEAR]
        found = await self._db.near(_known(namespace, newest, session))
        if not older or any(point.answers for point in found):
            return found
        if found:
            return [*found, *await self._db.far(_deepest(namespace, older, session, answered=True))]
        return await self._db.far(_known(namespace, older, session))

    async def relayed(
        self, namespace: str, canonicals: Sequence[bytes], session: str | None
    ) -> Sequence[Known]:
        """See the contract. At most 64 sessions for one canonical digest, in the order asked."""
        reading = _relayed(namespace, tuple(dict.fromkeys(canonicals)), session)
        return await (self._db.near(reading) if len(canonicals) <= _NEAR else self._db.far(reading))


def _known(namespace: str, chains: Sequence[bytes], session: str | None) -> Reading[list[Known]]:
    deepest = yield from _deepest(namespace, chains, session, answered=False)
    if not deepest or any(point.answers for point in deepest):
        return deepest
    older = chains[: chains.index(deepest[0].chain)]
    answered = yield from _deepest(namespace, older, session, answered=True)
    return [*deepest, *answered]


def _deepest(
    namespace: str, chains: Sequence[bytes], session: str | None, *, answered: bool
) -> Reading[list[Known]]:
    """The points at the last of `chains` that is stored (`answered`: with a relayed answer)."""
    scope: Params = {"namespace": namespace, "session": session}
    scoped = session is not None
    for part, size in _parts_from_the_end(chains):
        listed = {f"chain_{i}": part[min(i, len(part) - 1)] for i in range(size)}
        rows = yield from rows_of(_PROBES[size, scoped, answered], {**scope, **listed})
        stored = {row[0] for row in rows}
        for chain in reversed(part):
            if chain in stored:
                point = {**scope, "chain": chain}
                messages = yield from rows_of(_MESSAGES_AT[scoped], point)
                rebases = yield from rows_of(_REBASES_AT[scoped], point)
                found = [_point(row) for row in (*messages, *rebases)]
                return [point for point in found if point.answers or not answered]
    return []


def _relayed(namespace: str, canonicals: Sequence[bytes], session: str | None) -> Reading[list[Known]]:
    statement = _RELAYED[session is not None]
    found: list[Known] = []
    for start in range(0, len(canonicals), _CANONICALS):
        part = canonicals[start : start + _CANONICALS]
        # A canonical digest is 32 bytes: the empty one fills up and matches nothing.
        listed = {f"canonical_{i}": part[i] if i < len(part) else b"" for i in range(_CANONICALS)}
        rows = yield from rows_of(statement, {"namespace": namespace, "session": session, **listed})
        found.extend(_point(row) for row in rows)
    order = {canonical: i for i, canonical in enumerate(canonicals)}
    return sorted(found, key=lambda point: order[point.canonical])


def _parts_from_the_end(chains: Sequence[bytes]) -> Iterator[tuple[Sequence[bytes], int]]:
    """Slices of `chains`, last first, each with the size of the statement that asks for it."""
    end, turn = len(chains), 0
    while end > 0:
        size = _SIZES[min(turn, len(_SIZES) - 1)]
        yield chains[max(0, end - size) : end], size
        end, turn = end - size, turn + 1


def _point(row: Row) -> Known:
    return Known(
        session=row[0],
        chain=row[1],
        canonical=row[2],
        role=row[3],
        depth=row[4],
        answers=row[5],
        arrival=row[6],
        relayed=bool(row[7]),
        extended=bool(row[8]),
        failed=row[9] in _FAILED,
        replied=row[9] == "done",
        state=row[10],
        preamble=row[11],
        open=row[9] == "open",
    )


def _scope(table: FromClause, *, scoped: bool) -> list[ColumnElement[bool]]:
    where = [table.c.namespace == p("namespace")]
    return [*where, table.c.session == p("session")] if scoped else where


def _probe(_: InsertInto, size: int, *, scoped: bool, answered: bool) -> Select[Any]:
    """Those of `size` digests that name a stored point."""
    listed = [(p(f"chain_{i}", LargeBinary),) for i in range(size)]
    asked = values(column("chain", LargeBinary), name="asked").data(listed).cte("asked")

    def stored(table: FromClause, *where: ColumnElement[bool]) -> ColumnElement[bool]:
        rows = select(table.c.answers).where(
            *_scope(table, scoped=scoped), table.c.chain == asked.c.chain, *where
        )
        newest = rows.correlate(asked).order_by(table.c.session.desc()).limit(literal_column(str(TWINS)))
        if not answered:
            return exists(rows.correlate(asked))
        recent = newest.subquery()
        return exists(select(1).where(recent.c.answers > 0))

    return select(asked.c.chain).where(or_(stored(MESSAGES, MESSAGES.c.state.in_(ON_PATH)), stored(REBASES)))


def _last_outcome(point: FromClause) -> ColumnElement[Any]:
    """The state of the newest exchange that ended here."""
    return (
        select(EXCHANGES.c.state)
        .where(
            EXCHANGES.c.namespace == point.c.namespace,
            EXCHANGES.c.session == point.c.session,
            EXCHANGES.c.head == point.c.chain,
        )
        .order_by(EXCHANGES.c.arrival.desc())
        .limit(literal_column("1"))
        .scalar_subquery()
    )


def _point_columns(point: FromClause, message: FromClause, relayed: ColumnElement[bool]) -> Select[Any]:
    """A point's own columns, with what is the message's taken from `message`."""
    return select(
        point.c.session,
        point.c.chain,
        message.c.canonical,
        message.c.role,
        point.c.depth,
        point.c.answers,
        point.c.arrival,
        relayed,
        is_extended(spot_of(point)).label("extended"),
        _last_outcome(point).label("outcome"),
        message.c.state,
        point.c.preamble,
    )


def _messages_at(_: InsertInto, *, scoped: bool) -> Select[Any]:
    return (
        _point_columns(MESSAGES, MESSAGES, MESSAGES.c.relayed)
        .where(
            *_scope(MESSAGES, scoped=scoped), MESSAGES.c.chain == p("chain"), MESSAGES.c.state.in_(ON_PATH)
        )
        .order_by(MESSAGES.c.session.desc())
        .limit(literal_column(str(TWINS)))
    )


def _rebases_at(_: InsertInto, *, scoped: bool) -> Select[Any]:
    anchor = MESSAGES.alias("anchor")
    return (
        _point_columns(REBASES, anchor, true().label("relayed"))
        .select_from(REBASES)
        .join(
            anchor,
            (anchor.c.namespace == REBASES.c.namespace)
            & (anchor.c.chain == REBASES.c.anchor)
            & (anchor.c.session == REBASES.c.session),
        )
        .where(*_scope(REBASES, scoped=scoped), REBASES.c.chain == p("chain"))
        .order_by(REBASES.c.session.desc())
        .limit(literal_column(str(TWINS)))
    )


def _relayed_rows(_: InsertInto, *, scoped: bool) -> Select[Any]:
    """One bounded SELECT a canonical digest: SQLite knows no LATERAL, and a LIMIT over all starves some."""
    parts = []
    for i in range(_CANONICALS):
        newest = (
            select(MESSAGES.c.chain, MESSAGES.c.session)
            .where(
                *_scope(MESSAGES, scoped=scoped),
                MESSAGES.c.canonical == p(f"canonical_{i}", LargeBinary),
                MESSAGES.c.relayed.is_(true()),
                MESSAGES.c.state.in_(ON_PATH),
            )
            .limit(literal_column(str(TWINS)))
        )
        parts.append(select(newest.subquery()))
    chosen = union_all(*parts).cte("chosen")
    return (
        _point_columns(MESSAGES, MESSAGES, MESSAGES.c.relayed)
        .join(chosen, (MESSAGES.c.chain == chosen.c.chain) & (MESSAGES.c.session == chosen.c.session))
        .where(MESSAGES.c.namespace == p("namespace"))
        .order_by(MESSAGES.c.session.desc(), MESSAGES.c.arrival.desc())
    )


_MESSAGES_AT = {scoped: Statement(partial(_messages_at, scoped=scoped)) for scoped in (False, True)}
_REBASES_AT = {scoped: Statement(partial(_rebases_at, scoped=scoped)) for scoped in (False, True)}
_RELAYED = {scoped: Statement(partial(_relayed_rows, scoped=scoped)) for scoped in (False, True)}
_PROBES = {
    (size, scoped, answered): Statement(partial(_probe, size=size, scoped=scoped, answered=answered))
    for size in _SIZES
    for scoped in (False, True)
    for answered in (False, True)
}
