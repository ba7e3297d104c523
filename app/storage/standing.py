"""Which namespaces the upstream has answered, and what becomes of those it never has (rule 26).

Must not know credentials. Every table that holds somebody's rows has its rule here (tested); the
rules run in this order, for later ones delete what earlier ones find their rows by.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Delete,
    Double,
    Select,
    Table,
    delete,
    exists,
    func,
    select,
    union,
    update,
)
from sqlalchemy.dialects.postgresql import Insert
from sqlalchemy.sql.expression import literal_column

from app.storage.contract import Standing
from app.storage.database import Database, InsertInto, Params, Reading, Statement, Step, p, rows_of
from app.storage.packing import unpacked
from app.storage.recall.forgetting import nameless, scrubbed
from app.storage.recall.word_index import WordIndex
from app.storage.tables import (
    BODIES,
    CHECKPOINTS,
    COMPACTIONS,
    CREDENTIALS,
    EVENTS,
    EXCHANGES,
    MEMORIES,
    MESSAGES,
    NAMESPACES,
    PINS,
    PREAMBLES,
    REBASES,
    SESSION_SETTINGS,
    SESSIONS,
    SPENDING,
    VARIANTS,
)

# Namespaces remembered as proven; an id is about 100 bytes.
_REMEMBERED = 50_000
# Namespaces erased in one call: each is a transaction that others wait behind.
_AT_ONCE = 16


class Proven:
    """Namespaces known to be proven: nothing is asked or written for them any more."""

    def __init__(self) -> None:
        self._namespaces: set[str] = set()

    def __contains__(self, namespace: str) -> bool:
        return namespace in self._namespaces

    def add(self, namespace: str) -> None:
        """It is remembered. When there are too many, all others are forgotten: that only costs a look."""
        if len(self._namespaces) >= _REMEMBERED:
            self._namespaces.clear()
        self._namespaces.add(namespace)


class StandingRows:
    """Who is proven, and the erasing of who is not."""

    _db: Database
    _words: WordIndex
    _proven: Proven

    async def standing(self, namespace: str) -> Standing:
        """See the contract."""
        if namespace in self._proven:
            return Standing(proven=True, messages=0)
        found = await self._db.near(_standing(namespace))
        if found.proven:
            self._proven.add(namespace)
        return found

    async def erase_unproven(self, before: float) -> Sequence[str]:
        """See the contract. One transaction for each namespace, and then the index of words."""
        rows = await self._db.far(rows_of(_UNPROVEN, {"before": before}))
        erased = [row[0] for row in rows if await self._erase(row[0])]
        if erased:
            await scrubbed(self._db, self._words)
        return erased

    async def _erase(self, namespace: str) -> bool:
        """False when the namespace has been proven in the meantime: nothing is done then."""
        key: Params = {"namespace": namespace}
        packed = await self._db.far(rows_of(_INSTRUCTIONS, key))
        instructions = {digest for row in packed for digest in unpacked(row[0])}
        bodies = [{**key, "digest": digest} for digest in sorted(instructions)]
        steps = [Step(_CLAIM, [key]), *([Step(_ERASE_BODY, bodies)] if bodies else [])]
        done = await self._db.write([*steps, *(Step(statement, [key]) for statement in ERASE.values())])
        return done[-1] > 0


def proving(namespace: str, now: float) -> Step:
    """The step that makes a namespace a proven one, also where nobody has asked for it by a credential."""
    return Step(_PROVE, [{"namespace": namespace, "proven_at": now}])


def _standing(namespace: str) -> Reading[Standing]:
    key = {"namespace": namespace}
    proven = yield from rows_of(_PROVEN, key)
    if proven:
        return Standing(proven=True, messages=0)
    counted = yield from rows_of(_STORED, key)
    return Standing(proven=False, messages=counted[0][0])


def _of_namespace(table: Table) -> ColumnElement[bool]:
    return table.c.namespace == p("namespace")


def _sessions() -> Select[Any]:
    return select(SESSIONS.c.id).where(_of_namespace(SESSIONS))


def _column(table: Table, name: str) -> Select[Any]:
    """A column of the namespace's rows; found by their sessions, which the keys begin with."""
    return select(table.c[name]).where(_of_namespace(table), table.c.session.in_(_sessions()))


def _still_unproven() -> ColumnElement[bool]:
    unproven = NAMESPACES.c.id == p("namespace"), NAMESPACES.c.proven_at.is_(None)
    return exists(select(1).where(*unproven))


