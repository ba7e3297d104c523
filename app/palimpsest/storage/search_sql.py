"""The statements that find messages and summaries by their words, their neighbours, and what is not indexed.

Neither database's own ranking is used: FTS5's counts all namespaces, so one namespace would influence
another's order, and PostgreSQL's ignores rarity.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import Insert, insert

from palimpsest.storage.database import Statement, p
from palimpsest.storage.history_sql import walk
from palimpsest.storage.search_index import MOST_WORDS, PLACES, WordsOf
from palimpsest.storage.sql import (
    HAS_BODY,
    LIMIT,
    Query,
    Where,
    among,
    columns_of,
    most,
    of_namespace,
    of_session,
    sized,
    there_is,
)
from palimpsest.storage.tables import (
    BODIES,
    COMPACTIONS,
    MESSAGES,
    REBASES,
    RECALL_MARKS,
    RECALL_WORDS,
    SESSIONS,
)

# Words per statement.
WORD_SIZES = (1, 4, 12, 32, MOST_WORDS)
# The newest sessions of a namespace that a scan reads.
READ_SESSIONS = 256
# The most rows read that follow a message: a request may have been retried any number of times.
_MOST_AFTER = most(256)

# The columns of messages and summaries for `search`; callers add a condition.
_MESSAGES = (
    sa.select(
        *columns_of(MESSAGES, "session", "chain", "parent", "role", "depth", "arrival", "state"),
        *columns_of(MESSAGES, "relayed", "created_at", "tokens", "digest"),
        sa.func.length(BODIES.c.body),
    )
    .select_from(MESSAGES)
    .join(BODIES, HAS_BODY)
    .where(of_session(MESSAGES))
)
_SUMMARIES = sa.select(
    *columns_of(COMPACTIONS, "session", "id", "watermark", "arrival", "undone_at", "created_at", "summary")
).where(of_session(COMPACTIONS))


def _after(rows: Query, table: sa.Table) -> Statement:
    after = rows.where(table.c.arrival > p("after", sa.BigInteger))
    return after.order_by(table.c.arrival).limit(LIMIT)


def _before(rows: Query, table: sa.Table) -> Statement:
    before = rows.where(table.c.arrival < p("before", sa.BigInteger))
    return before.order_by(table.c.arrival.desc()).limit(LIMIT)


MESSAGES_AFTER, SUMMARIES_AFTER = _after(_MESSAGES, MESSAGES), _after(_SUMMARIES, COMPACTIONS)
MESSAGES_BEFORE, SUMMARIES_BEFORE = _before(_MESSAGES, MESSAGES), _before(_SUMMARIES, COMPACTIONS)
MESSAGES_AT = sized(lambda size: _MESSAGES.where(among(MESSAGES.c.arrival, "arrival", size)))
SUMMARIES_AT = sized(lambda size: _SUMMARIES.where(among(COMPACTIONS.c.arrival, "arrival", size)))
NEWEST_SESSIONS = (
    sa.select(SESSIONS.c.id)
    .where(of_namespace(SESSIONS))
    .order_by(SESSIONS.c.id.desc())
    .limit(most(READ_SESSIONS))
)


# How far a session is in the index, and moving its mark.

_MARK = sa.and_(RECALL_MARKS.c.session == SESSIONS.c.id, RECALL_MARKS.c.namespace == SESSIONS.c.namespace)
_MARKED = sa.func.coalesce(RECALL_MARKS.c.arrival, 0)


def _move_mark() -> Insert:
    """Move the mark only if it is at `after`; 0: there must be none yet."""
    there = there_is(of_session(RECALL_MARKS))
    after = p("after", sa.BigInteger)
    given = {c.name: p(c) for c in RECALL_MARKS.c if c.name != "number"}
    new = insert(RECALL_MARKS).from_select(
        list(given), sa.select(*given.values()).where(sa.or_(after == 0, there))
    )
    return new.on_conflict_do_update(
        index_elements=[RECALL_MARKS.c.session, RECALL_MARKS.c.namespace],
        set_={
            "arrival": new.excluded.arrival,
            "entries": RECALL_MARKS.c.entries + new.excluded.entries,
            "words": RECALL_MARKS.c.words + new.excluded.words,
        },
        where=RECALL_MARKS.c.arrival == after,
    )


PLACE = (
    sa.select(SESSIONS.c.epoch, _MARKED, SESSIONS.c.arrivals)
    .select_from(SESSIONS)
    .outerjoin(RECALL_MARKS, _MARK)
    .where(of_namespace(SESSIONS), SESSIONS.c.id == p("session"))
)
LAGGING = (
    sa.select(SESSIONS.c.id)
    .outerjoin(RECALL_MARKS, _MARK)
    .where(of_namespace(SESSIONS), SESSIONS.c.arrivals > _MARKED)
    .order_by(SESSIONS.c.updated_at.desc(), SESSIONS.c.id.desc())
    .limit(LIMIT)
)
MOVE_MARK = _move_mark()
ADD_WORDS = insert(RECALL_WORDS).from_select(
    ["rowid", "words"],
    sa.select(
        RECALL_MARKS.c.number * PLACES + p("place", sa.BigInteger), WordsOf("words", holds=False)
    ).where(of_session(RECALL_MARKS)),
)
ENTRIES = sa.select(RECALL_MARKS.c.entries).where(of_session(RECALL_MARKS))


# Matching entries.


def _totals(where: Where) -> Statement:
    sums = (sa.func.coalesce(sa.func.sum(RECALL_MARKS.c[name]), 0) for name in ("entries", "words"))
    totals: list[sa.ColumnElement[Any]] = [sa.cast(total, sa.BigInteger) for total in sums]
    return sa.select(*totals).where(where)


def _counts(size: int) -> Query:
    """How many entries contain each word, in one row."""
    held: list[sa.ColumnElement[Any]] = [
        sa.select(sa.func.count())
        .select_from(RECALL_WORDS)
        .where(WordsOf(f"scoped_{i}", holds=True))
        .scalar_subquery()
        for i in range(size)
    ]
    return sa.select(*(count.label(f"held_{i}") for i, count in enumerate(held)))


def _best(size: int) -> Query:
    """The entries by the sum of their words' weights; of equals the newest."""
    holders = sa.union_all(
        *(
            sa.select(RECALL_WORDS.c.rowid.label("id"), p(f"weight_{i}", sa.BigInteger).label("weight"))
            .select_from(RECALL_WORDS)
            .where(WordsOf(f"scoped_{i}", holds=True))
            for i in range(size)
        )
    ).subquery("holders")
    by_weight = (sa.func.sum(holders.c.weight).desc(), holders.c.id.desc())
    return sa.select(holders.c.id).group_by(holders.c.id).order_by(*by_weight).limit(LIMIT)


