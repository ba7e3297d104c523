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
from typing import Any, TypeAlias

import sqlalchemy as sa

from palimpsest.core.history.message import INSTRUCTION_ROLES
from palimpsest.errors import StoreError
from palimpsest.storage.database import (
    Params,
    Reading,
    Recent,
    Repository,
    Row,
    Scrub,
    SqlDatabase,
    Statement,
    Step,
    Unit,
    from_snapshot,
    p,
    rows_of,
    step,
)
from palimpsest.storage.search_index import forgetting, nameless, scrub_words
from palimpsest.storage.sql import (
    AFTER_ALL_IDS,
    AFTER_UNFINISHED,
    HAS_BODY,
    IS_OPEN,
    LIMIT,
    ONE,
    SESSION_ROW,
    UNFINISHED,
    Query,
    Where,
    among,
    bodies_of,
    columns_of,
    grouped,
    key_of,
    literal,
    new_row,
    of_namespace,
    of_session,
    packed,
    rows_among,
    rows_in,
    same_session,
    sized,
    there_is,
    unfinished,
    unpacked,
)
from palimpsest.storage.tables import (
    BODIES,
    CALIBRATIONS,
    CREDENTIALS,
    EVENTS,
    EXCHANGES,
    ITEMS,
    LEARNED_WINDOWS,
    LEASES,
    MESSAGES,
    METADATA,
    NAMESPACES,
    PREAMBLES,
    REBASES,
    RECALL_MARKS,
    RESERVED,
    SESSIONS,
    SPENDING,
    TOMBSTONES,
    USAGE,
    VARIANTS,
)

# What is read of a large namespace takes seconds.
_SECONDS = 120.0
# `updated_at` comes from the writing server's clock, which is assumed to be right within an hour; a request
# is stored within an hour of its start.
_CLOCK_SECONDS = 3600.0
_SESSIONS_AT_ONCE = 50
_SHORT_AT_ONCE = 256
# Namespaces erased in one call: each is a transaction.
_NAMESPACES_AT_ONCE = literal(16)
_MOST_MARKS = literal(4096)


@dataclass(frozen=True, slots=True)
class LoneRequest:
    """A session whose requests nobody continued: when it was asked, and with which bodies."""

    session: str
    at: float
    instructions: list[bytes]
    asked: list[bytes]