def _erasing(table: Table, *where: ColumnElement[bool]) -> Delete:
    return delete(table).where(_of_namespace(table), *where, _still_unproven())


def _erase_of_sessions(_: InsertInto, table: Table) -> Delete:
    return _erasing(table, table.c.session.in_(_sessions()))


def _variant_digests() -> Select[Any]:
    return select(VARIANTS.c.digest).where(
        _of_namespace(VARIANTS), VARIANTS.c.chain.in_(_column(MESSAGES, "chain"))
    )


def _erase_bodies(_: InsertInto) -> Delete:
    listed = union(_column(MESSAGES, "digest"), _variant_digests())
    return _erasing(BODIES, BODIES.c.digest.in_(listed))


def _instructions(_: InsertInto) -> Select[Any]:
    return select(PREAMBLES.c.bodies).where(
        _of_namespace(PREAMBLES), PREAMBLES.c.digest.in_(_column(EXCHANGES, "preamble"))
    )


def _unproven(_: InsertInto) -> Select[Any]:
    """Begun and last used before; one that somebody uses just now is left for later."""
    used = select(1).where(
        SESSIONS.c.namespace == NAMESPACES.c.id, SESSIONS.c.updated_at >= p("before", Double)
    )
    return (
        select(NAMESPACES.c.id)
        .where(NAMESPACES.c.proven_at.is_(None), NAMESPACES.c.created_at < p("before", Double), ~exists(used))
        .order_by(NAMESPACES.c.created_at)
        .limit(literal_column(str(_AT_ONCE)))
    )


def _prove(insert: InsertInto) -> Insert:
    proven_at = p(NAMESPACES.c.proven_at)
    new = insert(NAMESPACES).values(id=p("namespace"), created_at=proven_at, proven_at=proven_at)
    return new.on_conflict_do_update(
        index_elements=[NAMESPACES.c.id],
        set_={"proven_at": new.excluded.proven_at},
        where=NAMESPACES.c.proven_at.is_(None),
    )


_PROVE = Statement(_prove)
_PROVEN = Statement(
    lambda _: select(NAMESPACES.c.id).where(
        NAMESPACES.c.id == p("namespace"), NAMESPACES.c.proven_at.is_not(None)
    )
)
_STORED = Statement(
    lambda _: (
        select(func.count())
        .select_from(MESSAGES)
        .where(_of_namespace(MESSAGES), MESSAGES.c.session.in_(_sessions()))
    )
)
_UNPROVEN = Statement(_unproven)
_INSTRUCTIONS = Statement(_instructions)
_ERASE_BODY = Statement(lambda _: _erasing(BODIES, BODIES.c.digest == p("digest")))

# Locks the row on PostgreSQL: nobody proves the namespace while its rows go.
_CLAIM = Statement(
    lambda _: (
        update(NAMESPACES)
        .where(NAMESPACES.c.id == p("namespace"), NAMESPACES.c.proven_at.is_(None))
        .values(created_at=NAMESPACES.c.created_at)
    )
)

# One rule for each table. `keys` has none: a namespace that has one is proven from the start.
ERASE = {
    "bodies": Statement(_erase_bodies),
    "variants": Statement(lambda _: _erasing(VARIANTS, VARIANTS.c.chain.in_(_column(MESSAGES, "chain")))),
    "preambles": Statement(
        lambda _: _erasing(PREAMBLES, PREAMBLES.c.digest.in_(_column(EXCHANGES, "preamble")))
    ),
    **{
        table.name: Statement(partial(_erase_of_sessions, table=table))
        for table in (
            *(EXCHANGES, REBASES, COMPACTIONS, PINS, MESSAGES),
            *(EVENTS, CHECKPOINTS, MEMORIES, SESSION_SETTINGS),
        )
    },
    "spending": Statement(lambda _: _erasing(SPENDING)),
    # Their words, `recall_words`, go when nothing is found by them any more.
    "recall_marks": Statement(lambda _: nameless(_still_unproven())),
    "sessions": Statement(lambda _: _erasing(SESSIONS)),
    "credentials": Statement(lambda _: _erasing(CREDENTIALS)),
    # Last: the others look at it. Rows touched here say whether anything was erased.
    "namespaces": Statement(
        lambda _: delete(NAMESPACES).where(
            NAMESPACES.c.id == p("namespace"), NAMESPACES.c.proven_at.is_(None)
        )
    ),
}