TOTALS = {False: _totals(of_namespace(RECALL_MARKS)), True: _totals(of_session(RECALL_MARKS))}
COUNTS = sized(_counts, WORD_SIZES)
BEST = sized(_best, WORD_SIZES)
SESSION_OF_NUMBER = sa.select(RECALL_MARKS.c.session).where(
    RECALL_MARKS.c.number == p("number", RECALL_MARKS.c.number.type), of_namespace(RECALL_MARKS)
)


# The neighbours of a message, and whether it is on a path.


def _until_oldest(_: sa.CTE, arrival: sa.ColumnElement[int]) -> Where:
    """Walk back to `oldest`, and through rebases: these arrive before the new messages in their list."""
    return sa.or_(arrival >= p("oldest", sa.BigInteger), REBASES.c.members.is_not(None))


WALK = walk("base", ("chain",), _until_oldest)
# No message has a sibling and there is no rebase: the session is one path. Counted over an index, at a
# twentieth of the cost of the walk.
IS_LINE = (
    sa.select(
        sa.and_(
            sa.func.count() == sa.func.count(MESSAGES.c.parent.distinct()),
            ~sa.exists(sa.select(1).select_from(REBASES).where(of_session(REBASES))),
        )
    )
    .select_from(MESSAGES)
    .where(of_session(MESSAGES))
)
MESSAGES_AMONG = sized(lambda size: _MESSAGES.where(among(MESSAGES.c.chain, "chain", size)))
# Without ORDER BY, for which SQLite would read the whole session by arrival.
CHILDREN = sized(lambda size: _MESSAGES.where(among(MESSAGES.c.parent, "chain", size)).limit(_MOST_AFTER))
ARRIVALS = sized(
    lambda size: sa.select(MESSAGES.c.chain, MESSAGES.c.arrival).where(
        of_session(MESSAGES), among(MESSAGES.c.chain, "chain", size)
    )
)
_REBASES = sa.select(REBASES.c.chain, REBASES.c.anchor).where(of_session(REBASES))
ANCHORS = sized(lambda size: _REBASES.where(among(REBASES.c.chain, "chain", size)))
JUMPS = sized(lambda size: _REBASES.where(among(REBASES.c.anchor, "chain", size)).limit(_MOST_AFTER))