# The ids erased last, in memory: requests that began before the erase must not store anything again. Pairs of
# namespace and session; the session "" stands for a whole namespace. Ids are never reused: an entry dropped
# from here could only be missed by work that began hours ago.
RecentlyErased: TypeAlias = Recent[tuple[str, str], bool]


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
        unnamed = await self._db.read_snapshot(rows_of(UNNAMED, **key), seconds=_SECONDS)
        counts["bodies"] += await self._delete_bodies(key, unnamed, now)
        counts.update(await self._delete_all(OF_NAMESPACE, key))
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
        erased = []
        for (namespace,) in rows:
            # A request in progress would begin a session nobody can find: its credential gets a new
            # namespace.
            self._erased[namespace, ""] = True
            key = _key(namespace, "")
            claim = Step(_CLAIM_UNPROVEN, [key], needed=True)
            steps = [claim, *(Step(statement, [key]) for statement in OF_UNPROVEN.values())]
            if (await self._db.write(steps))[0]:
                erased.append(namespace)
            else:
                # It has been proven in the meantime.
                self._erased.pop((namespace, ""), None)
        if erased:
            await scrub_words(self._db)
        return erased

    async def sessions(self, namespace: str, before: str | None, limit: int) -> list[tuple[str, str | None]]:
        """Ids and client names, newest first, starting after the id `before`."""
        asked = {"namespace": namespace, "before": before or AFTER_ALL_IDS, "limit": limit}
        return [(ident, name) for ident, name in await self._rows(_SESSIONS, **asked)]

    @from_snapshot
    def lone_requests(
        self, namespace: str, session: str, before: str | None
    ) -> Reading[tuple[list[LoneRequest], str | None]]:
        """Sessions other than this one whose requests nobody continued, the newest first, and where to go on.

        Of 256 sessions before the id `before` (None: all); None: there are no more.
        """
        asked = {"namespace": namespace, "session": session, "before": before or AFTER_ALL_IDS}
        sessions = [row[0] for row in (yield from rows_of(_SHORT_SESSIONS, **asked))]
        rows = yield from rows_among(_ASKED_IN, sessions, namespace=namespace)
        packs = {pack for *_, pack in rows if pack}
        digests = {digest for pack in packs for digest in unpacked(pack)}
        bodies = yield from bodies_of(namespace, digests)
        found: dict[str, LoneRequest] = {}
        continued = {row[0] for row in rows if row[3] or row[2] not in ("user", *INSTRUCTION_ROLES)}
        for session, at, _, _, body, pack in rows:
            if session not in continued:
                one = found.setdefault(session, LoneRequest(session, at, [], []))
                one.asked.append(body)
                one.instructions[:] = [bodies[digest] for digest in unpacked(pack or b"") if digest in bodies]
        return list(found.values()), sessions[-1] if len(sessions) == _SHORT_AT_ONCE else None

    async def body_digests(self, namespace: str, session: str) -> list[bytes]:
        """The sha256 of every body of the session."""
        return [digest for (digest,) in await self._rows(_DIGESTS, **key_of(namespace, session))]

    @from_snapshot
    def marks(self, namespace: str, session: str) -> Reading[list[bytes]]:
        """The chains that identify a client's list as this session, at most 4096.

        Those of the first relayed answer of each path, of messages the client sent in its place, of rebases
        and of the end of an import; in a session without any of these, of its requests.
        """
        key = key_of(namespace, session)
        found = (yield from rows_of(_FIRST_ANSWERS, **key)) or (yield from rows_of(_REQUESTS, **key))
        return [chain for (chain,) in found]

    async def has_tombstones(self, namespace: str) -> bool:
        """True when the namespace has any; reads one row inline."""
        return bool(await self._few(_ANY_TOMBSTONE, namespace=namespace))

    @from_snapshot
    def is_buried(self, namespace: str, marks: Sequence[bytes]) -> Reading[bool]:
        """True when a tombstone exists for one of `marks`."""
        for group, size in grouped(marks):
            if (yield from rows_of(_BURIED[size], namespace=namespace, **group)):
                return True
        return False

    async def scrub(self) -> Scrub:
        """Finish erases that were cut, and scrub deleted rows, as far as the database can. StoreError."""
        for hidden, session in await self._rows(_UNFINISHED):
            if (place := (hidden.removeprefix(UNFINISHED), session)) not in self._erasing:
                await self._delete_session(_key(*place), time.time())
        await scrub_words(self._db)
        return await self._db.scrub()

    async def _erase(
        self,
        key: Params,
        tombstones: Sequence[Params],
        delete: Callable[[Params], Awaitable[Mapping[str, int]]],
        unused_since: float | None = None,
    ) -> Mapping[str, int] | None:
        """Hide the session and delete its rows; None when it may stay, or does not exist.

        Once it is hidden nobody reads it or writes to it.
        """
        place = str(key["namespace"]), str(key["session"])
        claim = step(_CLAIM, **key) if unused_since is None else step(_CLAIM_UNUSED, **key, at=unused_since)
        bury = [Step(_BURY, tombstones)] if tombstones else []
        self._erasing.add(place)
        # Before the unit is queued: a request queued behind it must find this entry. A session that may stay
        # exists: the request's own unit finds out what became of it.
        if unused_since is None:
            self._erased[place] = True
        try:
            try:
                touched = await self._delete([replace(claim, needed=True), forgetting(key), *bury])
            except StoreError:
                self._erased.pop(place, None)
                raise
            if not touched[0]:
                return None
            self._erased[place] = True
            return await delete(key)
        finally:
            self._erasing.discard(place)

    async def _delete_session(self, key: Params, now: float) -> Mapping[str, int]:
        """Delete all of a hidden session; returns the rows by table."""
        alone = await self._db.read_snapshot(rows_of(ALONE, **key), seconds=_SECONDS)
        counts = Counter(bodies=await self._delete_bodies(key, alone, now))
        counts.update(await self._delete_rows(key))
        return counts

    async def _delete_bodies(self, key: Params, rows: Sequence[Row], now: float) -> int:
        """Delete these bodies in slices; those stay that another session has come to name meanwhile."""
        given = {**key, "updated_at": now - _CLOCK_SECONDS}
        deleted = 0
        for start in range(0, len(rows), SLICE_ROWS):
            alone = packed([row[0] for row in rows[start : start + SLICE_ROWS]])
            # SQLite has one writer.
            hold = [] if self._db.has_fts5 else [step(_HOLD_BODIES)]
            deleted += (await self._delete([*hold, step(SOME_BODIES, **given, alone=alone)]))[-1]
        return deleted

    async def _delete_rows(self, key: Params) -> Mapping[str, int]:
        """Delete the rows of a hidden session, its own row last; returns how many by table."""
        counts: Counter[str] = Counter()
        held = await self._rows(_ARRIVALS, **key)
        if held and held[0][0] > SLICE_ROWS:
            for name, statement in SOME_OF_SESSION.items():
                while gone := (await self._delete([step(statement, **key)]))[0]:
                    counts[name] += gone
        counts.update(await self._delete_all(OF_SESSION, key))
        return counts

    async def _delete_all(self, statements: Mapping[str, Statement], key: Params) -> Mapping[str, int]:
        touched = await self._delete([Step(statement, [key]) for statement in statements.values()])
        return dict(zip(statements, touched, strict=True))

    async def _delete(self, unit: Unit) -> Sequence[int]:
        return await self._db.write(unit, pace="urgent", seconds=_SECONDS)


