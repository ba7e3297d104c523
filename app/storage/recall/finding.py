"""What holds the words of a question, best first.

Must not know how it is shown. Neither database's own rank is used: FTS5's counts all namespaces, so that one
would show in another's order, and PostgreSQL's knows no rarity. Here a word weighs what it is rare in what is
searched, and an entry what its words weigh. That chooses what the caller then ranks by the texts themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    Select,
    cast,
    func,
    select,
    union_all,
)

from app.core.recall.entry import Holdings
from app.storage.database import Database, InsertInto, Params, Reading, Statement, p, rows_of
from app.storage.recall.catching_up import PLACES
from app.storage.recall.contract import Found, RecallRow
from app.storage.recall.rows import (
    Fact,
    fitting,
    listed_in,
    message_of,
    messages,
    summaries,
    summary_of,
    with_bodies,
)
from app.storage.recall.spelling import MOST_WORDS, NO_WORD, scope_of, spelled
from app.storage.recall.word_index import Holds, WordIndex
from app.storage.tables.conversations import COMPACTIONS, MESSAGES, RECALL_MARKS, RECALL_WORDS

_MOST_FOUND = 500
# Rows told of, their bodies or not: how many there are is counted so far.
_MOST_TOLD = 1_000
# Words asked for by one statement.
_SIZES = (1, 4, 12, 32, MOST_WORDS)
# Rows asked for at once.
_PLACES = (8, 128)
_NOTHING = Holdings(0, 1.0, {})


class Finding:
    """See the contract."""

    _db: Database
    _words: WordIndex

    async def found(
        self,
        namespace: str,
        session: str | None,
        words: Sequence[str],
        limit: int,
        most_bytes: int = 4_000_000,
    ) -> Found:
        """See the contract."""
        if not self._words.works:
            return Found((), _NOTHING)
        most = _Most(min(limit, _MOST_FOUND), most_bytes)
        return await self._db.far(_found(_Scope(namespace, session), words, most))

    async def holding(self, namespace: str, session: str | None, words: Sequence[str]) -> Holdings:
        """See the contract."""
        if not self._words.works:
            return _NOTHING
        return await self._db.far(_holding(_Scope(namespace, session), words))


class _Scope:
    """Where is searched: a session, or a whole namespace."""

    def __init__(self, namespace: str, session: str | None) -> None:
        self.key: Params = {"namespace": namespace, "session": session}
        self.namespace = namespace
        self.is_session = session is not None
        self.word = scope_of(namespace, session)

    def query(self, word: str) -> str:
        """Both are held: the database goes through those of the scope only."""
        return f"{self.word} {spelled(word)}"


def _holding(scope: _Scope, words: Sequence[str]) -> Reading[Holdings]:
    entries, length = (yield from rows_of(_TOTALS[scope.is_session], scope.key))[0]
    if not entries:
        return _NOTHING
    asked = list(dict.fromkeys(words))[:MOST_WORDS]
    size = _size_for(len(asked))
    counted = yield from rows_of(_COUNTS[size], _scoped(scope, asked, size))
    holding = dict(zip(asked, counted[0], strict=False))
    return Holdings(entries, max(1.0, length / entries), holding)


@dataclass(frozen=True, slots=True)
class _Most:
    """How much is told: rows, and bytes of their bodies."""

    rows: int
    bytes: int


def _found(scope: _Scope, words: Sequence[str], most: _Most) -> Reading[Found]:
    holdings = yield from _holding(scope, words)
    held = {word: count for word, count in holdings.holding.items() if count}
    if not held or most.rows <= 0:
        return Found((), holdings)
    size = _size_for(len(held))
    weights = [_weight(holdings.entries, count) for count in held.values()]
    asked = {**scope.key, **_scoped(scope, list(held), size), "limit": _MOST_TOLD + 1}
    asked |= {f"weight_{i}": weights[i] if i < len(weights) else 0 for i in range(size)}
    best = [row[0] for row in (yield from rows_of(_BEST[size], asked))]
    facts = yield from _facts(scope.namespace, best[:_MOST_TOLD])
    chosen = fitting(facts[: most.rows], most.bytes)
    rows: list[RecallRow] = yield from with_bodies(scope.namespace, chosen)
    read = {(row.session, row.ref) for row in rows}
    others = [fact.row for fact in facts if (fact.row.session, fact.row.ref) not in read]
    return Found(rows, holdings, others, len(best) <= _MOST_TOLD)


def _facts(namespace: str, entries: Sequence[int]) -> Reading[list[Fact]]:
    """What the entries stand for, in their order: read by each session's own key.

    Joined with the entries, PostgreSQL read whole sessions once an entry, as long as it had no statistics.
    """
    arrivals: dict[int, list[int]] = {}
    for entry in entries:
        arrivals.setdefault(entry // PLACES, []).append(entry % PLACES)
    found: dict[int, Fact] = {}
    for number, places in arrivals.items():
        named = yield from rows_of(_NAMED, {"namespace": namespace, "number": number})
        key: Params = {"namespace": namespace, "session": named[0][0] if named else None}
        for listed, size in listed_in("arrival", places, _PLACES):
            rows = yield from rows_of(_MESSAGES_AT[size], {**key, **listed})
            told = [message_of(row) for row in rows]
            if len(told) < len(set(listed.values())):
                told += [
                    summary_of(row) for row in (yield from rows_of(_SUMMARIES_AT[size], {**key, **listed}))
                ]
            found.update((number * PLACES + fact.row.arrival, fact) for fact in told)
    return [found[entry] for entry in entries if entry in found]


def _scoped(scope: _Scope, words: Sequence[str], size: int) -> Params:
    """The queries for the words; those left over ask for what nobody holds."""
    return {f"scoped_{i}": scope.query(words[i]) if i < len(words) else NO_WORD for i in range(size)}


def _size_for(count: int) -> int:
    return next(size for size in _SIZES if count <= size)


def _weight(entries: int, holding: int) -> int:
    """BM25's inverse document frequency, above 0 also for a word that all hold.

    In millionths: whole numbers have one sum, in whatever order a database adds them.
    """
    return round(1_000_000 * math.log(1 + (entries - holding + 0.5) / (holding + 0.5)))


def _totals(_: InsertInto, *, is_session: bool) -> Select[Any]:
    here = [RECALL_MARKS.c.namespace == p("namespace")]
    if is_session:
        here.append(RECALL_MARKS.c.session == p("session"))
    sums = (func.coalesce(func.sum(RECALL_MARKS.c[name]), 0) for name in ("entries", "words"))
    totals: list[ColumnElement[Any]] = [cast(total, BigInteger) for total in sums]
    return select(*totals).where(*here)


def _counts(_: InsertInto, size: int) -> Select[Any]:
    """How many entries hold each word, in one row."""

    def count(i: int) -> ColumnElement[int]:
        entries = select(func.count()).select_from(RECALL_WORDS).where(Holds(f"scoped_{i}"))
        return entries.scalar_subquery().label(f"held_{i}")

    held: list[ColumnElement[Any]] = [count(i) for i in range(size)]
    return select(*held)


def _best(_: InsertInto, size: int) -> Select[Any]:
    """The entries by what their words weigh; of equals the newest."""
    holders = union_all(
        *(
            select(RECALL_WORDS.c.rowid.label("id"), p(f"weight_{i}", BigInteger).label("weight"))
            .select_from(RECALL_WORDS)
            .where(Holds(f"scoped_{i}"))
            for i in range(size)
        )
    ).subquery("holders")
    return (
        select(holders.c.id)
        .group_by(holders.c.id)
        .order_by(func.sum(holders.c.weight).desc(), holders.c.id.desc())
        .limit(p("limit", Integer))
    )


def _at(_: InsertInto, rows: Select[Any], table: Any, size: int) -> Select[Any]:
    places = table.c.arrival.in_([p(f"arrival_{i}", BigInteger) for i in range(size)])
    return rows.where(table.c.session == p("session"), table.c.namespace == p("namespace"), places)


_TOTALS = {is_session: Statement(partial(_totals, is_session=is_session)) for is_session in (False, True)}
_COUNTS = {size: Statement(partial(_counts, size=size)) for size in _SIZES}
_BEST = {size: Statement(partial(_best, size=size)) for size in _SIZES}
_NAMED = Statement(
    lambda _: select(RECALL_MARKS.c.session).where(
        RECALL_MARKS.c.number == p("number", RECALL_MARKS.c.number.type),
        RECALL_MARKS.c.namespace == p("namespace"),
    )
)
_MESSAGES_AT = {size: Statement(partial(_at, rows=messages(), table=MESSAGES, size=size)) for size in _PLACES}
_SUMMARIES_AT = {
    size: Statement(partial(_at, rows=summaries(), table=COMPACTIONS, size=size)) for size in _PLACES
}
