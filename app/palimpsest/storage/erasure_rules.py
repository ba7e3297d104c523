"""Which rows of each table an erase of a session or namespace deletes: one rule per table (tested).

The rules run in the order in which they are written: later ones delete rows that earlier ones use to find
theirs. SQLite counts touched rows only of statements that begin with DELETE, so packed digests are unpacked
in a subquery.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from palimpsest.storage.database import Statement, p
from palimpsest.storage.search_index import nameless
from palimpsest.storage.sql import ONE, Query, Where, most, of_namespace, of_session
from palimpsest.storage.tables import (
    BODIES,
    CALIBRATIONS,
    CREDENTIALS,
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

_DIGEST: sa.ColumnElement[int] = sa.literal_column("32")
_AFTER: sa.ColumnElement[int] = sa.literal_column("33")


@dataclass(frozen=True, slots=True)
class Scope:
    """A condition on rows with `session` and `namespace`; `name` makes its SQL aliases unique."""

    name: str
    of: Callable[[sa.Table], Where]


# Of a session whose rows are being deleted; that of one that is being imported is another.
ERASED: sa.ColumnElement[str] = sa.literal_column("'erased'", sa.Text)


def _in_sessions(name: str, *where: Where) -> Scope:
    """By session id, which every table has near the beginning of its key. Also of sessions being imported."""
    hidden = sa.and_(SESSIONS.c.namespace == p("hidden", sa.Text), SESSIONS.c.found_by != ERASED)
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
    more = sa.select(_part(rest, ONE, _DIGEST), _part(rest, _AFTER)).where(
        sa.func.length(rest) > sa.literal_column("0")
    )
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


def _bodies() -> sa.Delete:
    """Delete the bodies `alone` but those that recently written sessions name.

    The difference of sets, not a subquery per body: both databases compute each set once.
    """
    alone = sa.except_(_unpacked(p("alone", sa.LargeBinary), "alone"), digests(RECENT))
    return sa.delete(BODIES).where(BODIES.c.digest.in_(alone), of_namespace(BODIES))


def _leases(name: str) -> Statement:
    """Lease keys contain ids; our ids contain no LIKE wildcard."""
    return sa.delete(LEASES).where(LEASES.c.key.contains(p(name)))


def _of_namespace(table: sa.Table) -> Statement:
    return sa.delete(table).where(of_namespace(table))


def _in_scope(scope: Scope) -> dict[sa.Table, Where]:
    """Rows of every table with a session, except bodies, the word index and the session itself."""
    rows = {VARIANTS: _variants(scope), PREAMBLES: _preambles(scope)}
    others = (table for table in METADATA.sorted_tables if {"session", "namespace"} <= set(table.c.keys()))
    return rows | {table: scope.of(table) for table in others if table not in (*rows, RECALL_MARKS)}


def _all_of(rows: Mapping[sa.Table, Where]) -> dict[str, Statement]:
    return {table.name: sa.delete(table).where(where) for table, where in rows.items()}


def _some_of(table: sa.Table, where: Where) -> Statement:
    keys = sa.select(*table.primary_key).where(where).limit(most(SLICE_ROWS))
    return sa.delete(table).where(sa.tuple_(*table.primary_key).in_(keys))


# Rows that are deleted while others wait, some 10 ms.
SLICE_ROWS = 256
# Bodies that only the session names, and those that nothing in the namespace names any more. They read a
# whole namespace, so they must not run while a lock is held.
ALONE = sa.except_(digests(SESSION), digests(OTHERS))
UNNAMED = sa.except_(sa.select(BODIES.c.digest).where(of_namespace(BODIES)), digests(NAMESPACE))
SOME_BODIES = _bodies()
SOME_OF_SESSION = {table.name: _some_of(table, where) for table, where in _in_scope(SESSION).items()}
OF_SESSION = {
    **_all_of(_in_scope(SESSION)),
    "leases": _leases("session"),
    "sessions": sa.delete(SESSIONS).where(SESSIONS.c.id == p("session"), SESSIONS.c.namespace == p("hidden")),
}
# Rows of a namespace that belong to no session.
OF_NAMESPACE = {
    "spending": _of_namespace(SPENDING),
    "tombstones": _of_namespace(TOMBSTONES),
    "learned_windows": _of_namespace(LEARNED_WINDOWS),
    "calibrations": _of_namespace(CALIBRATIONS),
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
    "usage": sa.delete(USAGE).where(USAGE.c.account == p("namespace")),
    "reserved": sa.delete(RESERVED).where(RESERVED.c.account == p("namespace")),
    "sessions": sa.delete(SESSIONS).where(
        sa.or_(of_namespace(SESSIONS), SESSIONS.c.namespace == p("hidden"))
    ),
    "credentials": _of_namespace(CREDENTIALS),
    "namespaces": sa.delete(NAMESPACES).where(NAMESPACES.c.id == p("namespace")),
}
