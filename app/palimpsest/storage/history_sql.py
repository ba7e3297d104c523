"""The statements that read conversations: points by their digests, paths, branches, sessions, pins.

Statements that every request runs are bounded, whatever a namespace contains: ten thousand sessions may begin
with the same greeting, so of the points that share a digest only those of the newest sessions are read. One
recursive query walks a path, whatever its length and however often the client rebased.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa

from palimpsest.storage.database import Statement, p
from palimpsest.storage.sql import (
    ESCAPE,
    HAS_BODY,
    LIMIT,
    ONE,
    Query,
    Where,
    among,
    columns_of,
    literal,
    of_namespace,
    of_session,
    replacing,
    row_in_session,
    rows_in,
    same_session,
    sized,
    there_is,
)
from palimpsest.storage.tables import (
    BODIES,
    COMPACTIONS,
    EXCHANGES,
    HIDDEN_ROUNDS,
    MESSAGES,
    PINS,
    PREAMBLES,
    REBASES,
    SESSIONS,
)

LIVE = literal("live")
INCOMPLETE = literal("incomplete")
ON_PATH = (LIVE, INCOMPLETE)
OFF_PATH = (literal("rejected"), literal("refused"))

# Sessions read per digest, newest first.
_TWINS = literal(64)
# Digests per look-up. For most requests the first four suffice: they include the last answer.
PROBE_SIZES = (4, 32, 256)
CANONICALS = 8
# The newest exchanges of all namespaces, for what was said last.
_LOOKED_AT = literal(256)
# A message row without its body, in this order; kept as the driver's tuple because a path has thousands.
FACTS = (
    *("chain", "canonical", "role", "tokens", "depth", "arrival"),
    *("relayed", "state", "finish_reason", "created_at", "digest"),
)
_NO_BYTES = sa.cast(sa.null(), sa.LargeBinary)


def _has_live_child(at: Any, name: str) -> Where:
    """A message on the path follows directly."""
    child = MESSAGES.alias(name)
    return there_is(
        child.c.session == at["session"],
        child.c.parent == at["chain"],
        child.c.namespace == at["namespace"],
        child.c.state.in_(ON_PATH),
    )


def is_extended(at: Any) -> Where:
    """A later message follows, directly or after a rebase based or anchored there.

    `at` holds columns or parameters by the names "namespace", "session" and "chain".
    """

    def stands_on(end: str) -> Where:
        # Nested, not joined: SQLite would start the join with every message of the session.
        rebase = REBASES.alias(f"by_{end}")
        return there_is(
            rebase.c.session == at["session"],
            rebase.c[end] == at["chain"],
            rebase.c.namespace == at["namespace"],
            _has_live_child(rebase.c, f"after_{end}"),
        )

    return sa.or_(_has_live_child(at, "child"), stands_on("anchor"), stands_on("base"))


def _scope(table: sa.FromClause, *, scoped: bool) -> list[Where]:
    where = [table.c.namespace == p("namespace")]
    return [*where, table.c.session == p("session") if scoped else _is_whole(table)]


def _is_whole(table: sa.FromClause) -> Where:
    """The row's session is not being imported or erased."""
    return there_is(SESSIONS.c.id == table.c.session, of_namespace(SESSIONS))


def _deepest(size: int, *, scoped: bool, answered: bool) -> sa.ScalarSelect[Any]:
    """The last of `size` digests, oldest first, that names a stored point."""
    listed: list[Any] = [(p(f"value_{i + 1}", sa.LargeBinary), literal(i)) for i in range(size)]
    columns = (sa.column("chain", sa.LargeBinary), sa.column("place", sa.Integer))
    asked = sa.values(*columns, name="asked").data(listed).cte("asked")

    def stored(table: sa.FromClause, *where: Where) -> Where:
        here = (*_scope(table, scoped=scoped), table.c.chain == asked.c.chain)
        rows = sa.select(table.c.answers).where(*here, *where).correlate(asked)
        if not answered:
            return sa.exists(rows)
        newest = rows.order_by(table.c.session.desc()).limit(_TWINS).subquery()
        return there_is(newest.c.answers > 0)

    is_stored = sa.or_(stored(MESSAGES, MESSAGES.c.state.in_(ON_PATH)), stored(REBASES))
    found = sa.select(asked.c.chain).where(is_stored).order_by(asked.c.place.desc()).limit(ONE)
    return found.scalar_subquery()