def _key(namespace: str, session: str) -> Params:
    return {"namespace": namespace, "session": session, "hidden": unfinished(namespace)}


# Which rows of each table an erase of a session or namespace deletes: one rule per table (tested). The rules
# run in the order in which they are written: later ones delete rows that earlier ones use to find theirs.
# SQLite counts touched rows only of statements that begin with DELETE, so packed digests are unpacked in a
# subquery.

_DIGEST = literal(32)
_AFTER = literal(33)


@dataclass(frozen=True, slots=True)
class Scope:
    """A condition on rows with `session` and `namespace`; `name` makes its SQL aliases unique."""

    name: str
    of: Callable[[sa.Table], Where]


# Of a session whose rows are being deleted; that of one that is being imported is another.
ERASED = literal("erased")
_HIDDEN_ROW = sa.and_(SESSIONS.c.id == p("session"), SESSIONS.c.namespace == p("hidden"))


def _in_sessions(name: str, *where: Where) -> Scope:
    """By session id, which every table has near the beginning of its key. Also of sessions being imported."""
    hidden = sa.and_(SESSIONS.c.namespace == p("hidden"), SESSIONS.c.found_by != ERASED)
    ids = sa.select(SESSIONS.c.id).where(sa.or_(of_namespace(SESSIONS), hidden), *where)
    return Scope(name, lambda table: sa.and_(table.c.session.in_(ids), of_namespace(table)))


_IS_OTHER = SESSIONS.c.id != p("session")
SESSION = Scope("own", of_session)
OTHERS = _in_sessions("others", _IS_OTHER)
# The other sessions that were written to since the first read.
RECENT = _in_sessions("recent", _IS_OTHER, SESSIONS.c.updated_at >= p(SESSIONS.c.updated_at))
NAMESPACE = _in_sessions("all")


def _column(scope: Scope, table: sa.Table, name: str) -> Query:
    return sa.select(table.c[name]).where(scope.of(table))


def _preambles(scope: Scope) -> Where:
    """Preambles have no key that begins with the session: they are found by the rows that name them."""
    places = [(table, "preamble") for table in (EXCHANGES, MESSAGES, REBASES)]
    places += [(EXCHANGES, "carried"), (EXCHANGES, "sent")]
    named = (PREAMBLES.c.digest.in_(_column(scope, table, name)) for table, name in places)
    return sa.and_(sa.or_(*named), scope.of(PREAMBLES))


def _unpacked(packed: sa.ColumnElement[Any], name: str) -> Query:
    """The digests of 32 bytes that `packed` concatenates, one per row."""
    first = sa.select(_part(packed, ONE, _DIGEST).label("digest"), _part(packed, _AFTER).label("rest"))
    taken = first.cte(f"{name}_taken", recursive=True, nesting=True)
    rest = taken.c.rest
    more = sa.select(_part(rest, ONE, _DIGEST), _part(rest, _AFTER)).where(sa.func.length(rest) > literal(0))
    return sa.select(taken.union(more).c.digest)


