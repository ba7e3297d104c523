"""Which namespaces the upstream has answered, and what becomes of those it never has (rule 26).

Must not know credentials, nor what of each table goes: that is `app.storage.erase.rules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Double, Select, Table, exists, func, select, update
from sqlalchemy.dialects.postgresql import Insert
from sqlalchemy.sql.expression import literal_column

from app.storage.contract import Standing
from app.storage.database import Database, InsertInto, Params, Reading, Statement, Step, p, rows_of
from app.storage.erase.gone import Gone
from app.storage.erase.rules import OF_UNPROVEN
from app.storage.recall.forgetting import scrubbed
from app.storage.recall.word_index import WordIndex
from app.storage.tables.conversations import MESSAGES, NAMESPACES, SESSIONS

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
    _gone: Gone

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
        # A request on its way would begin what nobody can find: its credential leads elsewhere by then.
        self._gone.add((namespace, ""))
        claim = Step(_CLAIM, [key], needed=True)
        rules = [Step(statement, [key]) for statement in OF_UNPROVEN.values()]
        if not (await self._db.write([claim, *rules]))[0]:
            self._gone.discard((namespace, ""))
            return False
        return True


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
        .where(
            _of_namespace(MESSAGES),
            MESSAGES.c.session.in_(select(SESSIONS.c.id).where(_of_namespace(SESSIONS))),
        )
    )
)
_UNPROVEN = Statement(_unproven)
# Locks the row on PostgreSQL: nobody proves the namespace while its rows go.
_CLAIM = Statement(
    lambda _: (
        update(NAMESPACES)
        .where(NAMESPACES.c.id == p("namespace"), NAMESPACES.c.proven_at.is_(None))
        .values(created_at=NAMESPACES.c.created_at)
    )
)