def _point(point: sa.FromClause, message: sa.FromClause, relayed: Where) -> Query:
    """A point's columns, with canonical digest, role and state taken from `message`.

    The outcome is the state of the newest exchange that ended there.
    """
    outcome = (
        sa.select(EXCHANGES.c.state)
        .where(
            same_session(EXCHANGES, point),
            EXCHANGES.c.head == point.c.chain,
        )
        .order_by(EXCHANGES.c.arrival.desc())
        .limit(ONE)
    )
    return sa.select(
        *(point.c.session, point.c.chain, message.c.canonical, message.c.role),
        *(point.c.depth, point.c.answers, point.c.arrival, relayed),
        is_extended(point.c).label("extended"),
        outcome.scalar_subquery().label("outcome"),
        *(message.c.state, point.c.preamble),
    )


def _points_at_deepest(size: int, *, scoped: bool, answered: bool) -> sa.CompoundSelect[Any]:
    """The points at the last of `size` digests that is stored: one statement, for a request's first look."""
    chain = _deepest(size, scoped=scoped, answered=answered)
    messages = _point(MESSAGES, MESSAGES, MESSAGES.c.relayed).where(
        *_scope(MESSAGES, scoped=scoped), MESSAGES.c.chain == chain, MESSAGES.c.state.in_(ON_PATH)
    )
    anchor = MESSAGES.alias("anchor")
    is_anchor = sa.and_(same_session(anchor, REBASES), anchor.c.chain == REBASES.c.anchor)
    rebases = _point(REBASES, anchor, sa.true().label("relayed")).select_from(REBASES).join(anchor, is_anchor)
    rebases = rebases.where(*_scope(REBASES, scoped=scoped), REBASES.c.chain == chain)
    newest = (
        sa.select(rows.order_by(table.c.session.desc()).limit(_TWINS).subquery())
        for rows, table in ((messages, MESSAGES), (rebases, REBASES))
    )
    return sa.union_all(*newest)


def _relayed(*, scoped: bool) -> Query:
    """One bounded SELECT per digest: SQLite has no LATERAL, and one LIMIT over all would starve some."""
    newest = (
        sa.select(MESSAGES.c.chain, MESSAGES.c.session)
        .where(
            *_scope(MESSAGES, scoped=scoped),
            MESSAGES.c.canonical == p(f"value_{i + 1}"),
            MESSAGES.c.relayed.is_(sa.true()),
            MESSAGES.c.state.in_(ON_PATH),
        )
        .limit(_TWINS)
        for i in range(CANONICALS)
    )
    chosen = sa.union_all(*(sa.select(rows.subquery()) for rows in newest)).cte("chosen")
    same = sa.and_(MESSAGES.c.chain == chosen.c.chain, MESSAGES.c.session == chosen.c.session)
    rows = _point(MESSAGES, MESSAGES, MESSAGES.c.relayed).join(chosen, same).where(of_namespace(MESSAGES))
    return rows.order_by(MESSAGES.c.session.desc(), MESSAGES.c.arrival.desc())


RELAYED = {scoped: _relayed(scoped=scoped) for scoped in (False, True)}
POINTS_AT_DEEPEST = {
    (size, scoped, answered): partial(_points_at_deepest, size, scoped=scoped, answered=answered)
    for size in PROBE_SIZES
    for scoped in (False, True)
    for answered in (False, True)
}


