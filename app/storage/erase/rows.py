"""Erasing, as units of the rules in `rules`.

Must not know which database runs them. A session's row is locked first, so that whoever writes in it comes
before or after; PostgreSQL also holds back everybody who adds bodies: one that two sessions share must not be
counted while the other session is being written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Integer,
    LargeBinary,
    Select,
    Update,
    exists,
    false,
    func,
    select,
    true,
    union_all,
    update,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import ClauseElement, literal_column

from app.errors import StoreError
from app.storage.database import Database, Params, Reading, Statement, Step, named, p, rows_of
from app.storage.erase import rules
from app.storage.erase.contract import Scrub
from app.storage.erase.gone import Gone
from app.storage.packing import packed
from app.storage.recall.forgetting import forgetting, scrubbed
from app.storage.recall.word_index import WordIndex
from app.storage.tables.conversations import EVENTS, MESSAGES, REBASES, SESSIONS, TOMBSTONES
from app.storage.tables.schema import METADATA

# A unit of 100,000 messages takes some seconds; who asked for it waits, and everybody who writes.
_SECONDS = 120.0
# Whoever names a body says when, by a clock of theirs: it is right within an hour, and a request is stored
# within an hour of its beginning.
_CLOCK_SECONDS = 3600.0
_SESSIONS_AT_ONCE = 50
_MOST_MARKS = 4096
# Tombstones asked for at once.
_MARKS = 64


class EraseRows:
    """See the contract in `app/storage/erase/contract.py`."""

    _db: Database
    _words: WordIndex
    _gone: Gone

    async def erase_session(
        self, namespace: str, session: str, marks: Sequence[bytes], now: float
    ) -> Mapping[str, int] | None:
        """See the contract."""
        key: Params = {"namespace": namespace, "session": session}
        # Before the first look, so that nobody falls between that one and the second.
        since = now - _CLOCK_SECONDS
        shared = await self._db.far(rows_of(rules.SHARED, key), seconds=_SECONDS)
        bodies = {**key, "shared": packed([row[0] for row in shared]), "updated_at": since}
        tombstones = [{"namespace": namespace, "mark": mark, "created_at": now} for mark in marks]
        return await self._erased(
            key,
            {
                **({"tombstones": Step(_BURY, tombstones)} if tombstones else {}),
                "hold": Step(_HOLD_BODIES, [{}]),
                "bodies": Step(rules.BODIES_OF_SESSION, [bodies]),
            },
        )

    async def erase_namespace(self, namespace: str) -> Mapping[str, int]:
        """See the contract."""
        counts: Counter[str] = Counter()
        before: str | None = None
        while found := await self.sessions_before(namespace, before, _SESSIONS_AT_ONCE):
            for session, _ in found:
                counts.update(await self._erased({"namespace": namespace, "session": session}, {}) or {})
            before = found[-1][0]
        key: Params = {"namespace": namespace}
        steps = {
            "hold": Step(_HOLD_BODIES, [{}]),
            "bodies": Step(rules.BODIES_OF_NAMESPACE, [key]),
            **{name: Step(statement, [key]) for name, statement in rules.OF_NAMESPACE.items()},
        }
        touched = await self._db.write(list(steps.values()), urgent=True, seconds=_SECONDS)
        counts.update(_counted(steps, touched))
        return counts

    async def sessions_before(
        self, namespace: str, before: str | None, limit: int
    ) -> Sequence[tuple[str, str | None]]:
        """See the contract."""
        key: Params = {"namespace": namespace, "before": before or _AFTER_ALL, "limit": limit}
        return [(ident, name) for ident, name in await self._db.far(rows_of(_SESSIONS, key))]

    async def digests_of(self, namespace: str, session: str) -> Sequence[bytes]:
        """See the contract."""
        key: Params = {"namespace": namespace, "session": session}
        return [digest for (digest,) in await self._db.far(rows_of(_DIGESTS, key))]

    async def marks_of(self, namespace: str, session: str) -> Sequence[bytes]:
        """See the contract."""
        return await self._db.far(_marks({"namespace": namespace, "session": session}))

    async def has_tombstones(self, namespace: str) -> bool:
        """See the contract."""
        return bool(await self._db.near(rows_of(_ANY_TOMBSTONE, {"namespace": namespace})))

    async def is_buried(self, namespace: str, marks: Sequence[bytes]) -> bool:
        """See the contract."""
        return await self._db.far(_buried(namespace, marks))

    async def scrub(self) -> Scrub:
        """See the contract."""
        await scrubbed(self._db, self._words)
        return await self._db.scrub([table.name for table in METADATA.sorted_tables])

    async def _erased(self, key: Params, first: Mapping[str, Step]) -> Mapping[str, int] | None:
        place = str(key["namespace"]), str(key["session"])
        steps = {
            "claim": Step(_CLAIM, [key], needed=True),
            **first,
            **{name: Step(statement, [key]) for name, statement in rules.OF_SESSION.items()},
            "recall_marks": forgetting(key),
        }
        # Before the unit has its place in line: what comes behind it must find this.
        self._gone.add(place)
        try:
            touched = await self._db.write(list(steps.values()), urgent=True, seconds=_SECONDS)
        except StoreError:
            self._gone.discard(place)
            raise
        return _counted(steps, touched) if touched[0] else None


_ONE: ColumnElement[int] = literal_column("1")
# Sorts after every id.
_AFTER_ALL = "\U0010ffff"
# Steps that count nothing: tombstones are not erased, and an index of words is no row of anybody's.
_UNCOUNTED = frozenset({"claim", "hold", "recall_marks"})


def _counted(steps: Mapping[str, Step], touched: Sequence[int]) -> dict[str, int]:
    return {
        name: rows
        for (name, step), rows in zip(steps.items(), touched, strict=True)
        if name not in _UNCOUNTED and step.statement is not _BURY
    }


def _marks(key: Params) -> Reading[list[bytes]]:
    found = [chain for (chain,) in (yield from rows_of(_FIRST_ANSWERS, key))]
    return found or [chain for (chain,) in (yield from rows_of(_REQUESTS, key))]


def _buried(namespace: str, marks: Sequence[bytes]) -> Reading[bool]:
    for start in range(0, len(marks), _MARKS):
        part = marks[start : start + _MARKS]
        listed = {f"mark_{i}": part[min(i, len(part) - 1)] for i in range(_MARKS)}
        if (yield from rows_of(_BURIED, {"namespace": namespace, **listed})):
            return True
    return False


class _HoldBodies(ClauseElement):
    """Until the unit ends nobody else adds bodies. SQLite has one writer: nothing is to be done there."""

    inherit_cache = False


@compiles(_HoldBodies)
def _hold_nobody(element: _HoldBodies, compiler: SQLCompiler, **_: Any) -> str:
    del element, compiler
    return "DELETE FROM leases WHERE 0"


@compiles(_HoldBodies, "postgresql")
def _hold_bodies(element: _HoldBodies, compiler: SQLCompiler, **_: Any) -> str:
    del element, compiler
    return "LOCK TABLE bodies IN SHARE ROW EXCLUSIVE MODE"


def _claim() -> Update:
    """Locks the row, and defeats whoever has read the epoch."""
    here = (SESSIONS.c.namespace == p("namespace"), SESSIONS.c.id == p("session"))
    return update(SESSIONS).where(*here).values(epoch=SESSIONS.c.epoch + _ONE)


def _first_answers() -> Select[Any]:
    firsts = select(MESSAGES.c.chain).where(
        rules.SESSION.of(MESSAGES), MESSAGES.c.relayed.is_(true()), MESSAGES.c.answers == _ONE
    )
    rebased = select(REBASES.c.chain).where(rules.SESSION.of(REBASES), REBASES.c.answers >= _ONE)
    every = union_all(firsts, _retold(), rebased, _import_ends()).subquery()
    return select(every.c.chain).limit(literal_column(str(_MOST_MARKS)))


def _retold() -> Select[Any]:
    """What the client sent in the place of a first answer: nothing we relayed comes back in such a list."""
    first = MESSAGES.alias("first")
    stands_there = exists(
        select(_ONE).where(
            first.c.session == MESSAGES.c.session,
            first.c.parent == MESSAGES.c.parent,
            first.c.namespace == MESSAGES.c.namespace,
            first.c.relayed.is_(true()),
        )
    )
    return select(MESSAGES.c.chain).where(
        rules.SESSION.of(MESSAGES),
        MESSAGES.c.role == literal_column("'assistant'"),
        MESSAGES.c.relayed.is_(false()),
        MESSAGES.c.answers < _ONE,
        stands_there,
    )


def _import_ends() -> Select[Any]:
    """Of a session that was imported the last message that came so: nobody relayed an answer in it.

    All messages of an import arrive before its first event.
    """
    event = select(func.min(EVENTS.c.seq)).where(rules.SESSION.of(EVENTS)).scalar_subquery()
    ends = (
        select(func.max(MESSAGES.c.arrival))
        .where(rules.SESSION.of(MESSAGES), MESSAGES.c.arrival < event)
        .scalar_subquery()
    )
    imported = exists(
        select(_ONE).where(
            SESSIONS.c.namespace == p("namespace"),
            SESSIONS.c.id == p("session"),
            SESSIONS.c.found_by == literal_column("'import'"),
        )
    )
    return select(MESSAGES.c.chain).where(rules.SESSION.of(MESSAGES), MESSAGES.c.arrival == ends, imported)


_HOLD_BODIES = Statement(lambda _: _HoldBodies())
_CLAIM = Statement(lambda _: _claim())
_BURY = Statement(lambda insert: insert(TOMBSTONES).values(named(TOMBSTONES)).on_conflict_do_nothing())
_SESSIONS = Statement(
    lambda _: (
        select(SESSIONS.c.id, SESSIONS.c.external_id)
        .where(SESSIONS.c.namespace == p("namespace"), SESSIONS.c.id < p("before"))
        .order_by(SESSIONS.c.id.desc())
        .limit(p("limit", Integer))
    )
)
_DIGESTS = Statement(lambda _: rules.digests(rules.SESSION))
_FIRST_ANSWERS = Statement(lambda _: _first_answers())
_REQUESTS = Statement(
    lambda _: (
        select(MESSAGES.c.chain)
        .where(rules.SESSION.of(MESSAGES), MESSAGES.c.is_head.is_(true()))
        .limit(literal_column(str(_MOST_MARKS)))
    )
)
_ANY_TOMBSTONE = Statement(
    lambda _: select(TOMBSTONES.c.mark).where(TOMBSTONES.c.namespace == p("namespace")).limit(_ONE)
)
_BURIED = Statement(
    lambda _: (
        select(TOMBSTONES.c.mark)
        .where(
            TOMBSTONES.c.mark.in_([p(f"mark_{i}", LargeBinary) for i in range(_MARKS)]),
            TOMBSTONES.c.namespace == p("namespace"),
        )
        .limit(_ONE)
    )
)