def _part(packed: sa.ColumnElement[Any], *places: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    return sa.func.substr(packed, *places, type_=sa.LargeBinary)


def _variants(scope: Scope) -> Where:
    return sa.and_(VARIANTS.c.chain.in_(_column(scope, MESSAGES, "chain")), scope.of(VARIANTS))


def digests(scope: Scope) -> Query:
    """The digests of all bodies that rows in `scope` name."""
    packed = sa.select(PREAMBLES.c.bodies).where(_preambles(scope)).subquery(f"{scope.name}_packed")
    every = sa.union_all(
        _column(scope, MESSAGES, "digest"),
        _column(scope, ITEMS, "digest"),
        sa.select(VARIANTS.c.digest).where(_variants(scope)),
        _unpacked(packed.c.bodies, scope.name),
    ).subquery(f"{scope.name}_named")
    return sa.select(every.c.digest)


def _leases(name: str) -> Statement:
    """Lease keys contain ids; our ids contain no LIKE wildcard."""
    return sa.delete(LEASES).where(LEASES.c.key.contains(p(name)))


def _in_scope(scope: Scope) -> dict[sa.Table, Where]:
    """Rows of every table with a session, except bodies, the word index and the session itself."""
    rows = {VARIANTS: _variants(scope), PREAMBLES: _preambles(scope)}
    others = (table for table in METADATA.sorted_tables if {"session", "namespace"} <= set(table.c.keys()))
    return rows | {table: scope.of(table) for table in others if table not in (*rows, RECALL_MARKS)}


def _all_of(rows: Mapping[sa.Table, Where]) -> dict[str, Statement]:
    return {table.name: sa.delete(table).where(where) for table, where in rows.items()}


# Rows that are deleted while others wait, some 10 ms.
SLICE_ROWS = 256
# Bodies that only the session names, and those that nothing in the namespace names any more. They read a
# whole namespace, so they must not run while a lock is held.
ALONE = sa.except_(digests(SESSION), digests(OTHERS))
UNNAMED = sa.except_(sa.select(BODIES.c.digest).where(of_namespace(BODIES)), digests(NAMESPACE))
# The bodies `alone` but those that recently written sessions name. The difference of sets, not a subquery per
# body: both databases compute each set once.
SOME_BODIES = sa.delete(BODIES).where(
    BODIES.c.digest.in_(sa.except_(_unpacked(p("alone", sa.LargeBinary), "alone"), digests(RECENT))),
    of_namespace(BODIES),
)
SOME_OF_SESSION = {
    table.name: sa.delete(table).where(
        sa.tuple_(*table.primary_key).in_(
            sa.select(*table.primary_key).where(where).limit(literal(SLICE_ROWS))
        )
    )
    for table, where in _in_scope(SESSION).items()
}
OF_SESSION = {
    **_all_of(_in_scope(SESSION)),
    "leases": _leases("session"),
    "sessions": sa.delete(SESSIONS).where(_HIDDEN_ROW),
}
# Rows of a namespace that belong to no session.
_OWN = (SPENDING, TOMBSTONES, LEARNED_WINDOWS, CALIBRATIONS)
OF_NAMESPACE = {
    **_all_of({table: of_namespace(table) for table in _OWN}),
    "leases": _leases("namespace"),
}
# A namespace that the upstream never answered is deleted whole, with its credentials. `keys` has no rule: a
# namespace with a key is proven from the start. The index's words are scrubbed once their marks are nameless.
OF_UNPROVEN = {
    # Bodies that anything in the namespace names: all of them, found by key.
    "bodies": sa.delete(BODIES).where(BODIES.c.digest.in_(digests(NAMESPACE)), of_namespace(BODIES)),
    **_all_of(_in_scope(NAMESPACE)),
    **OF_NAMESPACE,
    "recall_marks": nameless(),
    **_all_of({table: table.c.account == p("namespace") for table in (USAGE, RESERVED)}),
    "sessions": sa.delete(SESSIONS).where(
        sa.or_(of_namespace(SESSIONS), SESSIONS.c.namespace == p("hidden"))
    ),
    **_all_of({CREDENTIALS: of_namespace(CREDENTIALS), NAMESPACES: NAMESPACES.c.id == p("namespace")}),
}


# Messages the client sent in place of a first answer: no relayed answer comes back in such a list.
_FIRST = MESSAGES.alias("first")
_REWRITTEN_ANSWERS = rows_in(MESSAGES, "chain").where(
    MESSAGES.c.role == literal("assistant"),
    MESSAGES.c.relayed.is_(sa.false()),
    MESSAGES.c.answers < ONE,
    there_is(
        same_session(_FIRST, MESSAGES),
        _FIRST.c.parent == MESSAGES.c.parent,
        _FIRST.c.relayed.is_(sa.true()),
    ),
)
# The last imported message of an imported session, in which no answer was relayed. All messages of an import
# arrive before its first event.
_FIRST_EVENT = sa.select(sa.func.min(EVENTS.c.seq)).where(of_session(EVENTS)).scalar_subquery()
_LAST_IMPORTED = (
    sa.select(sa.func.max(MESSAGES.c.arrival))
    .where(of_session(MESSAGES), MESSAGES.c.arrival < _FIRST_EVENT)
    .scalar_subquery()
)
_IMPORT_ENDS = rows_in(MESSAGES, "chain").where(
    MESSAGES.c.arrival == _LAST_IMPORTED,
    there_is(SESSION_ROW, SESSIONS.c.found_by == literal("import")),
)
_ENDS = sa.union_all(
    rows_in(MESSAGES, "chain").where(MESSAGES.c.relayed.is_(sa.true()), MESSAGES.c.answers == ONE),
    _REWRITTEN_ANSWERS,
    rows_in(REBASES, "chain").where(REBASES.c.answers >= ONE),
    _IMPORT_ENDS,
).subquery()
_FIRST_ANSWERS = sa.select(_ENDS.c.chain).limit(_MOST_MARKS)
# Namespaces created and last used before `before`.
_UNPROVEN = (
    sa.select(NAMESPACES.c.id)
    .where(NAMESPACES.c.proven_at.is_(None), NAMESPACES.c.created_at < p("before"))
    .where(~there_is(SESSIONS.c.namespace == NAMESPACES.c.id, SESSIONS.c.updated_at >= p("before")))
    .order_by(NAMESPACES.c.created_at)
    .limit(_NAMESPACES_AT_ONCE)
)
AT_REST = ~there_is(
    same_session(EXCHANGES, SESSIONS),
    IS_OPEN,
)
# No other transaction inserts bodies until the unit ends.
_HOLD_BODIES = sa.text("LOCK TABLE bodies IN SHARE ROW EXCLUSIVE MODE")
# Locks the row, and makes writes fail that are fenced by the old epoch.
_HIDDEN = {
    "namespace": p("hidden"),
    "external_id": sa.null(),
    "found_by": ERASED,
    "epoch": SESSIONS.c.epoch + ONE,
}
_CLAIM = sa.update(SESSIONS).where(SESSION_ROW).values(_HIDDEN)
# As `_CLAIM`. On PostgreSQL a row that another server has just written is looked at again: a request and its
# answer both change `updated_at`.
_CLAIM_UNUSED = (
    sa.update(SESSIONS).where(SESSION_ROW, SESSIONS.c.updated_at <= p("at"), AT_REST).values(_HIDDEN)
)
# Locks the row on PostgreSQL: nobody proves the namespace while its rows are deleted.
_CLAIM_UNPROVEN = (
    sa.update(NAMESPACES)
    .where(NAMESPACES.c.id == p("namespace"), NAMESPACES.c.proven_at.is_(None))
    .values(created_at=NAMESPACES.c.created_at)
)
_ARRIVALS = sa.select(SESSIONS.c.arrivals).where(_HIDDEN_ROW)
_IS_HIDDEN = sa.and_(SESSIONS.c.namespace >= UNFINISHED, SESSIONS.c.namespace < AFTER_UNFINISHED)
_UNFINISHED = sa.select(SESSIONS.c.namespace, SESSIONS.c.id).where(_IS_HIDDEN, SESSIONS.c.found_by == ERASED)
GIVE_UP_IMPORT = sa.update(SESSIONS).where(_HIDDEN_ROW).values(found_by=ERASED)
# At a start: imports that a kill has cut, of a time at which no other server writes them any more.
GIVE_UP_IMPORTS = (
    sa.update(SESSIONS).where(_IS_HIDDEN, SESSIONS.c.updated_at < p("before")).values(found_by=ERASED)
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
        SESSIONS.c.arrivals <= literal(64),
    )
    .order_by(SESSIONS.c.id.desc())
    .limit(literal(_SHORT_AT_ONCE))
)
_ASKED_IN = sized(
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
            same_session(PREAMBLES, MESSAGES),
        ),
        isouter=True,
    )
    .where(
        of_namespace(MESSAGES),
        among(MESSAGES.c.session),
        MESSAGES.c.relayed.is_(sa.false()),
    )
    .order_by(MESSAGES.c.session, MESSAGES.c.arrival)
)
_DIGESTS = digests(SESSION)
_REQUESTS = rows_in(MESSAGES, "chain").where(MESSAGES.c.is_head.is_(sa.true())).limit(_MOST_MARKS)
_ANY_TOMBSTONE = sa.select(TOMBSTONES.c.mark).where(of_namespace(TOMBSTONES)).limit(ONE)
_BURIED = sized(
    sa.select(TOMBSTONES.c.mark).where(among(TOMBSTONES.c.mark), of_namespace(TOMBSTONES)).limit(ONE)
)