def walk(via: str, names: Sequence[str], goes_on: Callable[[sa.CTE, sa.ColumnElement[int]], Where]) -> Query:
    """The points back from `chain`: a message leads to its parent, a rebase to its `via`.

    Each with its `names`, base and members. Arrival must decrease at every step, so the walk always ends;
    earlier where `goes_on` (of the point reached and the next arrival) does not hold.
    """
    columns = [MESSAGES.c[name] for name in names if name not in ("chain", "arrival")]
    start = sa.select(
        _NO_BYTES.label("chain"),
        p("chain", sa.LargeBinary).label("next"),
        sa.literal_column("9223372036854775807", sa.BigInteger).label("arrival"),
        _NO_BYTES.label("base"),
        _NO_BYTES.label("members"),
        *(sa.cast(sa.null(), c.type).label(c.name) for c in columns),
    ).cte("walk", recursive=True)
    arrival = sa.func.coalesce(MESSAGES.c.arrival, REBASES.c.arrival)
    following = sa.func.coalesce(MESSAGES.c.parent, REBASES.c[via])
    message = sa.and_(of_session(MESSAGES), MESSAGES.c.chain == start.c.next)
    rebase = sa.and_(of_session(REBASES), REBASES.c.chain == start.c.next, MESSAGES.c.chain.is_(None))
    step = (
        sa.select(start.c.next, following, arrival, REBASES.c.base, REBASES.c.members, *columns)
        .select_from(start.outerjoin(MESSAGES, message).outerjoin(REBASES, rebase))
        .where(arrival < start.c.arrival, goes_on(start, arrival))
    )
    walked = start.union_all(step)
    facts = [walked.c[name] for name in (*names, "base", "members")]
    return sa.select(*facts).where(walked.c.chain.is_not(None))


def _until_since(start: sa.CTE, _: sa.ColumnElement[int]) -> Where:
    """Stop at `since`, unless that point is a rebase, whose earlier messages are still needed."""
    return sa.or_(start.c.chain.is_distinct_from(p("since")), start.c.members.is_not(None))


def _newest_of_all() -> Query:
    """Ids grow with time: the newest exchanges are at the end of the key."""
    columns = columns_of(EXCHANGES, "id", "namespace", "session", "mark")
    newest = sa.select(*columns).order_by(EXCHANGES.c.id.desc()).limit(_LOOKED_AT).subquery()
    is_main = newest.c.mark.is_(None) | (newest.c.mark != "side")
    own = (newest.c.namespace == p("namespace"), is_main)
    return sa.select(newest.c.session).where(*own).order_by(newest.c.id.desc())


BY_BASE = walk("base", FACTS, _until_since)
BY_ANCHOR = walk("anchor", FACTS, _until_since)
MESSAGES_AMONG = sized(rows_in(MESSAGES, *FACTS).where(among(MESSAGES.c.chain)))
MESSAGE = (
    sa.select(MESSAGES.c.session, BODIES.c.body, *columns_of(MESSAGES, *FACTS))
    .join(BODIES, HAS_BODY)
    .where(
        of_namespace(MESSAGES),
        _is_whole(MESSAGES),
        MESSAGES.c.chain >= p("first"),
        MESSAGES.c.chain <= p("last"),
    )
    .order_by(MESSAGES.c.chain, MESSAGES.c.session.desc())
    .limit(ONE)
)
PREAMBLE = rows_in(PREAMBLES, "bodies").where(PREAMBLES.c.digest == p("digest"))
NEWEST_OF_ALL = _newest_of_all()
# What was said in a session before an arrival, the newest first.
SAID_BEFORE = (
    sa.select(*columns_of(MESSAGES, "arrival", "chain", "role", "relayed", "created_at"), BODIES.c.body)
    .join(BODIES, HAS_BODY)
    .where(
        of_session(MESSAGES),
        MESSAGES.c.arrival < p("before"),
        MESSAGES.c.role.in_([literal("user"), literal("assistant")]),
    )
    .order_by(MESSAGES.c.arrival.desc())
    .limit(LIMIT)
)


def _heads(table: sa.Table, *where: Where) -> Query:
    columns = columns_of(table, "chain", "answers", "depth", "arrival", "preamble")
    return sa.select(*columns).where(of_session(table), table.c.is_head.is_(sa.true()), *where)


HEADS = sa.union_all(_heads(MESSAGES, MESSAGES.c.state.in_(ON_PATH)), _heads(REBASES))
# The numbers of different instructions and of marked requests.
VARIETY = sa.select(sa.func.count(EXCHANGES.c.preamble.distinct()), sa.func.count(EXCHANGES.c.mark)).where(
    of_session(EXCHANGES)
)
# Messages, then rebases, which continue from their anchor.
POINTS = sa.union_all(
    sa.select(
        *columns_of(MESSAGES, "chain", "parent", "role", "relayed", "arrival", "is_head", "digest"),
        *columns_of(MESSAGES, "depth", "answers", "preamble", "finish_reason"),
    ).where(of_session(MESSAGES), MESSAGES.c.state.in_(ON_PATH)),
    sa.select(
        *(REBASES.c.chain, REBASES.c.anchor, literal(""), sa.true(), REBASES.c.arrival),
        *columns_of(REBASES, "is_head", "chain", "depth", "answers", "preamble"),
        literal(""),
    ).where(of_session(REBASES)),
)
REQUESTS = rows_in(EXCHANGES, "head", "preamble", "arrival", "mark", "mode", "tokens_full").where(
    EXCHANGES.c.state.not_in(OFF_PATH)
)
PREAMBLES_AMONG = sized(rows_in(PREAMBLES, "digest", "bodies").where(among(PREAMBLES.c.digest)))


