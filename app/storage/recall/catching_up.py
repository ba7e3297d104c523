"""Bringing the index of words up to what a session holds, one stretch of arrivals after the other.

Must not know what a body says. Not done where an exchange is recorded: its commit must not wait for it. The
session's row is locked first, so that nothing is added to a session that is erased meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Integer, Select, and_, exists, func, or_, select
from sqlalchemy.dialects.postgresql import Insert

from app.storage.database import Database, InsertInto, Params, Reading, Statement, Step, named, p, rows_of
from app.storage.journal_sql.arrivals import drawing_in_epoch
from app.storage.recall.contract import Indexed, Stretch, Unindexed
from app.storage.recall.rows import (
    Fact,
    message_of,
    messages,
    summaries,
    summary_of,
    with_bodies,
    within,
)
from app.storage.recall.spelling import scope_of, words_of
from app.storage.recall.word_index import AsHeld, WordIndex
from app.storage.tables.conversations import COMPACTIONS, MESSAGES, RECALL_MARKS, RECALL_WORDS, SESSIONS

# Bytes of bodies in one answer of `unindexed`.
_MOST_BYTES = 4_000_000
# A session's entries: its number times this, plus the arrival.
PLACES = 1 << 32


class CatchingUp:
    """See the contract."""

    _db: Database
    _words: WordIndex

    @property
    def has_index(self) -> bool:
        """See the contract."""
        return self._words.works

    async def unindexed(self, namespace: str, session: str, limit: int) -> Unindexed | None:
        """See the contract."""
        if not self._words.works:
            return None
        return await self._db.far(_unindexed(namespace, session, limit))

    async def lagging(self, namespace: str, limit: int) -> Sequence[str]:
        """See the contract."""
        if not self._words.works:
            return []
        asked = {"namespace": namespace, "limit": limit}
        return [row[0] for row in await self._db.far(rows_of(_LAGGING, asked))]

    async def add_indexed(
        self, namespace: str, session: str, stretch: Stretch, entries: Sequence[Indexed]
    ) -> bool:
        """See the contract."""
        key: Params = {"namespace": namespace, "session": session}
        # Fifty long messages have words for a third of a second.
        rows = await asyncio.to_thread(_spelled, namespace, session, entries)
        mark = {
            **key,
            "after": stretch.after,
            "arrival": stretch.upto,
            "entries": len(entries),
            "words": sum(len(entry.words) for entry in entries),
        }
        steps = [
            drawing_in_epoch({**key, "epoch": stretch.epoch}, 0),
            Step(_MOVE_MARK, [mark], "touched"),
            *([Step(_ADD_WORDS, rows, "touched")] if rows else []),
        ]
        return (await self._db.write(steps))[1] > 0


def _spelled(namespace: str, session: str, entries: Sequence[Indexed]) -> list[Params]:
    """The rows of the index, each with the words that say whose it is."""
    key: Params = {"namespace": namespace, "session": session}
    scopes = f"{scope_of(namespace, None)} {scope_of(namespace, session)}"
    return [
        {**key, "place": entry.arrival, "words": f"{scopes} {words_of(entry.words)}"} for entry in entries
    ]


def _unindexed(namespace: str, session: str, limit: int) -> Reading[Unindexed | None]:
    key: Params = {"namespace": namespace, "session": session}
    places = yield from rows_of(_PLACE, key)
    if not places or places[0][1] >= places[0][2]:
        return None
    epoch, after, newest = places[0]
    asked = {**key, "after": after, "limit": limit}
    told = [message_of(row) for row in (yield from rows_of(_MESSAGES_AFTER, asked))]
    told += [summary_of(row) for row in (yield from rows_of(_SUMMARIES_AFTER, asked))]
    first = within(sorted(told, key=_arrival)[:limit], _MOST_BYTES)
    # Events draw from the session's counter too: after the last row, the mark goes to the counter's end.
    upto = newest if len(told) < limit and len(first) == len(told) else _arrival(first[-1])
    rows = yield from with_bodies(namespace, first)
    return Unindexed(Stretch(epoch, after, upto), rows)


def _arrival(fact: Fact) -> int:
    return fact.row.arrival


def _place(_: InsertInto) -> Select[Any]:
    mark = and_(RECALL_MARKS.c.session == SESSIONS.c.id, RECALL_MARKS.c.namespace == SESSIONS.c.namespace)
    return (
        select(SESSIONS.c.epoch, func.coalesce(RECALL_MARKS.c.arrival, 0), SESSIONS.c.arrivals)
        .select_from(SESSIONS)
        .outerjoin(RECALL_MARKS, mark)
        .where(SESSIONS.c.namespace == p("namespace"), SESSIONS.c.id == p("session"))
    )


def _lagging(_: InsertInto) -> Select[Any]:
    mark = and_(RECALL_MARKS.c.session == SESSIONS.c.id, RECALL_MARKS.c.namespace == SESSIONS.c.namespace)
    return (
        select(SESSIONS.c.id)
        .outerjoin(RECALL_MARKS, mark)
        .where(
            SESSIONS.c.namespace == p("namespace"),
            SESSIONS.c.arrivals > func.coalesce(RECALL_MARKS.c.arrival, 0),
        )
        .order_by(SESSIONS.c.updated_at.desc(), SESSIONS.c.id.desc())
        .limit(p("limit", Integer))
    )


def _after(rows: Select[Any], table: Any) -> Select[Any]:
    here = (table.c.session == p("session"), table.c.namespace == p("namespace"))
    return (
        rows.where(*here, table.c.arrival > p("after", BigInteger))
        .order_by(table.c.arrival)
        .limit(p("limit", Integer))
    )


def _move_mark(insert: InsertInto) -> Insert:
    """From where it is said to be, and from nowhere else: the first time there must be none."""
    there = exists(
        select(1).where(RECALL_MARKS.c.session == p("session"), RECALL_MARKS.c.namespace == p("namespace"))
    )
    given = named(RECALL_MARKS, "session", "namespace", "arrival", "entries", "words")
    new = insert(RECALL_MARKS).from_select(
        list(given), select(*given.values()).where(or_(p("after", BigInteger) == 0, there))
    )
    return new.on_conflict_do_update(
        index_elements=[RECALL_MARKS.c.session, RECALL_MARKS.c.namespace],
        set_={
            "arrival": new.excluded.arrival,
            "entries": RECALL_MARKS.c.entries + new.excluded.entries,
            "words": RECALL_MARKS.c.words + new.excluded.words,
        },
        where=RECALL_MARKS.c.arrival == p("after", BigInteger),
    )


def _add_words(insert: InsertInto) -> Insert:
    entry = RECALL_MARKS.c.number * PLACES + p("place", BigInteger)
    return insert(RECALL_WORDS).from_select(
        ["rowid", "words"],
        select(entry, AsHeld("words")).where(
            RECALL_MARKS.c.session == p("session"), RECALL_MARKS.c.namespace == p("namespace")
        ),
    )


_PLACE = Statement(_place)
_LAGGING = Statement(_lagging)
_MESSAGES_AFTER = Statement(lambda _: _after(messages(), MESSAGES))
_SUMMARIES_AFTER = Statement(lambda _: _after(summaries(), COMPACTIONS))
_MOVE_MARK = Statement(_move_mark)
_ADD_WORDS = Statement(_add_words)
