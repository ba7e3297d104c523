"""Erases a session, a whole namespace, or the namespaces that the upstream never answered.

Guarantees
----------
* A session is hidden in one transaction: a reader sees all of it or nothing. Its rows are then deleted in
  slices, between which other callers write; a scrub deletes what a kill leaves of them. Bodies that another
  row of the namespace names stay.
* A later write for an erased session, or for one of its exchanges, stores nothing and raises nothing:
  requests, answers, partial answers, compactions with their entries, events, checkpoints, memories,
  settings, pins (rule 30). Its id is never used again.
* An erased namespace keeps its id, its credentials and its keys, which contain no text. Without them a
  request in progress would store rows that nobody could find or erase again.
* Deleting is not scrubbing: copies of deleted rows stay in the database's files until `scrub` has run.

The session's row is locked first, so other writers of the session come before or find it gone. On PostgreSQL
a slice of bodies also blocks inserts of bodies: one that two sessions share must not be judged while the
other session is being written.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

from palimpsest.core.history.message import INSTRUCTION_ROLES
from palimpsest.errors import StoreError
from palimpsest.storage import erasure_rules as rules
from palimpsest.storage.database import (
    Params,
    Reading,
    Recent,
    Repository,
    Row,
    Scrub,
    SqlDatabase,
    Step,
    Unit,
    p,
    rows_of,
    step,
)
from palimpsest.storage.retention import AT_REST
from palimpsest.storage.search_index import forgetting, scrub_words
from palimpsest.storage.sql import (
    AFTER_ALL_IDS,
    AFTER_UNFINISHED,
    HAS_BODY,
    LIMIT,
    ONE,
    SESSION_ROW,
    UNFINISHED,
    Query,
    among,
    bodies_of,
    columns_of,
    grouped,
    most,
    new_row,
    of_namespace,
    of_session,
    packed,
    rows_among,
    sized,
    there_is,
    unfinished,
    unpacked,
)
from palimpsest.storage.tables import (
    BODIES,
    EVENTS,
    MESSAGES,
    METADATA,
    NAMESPACES,
    PREAMBLES,
    REBASES,
    SESSIONS,
    TOMBSTONES,
)

# What is read of a large namespace takes seconds.
_SECONDS = 120.0
# `updated_at` comes from the writing server's clock, which is assumed to be right within an hour; a request
# is stored within an hour of its start.
_CLOCK_SECONDS = 3600.0
_SESSIONS_AT_ONCE = 50
_SHORT_AT_ONCE = 256
# Namespaces erased in one call: each is a transaction.
_NAMESPACES_AT_ONCE = most(16)
_MOST_MARKS = most(4096)
# Tombstones looked up by one statement.
_MARKS = 64
# Steps whose rows are not reported: tombstones are not erased, and the word index has no rows of a caller.
_UNCOUNTED = frozenset({"claim", "hold", "bury", "recall_marks"})


@dataclass(frozen=True, slots=True)
class LoneRequest:
    """A session whose requests nobody continued: when it was asked, and with which bodies."""

    session: str
    at: float
    instructions: list[bytes]
    asked: list[bytes]


class RecentlyErased(Recent[tuple[str, str]]):
    """The ids erased last, in memory: requests that began before the erase must not store anything again.

    Pairs of namespace and session; the session "" stands for a whole namespace. Ids are never reused, so an
    entry dropped from here could only be missed by work that began hours ago.
    """


class Erasure(Repository):
    """See the module docstring; `palimpsest.storage.store` states the guarantees of every method."""

    def __init__(self, database: SqlDatabase, erased: RecentlyErased) -> None:
        super().__init__(database)
        self._erased = erased
        # The sessions whose rows are being deleted.
        self._erasing: set[tuple[str, str]] = set()

    async def session(
        self,
        namespace: str,
        session: str,
        marks: Sequence[bytes],
        now: float,
        *,
        unused_since: float | None = None,
    ) -> Mapping[str, int] | None:
        """Erase the session; returns the deleted rows by table, or None when it does not exist.

        The tombstones `marks` are stored when it is hidden. With `unused_since`, also None, and nothing
        deleted, when it was written to after that or has an open exchange.
        """
        key = _key(namespace, session)
        tombstones = [{"namespace": namespace, "mark": mark, "created_at": now} for mark in marks]
        return await self._erase(key, tombstones, partial(self._delete_session, now=now), unused_since)

    async def namespace(self, namespace: str, now: float) -> dict[str, int]:
        """Erase the sessions that exist at the call, and the namespace's sums, tombstones and leases.

        Returns the deleted rows by table. A reader may see some sessions gone and others not yet. A repeated
        call after a failure continues.
        """
        counts: Counter[str] = Counter()
        before: str | None = None
        while found := await self.sessions(namespace, before, _SESSIONS_AT_ONCE):
            for session, _ in found:
                counts.update(await self._erase(_key(namespace, session), [], self._delete_rows) or {})
            before = found[-1][0]
        key = _key(namespace, "")
        unnamed = await self._db.read_snapshot(rows_of(rules.UNNAMED, **key), seconds=_SECONDS)
        counts["bodies"] += await self._delete_bodies(key, unnamed, now)
        steps = {name: Step(statement, [key]) for name, statement in rules.OF_NAMESPACE.items()}
        counts.update(
            _counted(steps, await self._db.write(list(steps.values()), pace="urgent", seconds=_SECONDS))
        )
        return counts

    async def drop_import(self, namespace: str, session: str) -> None:
        """The import has failed: the next scrub deletes what was written of it."""
        await self._wrote(GIVE_UP_IMPORT, **_key(namespace, session))

    async def is_unfinished(self) -> bool:
        """True when rows of hidden sessions are left, which the next scrub deletes."""
        return bool(await self._rows(_UNFINISHED))

    async def unproven(self, before: float) -> list[str]:
        """Erase unproven namespaces that were created and last used before `before`; returns their ids.

        At most 16 per call, the oldest first, each in its own transaction. Namespaces of issued keys are
        proven from the start.
        """
        rows = await self._rows(_UNPROVEN, before=before)
        erased = [namespace for (namespace,) in rows if await self._erase_unproven(namespace)]
        if erased:
            await scrub_words(self._db)
        return erased

    async def sessions(self, namespace: str, before: str | None, limit: int) -> list[tuple[str, str | None]]:
        """Ids and client names, newest first, starting after the id `before`."""
        asked = {"namespace": namespace, "before": before or AFTER_ALL_IDS, "limit": limit}
        return [(ident, name) for ident, name in await self._rows(_SESSIONS, **asked)]

    async def lone_requests(
        self, namespace: str, session: str, before: str | None
    ) -> tuple[list[LoneRequest], str | None]:
        """Sessions other than this one whose requests nobody continued, the newest first, and where to go on.

        Of 256 sessions before the id `before` (None: all); None: there are no more.
        """
        asked = {"namespace": namespace, "session": session, "before": before or AFTER_ALL_IDS}
        return await self._db.read_snapshot(_lone_requests(asked))

    async def body_digests(self, namespace: str, session: str) -> list[bytes]:
        """The sha256 of every body of the session."""
        rows = await self._rows(_DIGESTS, namespace=namespace, session=session)
        return [digest for (digest,) in rows]

    async def marks(self, namespace: str, session: str) -> list[bytes]:
        """The chains that identify a client's list as this session, at most 4096.

        Those of the first relayed answer of each path, of messages the client sent in its place, of rebases
        and of the end of an import; in a session without any of these, of its requests.
        """
        return await self._db.read_snapshot(_marks({"namespace": namespace, "session": session}))

    async def has_tombstones(self, namespace: str) -> bool:
        """True when the namespace has any; reads one row inline."""
        return bool(await self._few(_ANY_TOMBSTONE, namespace=namespace))

    async def is_buried(self, namespace: str, marks: Sequence[bytes]) -> bool:
        """True when a tombstone exists for one of `marks`."""
        return await self._db.read_snapshot(_is_buried(namespace, marks))

    async def scrub(self) -> Scrub:
        """Finish erases that were cut, and scrub deleted rows, as far as the database can. StoreError."""
        for hidden, session in await self._rows(_UNFINISHED):
            if (place := (hidden.removeprefix(UNFINISHED), session)) not in self._erasing:
                await self._delete_session(_key(*place), time.time())
        await scrub_words(self._db)
        return await self._db.scrub([table.name for table in METADATA.sorted_tables])

    async def _erase(
        self,
        key: Params,
        tombstones: Sequence[Params],
        delete: Callable[[Params], Awaitable[Mapping[str, int]]],
        unused_since: float | None = None,
    ) -> Mapping[str, int] | None:
        """Hide the session and delete its rows; None when it may stay, or does not exist."""
        place = str(key["namespace"]), str(key["session"])
        self._erasing.add(place)
        try:
            return await delete(key) if await self._hide(key, tombstones, unused_since) else None
        finally:
            self._erasing.discard(place)

    async def _hide(
        self, key: Params, tombstones: Sequence[Params], unused_since: float | None = None
    ) -> bool:
        """From here on nobody reads the session or writes to it. False: it may stay, or does not exist."""
        place = str(key["namespace"]), str(key["session"])
        claim = step(_CLAIM, **key) if unused_since is None else step(_CLAIM_UNUSED, **key, at=unused_since)
        steps = [replace(claim, needed=True), forgetting(key)]
        # Before the unit is queued: a request queued behind it must find this entry. A session that may stay
        # exists: the request's own unit finds out what became of it.
        if unused_since is None:
            self._erased.add(place)
        try:
            bury = [Step(_BURY, tombstones)] if tombstones else []
            touched = await self._db.write([*steps, *bury], pace="urgent", seconds=_SECONDS)
        except StoreError:
            self._erased.discard(place)
            raise
        if touched[0]:
            self._erased.add(place)
        return touched[0] > 0

    async def _delete_session(self, key: Params, now: float) -> Mapping[str, int]:
        """Delete all of a hidden session; returns the rows by table."""
        alone = await self._db.read_snapshot(rows_of(rules.ALONE, **key), seconds=_SECONDS)
        counts = Counter(bodies=await self._delete_bodies(key, alone, now))
        counts.update(await self._delete_rows(key))
        return counts

    async def _delete_bodies(self, key: Params, rows: Sequence[Row], now: float) -> int:
        """Delete these bodies in slices; those stay that another session has come to name meanwhile."""
        given = {**key, "updated_at": now - _CLOCK_SECONDS}
        deleted = 0
        for start in range(0, len(rows), rules.SLICE_ROWS):
            alone = packed([row[0] for row in rows[start : start + rules.SLICE_ROWS]])
            bodies = step(rules.SOME_BODIES, **given, alone=alone)
            deleted += (await self._delete([Step(_HOLD_BODIES, [{}]), bodies]))[1]
        return deleted

    async def _delete_rows(self, key: Params) -> Mapping[str, int]:
        """Delete the rows of a hidden session, its own row last; returns how many by table."""
        counts: Counter[str] = Counter()
        held = await self._rows(_ARRIVALS, **key)
        if held and held[0][0] > rules.SLICE_ROWS:
            for name, statement in rules.SOME_OF_SESSION.items():
                while gone := (await self._delete([step(statement, **key)]))[0]:
                    counts[name] += gone
        steps = {name: Step(statement, [key]) for name, statement in rules.OF_SESSION.items()}
        counts.update(_counted(steps, await self._delete(list(steps.values()))))
        return counts

    async def _delete(self, unit: Unit) -> Sequence[int]:
        return await self._db.write(unit, pace="urgent", seconds=_SECONDS)

    async def _erase_unproven(self, namespace: str) -> bool:
        """False, and nothing deleted, when the namespace has been proven in the meantime."""
        key = _key(namespace, "")
        # A request in progress would begin a session nobody can find: its credential gets a new namespace.
        self._erased.add((namespace, ""))
        claim = Step(_CLAIM_UNPROVEN, [key], needed=True)
        steps = [Step(statement, [key]) for statement in rules.OF_UNPROVEN.values()]
        if not (await self._db.write([claim, *steps]))[0]:
            self._erased.discard((namespace, ""))
            return False
        return True


def _key(namespace: str, session: str) -> Params:
    return {"namespace": namespace, "session": session, "hidden": unfinished(namespace)}


def _counted(steps: Mapping[str, Step], touched: Sequence[int]) -> dict[str, int]:
    return {name: rows for name, rows in zip(steps, touched, strict=True) if name not in _UNCOUNTED}


def _marks(key: Params) -> Reading[list[bytes]]:
    found = yield from rows_of(_FIRST_ANSWERS, **key)
    return [chain for (chain,) in found or (yield from rows_of(_REQUESTS, **key))]


def _lone_requests(asked: Params) -> Reading[tuple[list[LoneRequest], str | None]]:
    sessions = [row[0] for row in (yield from rows_of(_SHORT_SESSIONS, **asked))]
    rows = yield from rows_among(_ASKED_IN, "session", sessions, namespace=asked["namespace"])
    packs = {pack for *_, pack in rows if pack}
    digests = {digest for pack in packs for digest in unpacked(pack)}
    bodies = yield from bodies_of(str(asked["namespace"]), digests)
    found: dict[str, LoneRequest] = {}
    continued = {row[0] for row in rows if row[3] or row[2] not in ("user", *INSTRUCTION_ROLES)}
    for session, at, _, _, body, pack in rows:
        if session not in continued:
            one = found.setdefault(session, LoneRequest(session, at, [], []))
            one.asked.append(body)
            one.instructions[:] = [bodies[digest] for digest in unpacked(pack or b"") if digest in bodies]
    return list(found.values()), sessions[-1] if len(sessions) == _SHORT_AT_ONCE else None


def _is_buried(namespace: str, marks: Sequence[bytes]) -> Reading[bool]:
    for group, _ in grouped("mark", marks, (_MARKS,)):
        if (yield from rows_of(_BURIED, namespace=namespace, **group)):
            return True
    return False


class _HoldBodies(sa.ClauseElement):
    """No other transaction inserts bodies until the unit ends. A no-op on SQLite, which has one writer."""

    inherit_cache = False


@compiles(_HoldBodies)
def _hold_nobody(element: _HoldBodies, compiler: SQLCompiler, **_: Any) -> str:
    del element, compiler
    return "DELETE FROM leases WHERE 0"


@compiles(_HoldBodies, "postgresql")
def _hold_bodies(element: _HoldBodies, compiler: SQLCompiler, **_: Any) -> str:
    del element, compiler
    return "LOCK TABLE bodies IN SHARE ROW EXCLUSIVE MODE"


def _first_answers() -> Query:
    firsts = sa.select(MESSAGES.c.chain).where(
        of_session(MESSAGES), MESSAGES.c.relayed.is_(sa.true()), MESSAGES.c.answers == ONE
    )
    rebased = sa.select(REBASES.c.chain).where(of_session(REBASES), REBASES.c.answers >= ONE)
    every = sa.union_all(firsts, _rewritten_answers(), rebased, _import_ends()).subquery()
    return sa.select(every.c.chain).limit(_MOST_MARKS)


def _rewritten_answers() -> Query:
    """Messages the client sent in place of a first answer: no relayed answer comes back in such a list."""
    first = MESSAGES.alias("first")
    stands_there = there_is(
        first.c.session == MESSAGES.c.session,
        first.c.parent == MESSAGES.c.parent,
        first.c.namespace == MESSAGES.c.namespace,
        first.c.relayed.is_(sa.true()),
    )
    return sa.select(MESSAGES.c.chain).where(
        of_session(MESSAGES),
        MESSAGES.c.role == sa.literal_column("'assistant'"),
        MESSAGES.c.relayed.is_(sa.false()),
        MESSAGES.c.answers < ONE,
        stands_there,
    )


def _import_ends() -> Query:
    """The last imported message of an imported session, in which no answer was relayed.

    All messages of an import arrive before its first event.
    """
    event = sa.select(sa.func.min(EVENTS.c.seq)).where(of_session(EVENTS)).scalar_subquery()
    end = sa.select(sa.func.max(MESSAGES.c.arrival)).where(of_session(MESSAGES), MESSAGES.c.arrival < event)
    imported = there_is(SESSION_ROW, SESSIONS.c.found_by == sa.literal_column("'import'"))
    return sa.select(MESSAGES.c.chain).where(
        of_session(MESSAGES), MESSAGES.c.arrival == end.scalar_subquery(), imported
    )


def _unproven() -> Query:
    """Unproven namespaces created and last used before `before`."""
    before = p("before", sa.Double)
    used = sa.select(1).where(SESSIONS.c.namespace == NAMESPACES.c.id, SESSIONS.c.updated_at >= before)
    unused = (NAMESPACES.c.proven_at.is_(None), NAMESPACES.c.created_at < before, ~sa.exists(used))
    oldest = sa.select(NAMESPACES.c.id).where(*unused).order_by(NAMESPACES.c.created_at)
    return oldest.limit(_NAMESPACES_AT_ONCE)


_HOLD_BODIES = _HoldBodies()
# Locks the row, and makes writes fail that are fenced by the old epoch.
_HIDDEN = {
    "namespace": p("hidden", sa.Text),
    "external_id": sa.null(),
    "found_by": rules.ERASED,
    "epoch": SESSIONS.c.epoch + ONE,
}
_CLAIM = sa.update(SESSIONS).where(SESSION_ROW).values(_HIDDEN)
# As `_CLAIM`. On PostgreSQL a row that another server has just written is looked at again: a request and its
# answer both change `updated_at`.
_CLAIM_UNUSED = (
    sa.update(SESSIONS)
    .where(SESSION_ROW, SESSIONS.c.updated_at <= p("at", sa.Double), AT_REST)
    .values(_HIDDEN)
)
# Locks the row on PostgreSQL: nobody proves the namespace while its rows are deleted.
_CLAIM_UNPROVEN = (
    sa.update(NAMESPACES)
    .where(NAMESPACES.c.id == p("namespace"), NAMESPACES.c.proven_at.is_(None))
    .values(created_at=NAMESPACES.c.created_at)
)
_UNPROVEN = _unproven()
_ARRIVALS = sa.select(SESSIONS.c.arrivals).where(
    SESSIONS.c.id == p("session"), SESSIONS.c.namespace == p("hidden", sa.Text)
)
_IS_HIDDEN = sa.and_(SESSIONS.c.namespace >= UNFINISHED, SESSIONS.c.namespace < AFTER_UNFINISHED)
_UNFINISHED = sa.select(SESSIONS.c.namespace, SESSIONS.c.id).where(
    _IS_HIDDEN, SESSIONS.c.found_by == rules.ERASED
)
GIVE_UP_IMPORT = (
    sa.update(SESSIONS)
    .where(SESSIONS.c.id == p("session"), SESSIONS.c.namespace == p("hidden", sa.Text))
    .values(found_by=rules.ERASED)
)
# At a start: imports that a kill has cut, of a time at which no other server writes them any more.
GIVE_UP_IMPORTS = (
    sa.update(SESSIONS)
    .where(_IS_HIDDEN, SESSIONS.c.updated_at < p("before", sa.Double))
    .values(found_by=rules.ERASED)
)
_BURY = new_row(TOMBSTONES).on_conflict_do_nothing()
_SESSIONS = (
    sa.select(SESSIONS.c.id, SESSIONS.c.external_id)
    .where(of_namespace(SESSIONS), SESSIONS.c.id < p("before"))
    .order_by(SESSIONS.c.id.desc())
    .limit(LIMIT)
)
# A request that was answered takes some eight numbers of its session's counter, a repeated one a few more.
_SHORT_SESSIONS = (
    sa.select(SESSIONS.c.id)
    .where(
        of_namespace(SESSIONS),
        SESSIONS.c.id < p("before"),
        SESSIONS.c.id != p("session"),
        SESSIONS.c.arrivals <= sa.literal_column("64"),
    )
    .order_by(SESSIONS.c.id.desc())
    .limit(most(_SHORT_AT_ONCE))
)
_ASKED_IN = sized(
    lambda size: (
        sa.select(
            *columns_of(MESSAGES, "session", "created_at", "role", "answers"),
            BODIES.c.body,
            PREAMBLES.c.bodies,
        )
        .join(BODIES, HAS_BODY)
        .join(
            PREAMBLES,
            sa.and_(
                PREAMBLES.c.digest == MESSAGES.c.preamble,
                PREAMBLES.c.session == MESSAGES.c.session,
                PREAMBLES.c.namespace == MESSAGES.c.namespace,
            ),
            isouter=True,
        )
        .where(
            of_namespace(MESSAGES),
            among(MESSAGES.c.session, "session", size),
            MESSAGES.c.relayed.is_(sa.false()),
        )
        .order_by(MESSAGES.c.session, MESSAGES.c.arrival)
    )
)
_DIGESTS = rules.digests(rules.SESSION)
_FIRST_ANSWERS = _first_answers()
_REQUESTS = (
    sa.select(MESSAGES.c.chain)
    .where(of_session(MESSAGES), MESSAGES.c.is_head.is_(sa.true()))
    .limit(_MOST_MARKS)
)
_ANY_TOMBSTONE = sa.select(TOMBSTONES.c.mark).where(of_namespace(TOMBSTONES)).limit(ONE)
_BURIED = (
    sa.select(TOMBSTONES.c.mark)
    .where(among(TOMBSTONES.c.mark, "mark", _MARKS), of_namespace(TOMBSTONES))
    .limit(ONE)
)