def _counted(table: sa.Table) -> sa.ColumnElement[int]:
    own = same_session(table, SESSIONS)
    return sa.select(sa.func.count()).select_from(table).where(own).scalar_subquery()


def _by_name(rows: Query) -> Statement:
    """The session by our id and by the client's name. For an OR, SQLite would read the whole namespace."""
    return sa.union_all(*(rows.where(SESSIONS.c[name] == p("name")) for name in ("id", "external_id")))


_SESSION_ROWS = sa.select(
    *columns_of(SESSIONS, "id", "external_id", "epoch", "found_by", "model", "full_history"),
    *columns_of(SESSIONS, "created_at", "updated_at"),
    *(_counted(table) for table in (MESSAGES, EXCHANGES, COMPACTIONS)),
    *columns_of(SESSIONS, "is_side", "arrivals"),
).where(of_namespace(SESSIONS))


SESSION = _by_name(_SESSION_ROWS)
NAMED = _by_name(
    sa.select(*columns_of(SESSIONS, "id", "external_id", "epoch", "full_history", "appends")).where(
        of_namespace(SESSIONS)
    )
)
# Fields of an exchange by which sessions are listed.
LISTED_BY = ("client", "code", "model", "status")
# With the sessions of side requests, or without.
_IS_WANTED = sa.or_(p("with_side", sa.Boolean), SESSIONS.c.is_side.is_not(sa.true()))
# Sessions before an id, newest first: all, or those with an exchange that has all the fields that are not
# null; and of those, where "named" is not null, those whose name or id is like that.
SESSIONS_BEFORE = (
    _SESSION_ROWS.where(
        SESSIONS.c.id < p("before"),
        _IS_WANTED,
        sa.or_(
            p("is_any", sa.Boolean),
            there_is(
                same_session(EXCHANGES, SESSIONS),
                *(
                    sa.or_(p(EXCHANGES.c[name]).is_(None), EXCHANGES.c[name] == p(EXCHANGES.c[name]))
                    for name in LISTED_BY
                ),
            ),
        ),
        sa.or_(
            p("named", sa.Text).is_(None),
            sa.func.lower(SESSIONS.c.external_id).like(p("named"), escape=ESCAPE),
            SESSIONS.c.id.like(p("named"), escape=ESCAPE),
        ),
    )
    .order_by(SESSIONS.c.id.desc())
    .limit(LIMIT)
)
SESSION_COUNT = sa.select(sa.func.count()).select_from(SESSIONS).where(of_namespace(SESSIONS), _IS_WANTED)
# An answer by the upstream's response id, and whether it has hidden rounds.
RESPONSE = (
    sa.select(
        *columns_of(EXCHANGES, "session", "answer", "preamble"),
        there_is(
            HIDDEN_ROUNDS.c.session == EXCHANGES.c.session,
            HIDDEN_ROUNDS.c.chain == EXCHANGES.c.answer,
            of_namespace(HIDDEN_ROUNDS),
        ),
        EXCHANGES.c.mode,
    )
    .where(
        of_namespace(EXCHANGES),
        EXCHANGES.c.response_id == p("response_id"),
        EXCHANGES.c.response_id.is_not(None),
        EXCHANGES.c.answer.is_not(None),
    )
    .order_by(EXCHANGES.c.id.desc())
    .limit(ONE)
)
PINS_OF = rows_in(PINS, "chain", "created_at", "lifted_at").order_by(PINS.c.arrival)
PUT_PIN = replacing(row_in_session(PINS), lifted_at=p(PINS.c.lifted_at))
REMOVE_PIN = sa.delete(PINS).where(of_session(PINS), PINS.c.chain == p("chain"), PINS.c.lifted_at.is_(None))
