"""What goes of each table when a session or a namespace is erased: one rule a table (tested).

Must not know when they run. They run in the order in which they stand: later ones delete what earlier ones
find their rows by. SQLite tells the rows touched only of statements that begin with DELETE, so that what must
be unpacked is unpacked in a subquery of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Delete,
    LargeBinary,
    Select,
    Table,
    and_,
    delete,
    except_,
    func,
    intersect,
    or_,
    select,
    union_all,
)
from sqlalchemy.sql.expression import literal_column

from app.storage.database import InsertInto, Statement, p
from app.storage.recall.forgetting import nameless
from app.storage.tables.conversations import (
    BODIES,
    CHECKPOINTS,
    COMPACTIONS,
    CREDENTIALS,
    EVENTS,
    EXCHANGES,
    HIDDEN_ROUNDS,
    ITEMS,
    MEMORIES,
    MESSAGES,
    NAMESPACES,
    PINS,
    PREAMBLES,
    PREPARED,
    REBASES,
    SESSION_SETTINGS,
    SESSIONS,
    SPENDING,
    TOMBSTONES,
    VARIANTS,
)
from app.storage.tables.servers import CALIBRATIONS, LEARNED_WINDOWS, LEASES

Where = ColumnElement[bool]
_ONE: ColumnElement[int] = literal_column("1")
_DIGEST: ColumnElement[int] = literal_column("32")
_AFTER: ColumnElement[int] = literal_column("33")


@dataclass(frozen=True, slots=True)
class Scope:
    """Which rows of a table with `session` and `namespace` are meant; `name` tells scopes apart in SQL."""

    name: str
    of: Callable[[Table], Where]


def _in_namespace(table: Table) -> Where:
    return table.c.namespace == p("namespace")


def _all_sessions() -> Select[Any]:
    return select(SESSIONS.c.id).where(_in_namespace(SESSIONS))


# By the sessions' ids, which the keys of all tables have near their beginning.
SESSION = Scope("own", lambda table: and_(table.c.session == p("session"), _in_namespace(table)))
OTHERS = Scope(
    "others",
    lambda table: and_(
        table.c.session.in_(_all_sessions().where(SESSIONS.c.id != p("session"))), _in_namespace(table)
    ),
)
# Of those the ones that somebody wrote in since then.
RECENT = Scope(
    "recent",
    lambda table: and_(
        table.c.session.in_(
            _all_sessions().where(
                SESSIONS.c.id != p("session"), SESSIONS.c.updated_at >= p(SESSIONS.c.updated_at)
            )
        ),
        _in_namespace(table),
    ),
)
NAMESPACE = Scope("all", lambda table: and_(table.c.session.in_(_all_sessions()), _in_namespace(table)))


def _column(scope: Scope, table: Table, name: str) -> Select[Any]:
    return select(table.c[name]).where(scope.of(table))


def _instructions(scope: Scope) -> Select[Any]:
    """Preambles have no key that begins with the session: they are found by what names them."""
    named = (_column(scope, table, "preamble") for table in (EXCHANGES, MESSAGES, REBASES))
    return select(PREAMBLES.c.bodies).where(
        or_(*(PREAMBLES.c.digest.in_(digests) for digests in named)), scope.of(PREAMBLES)
    )


def _instruction_digests(scope: Scope) -> Select[Any]:
    return _unpacked(_instructions(scope).subquery(f"{scope.name}_packed").c.bodies, scope.name)


def _unpacked(packed: ColumnElement[Any], name: str) -> Select[Any]:
    """Of digests of 32 bytes that stand one behind the other one at a time is taken off."""
    first = select(_part(packed, _ONE, _DIGEST).label("digest"), _part(packed, _AFTER).label("rest"))
    taken = first.cte(f"{name}_taken", recursive=True, nesting=True)
    rest = taken.c.rest
    more = select(_part(rest, _ONE, _DIGEST), _part(rest, _AFTER)).where(
        func.length(rest) > literal_column("0")
    )
    return select(taken.union(more).c.digest)


def _part(packed: ColumnElement[Any], *places: ColumnElement[Any]) -> ColumnElement[Any]:
    return func.substr(packed, *places, type_=LargeBinary)


def _variants(scope: Scope) -> Where:
    return and_(VARIANTS.c.chain.in_(_column(scope, MESSAGES, "chain")), scope.of(VARIANTS))


def digests(scope: Scope) -> Select[Any]:
    """The digests of the bodies that the rows in `scope` name."""
    every = union_all(
        _column(scope, MESSAGES, "digest"),
        _column(scope, ITEMS, "digest"),
        select(VARIANTS.c.digest).where(_variants(scope)),
        _instruction_digests(scope),
    ).subquery(f"{scope.name}_named")
    return select(every.c.digest)


def _bodies(_: InsertInto) -> Delete:
    """Of the session's bodies those that nothing else in the namespace names.

    Not those that were `shared` when it was asked, nor those that somebody names since. What is left of
    lists, not a question for each: both databases make lists of them once.
    """
    shared = _unpacked(p("shared", LargeBinary), "shared")
    alone = except_(digests(SESSION), digests(RECENT), shared)
    return delete(BODIES).where(BODIES.c.digest.in_(alone), _in_namespace(BODIES))


def _bodies_left(_: InsertInto) -> Delete:
    """Those that nothing in the namespace names any more."""
    unnamed = except_(select(BODIES.c.digest).where(_in_namespace(BODIES)), digests(NAMESPACE))
    return delete(BODIES).where(BODIES.c.digest.in_(unnamed), _in_namespace(BODIES))


def _all_bodies(_: InsertInto) -> Delete:
    """Those that anything in the namespace names: all of them, found by their keys."""
    return delete(BODIES).where(BODIES.c.digest.in_(digests(NAMESPACE)), _in_namespace(BODIES))


def _preambles(_: InsertInto, scope: Scope) -> Delete:
    named = (_column(scope, table, "preamble") for table in (EXCHANGES, MESSAGES, REBASES))
    return delete(PREAMBLES).where(
        or_(*(PREAMBLES.c.digest.in_(digests) for digests in named)), scope.of(PREAMBLES)
    )


def _leases(_: InsertInto, name: str) -> Delete:
    """Keys of leases hold ids; ours hold nothing that LIKE takes for more than itself."""
    return delete(LEASES).where(LEASES.c.key.contains(p(name)))


def _of(_: InsertInto, table: Table, scope: Scope) -> Delete:
    return delete(table).where(scope.of(table))


def _of_namespace(_: InsertInto, table: Table) -> Delete:
    return delete(table).where(_in_namespace(table))


def _in_scope(scope: Scope) -> dict[str, Statement]:
    """Everything that has a session, but for bodies and the session itself."""
    written = (EXCHANGES, REBASES, COMPACTIONS, PREPARED, PINS, HIDDEN_ROUNDS, ITEMS, MESSAGES)
    rest = (*written, EVENTS, CHECKPOINTS, MEMORIES, SESSION_SETTINGS)
    return {
        "variants": Statement(lambda _: delete(VARIANTS).where(_variants(scope))),
        "preambles": Statement(partial(_preambles, scope=scope)),
        **{table.name: Statement(partial(_of, table=table, scope=scope)) for table in rest},
    }


# Reads all of a namespace: nobody may have to wait meanwhile.
SHARED = Statement(lambda _: intersect(digests(SESSION), digests(OTHERS)))
BODIES_OF_SESSION = Statement(_bodies)
OF_SESSION = {
    **_in_scope(SESSION),
    "leases": Statement(partial(_leases, name="session")),
    "sessions": Statement(
        lambda _: delete(SESSIONS).where(SESSIONS.c.id == p("session"), _in_namespace(SESSIONS))
    ),
}
BODIES_OF_NAMESPACE = Statement(_bodies_left)
# What a namespace has besides sessions.
OF_NAMESPACE = {
    "spending": Statement(partial(_of_namespace, table=SPENDING)),
    "tombstones": Statement(partial(_of_namespace, table=TOMBSTONES)),
    "learned_windows": Statement(partial(_of_namespace, table=LEARNED_WINDOWS)),
    "calibrations": Statement(partial(_of_namespace, table=CALIBRATIONS)),
    "leases": Statement(partial(_leases, name="namespace")),
}
# A namespace that the upstream never answered goes as a whole, and whoever leads to it. `keys` has no rule: a
# namespace that has one is proven from the start. The words of the index go when nothing is found by them.
OF_UNPROVEN = {
    "bodies": Statement(_all_bodies),
    **_in_scope(NAMESPACE),
    **OF_NAMESPACE,
    "recall_marks": Statement(lambda _: nameless()),
    "sessions": Statement(partial(_of_namespace, table=SESSIONS)),
    "credentials": Statement(partial(_of_namespace, table=CREDENTIALS)),
    "namespaces": Statement(lambda _: delete(NAMESPACES).where(NAMESPACES.c.id == p("namespace"))),
}
