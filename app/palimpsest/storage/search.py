"""Finds messages and summaries by their words.

Guarantees
----------
* The caller splits texts into words; the store compares whole words. Any text is a word, none is an error.
* The index lags: it is updated oldest first, outside the transactions that record, so no commit waits for it.
  `unindexed` returns what is missing; `index` adds it and moves the session's mark in one transaction, and
  only once when several callers try.
* Results are read from the current rows: an answer rejected since says so. The caller decides whether to
  show it.
* Neither database's own ranking is used: FTS5's counts all namespaces, so one namespace would influence
  another's order, and PostgreSQL's ignores rarity.
* Rows of other namespaces are never found or counted and never influence an order; the same holds for other
  sessions when one session is searched.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from palimpsest.core.history.stored_points import MessageState
from palimpsest.core.recall.words import CorpusStatistics
from palimpsest.storage.database import (
    Params,
    Reading,
    Repository,
    Row,
    Statement,
    Step,
    from_snapshot,
    p,
    rows_of,
)
from palimpsest.storage.search_index import (
    FORGOTTEN,
    HAS_REMOVED,
    MOST_WORDS,
    NO_WORD,
    PLACES,
    WordsOf,
    forgetting,
    scope_of,
    scrub_words,
    spelled,
    spelled_text,
)
from palimpsest.storage.sql import (
    AFTER_ALL_ARRIVALS,
    HAS_BODY,
    LIMIT,
    Query,
    Where,
    among,
    arrivals_step,
    bodies_of,
    columns_of,
    key_of,
    literal,
    of_namespace,
    of_session,
    rows_among,
    rows_in,
    same_session,
    sized,
    there_is,
)
from palimpsest.storage.tables import (
    BODIES,
    COMPACTIONS,
    MESSAGES,
    RECALL_MARKS,
    RECALL_WORDS,
    SESSIONS,
)

RecallState = MessageState | Literal["undone"]

# Words per statement.
WORD_SIZES = (1, 4, 12, 32, MOST_WORDS)
# The newest sessions of a namespace that a scan reads.
READ_SESSIONS = 256
# Bytes of bodies in one answer of `unindexed`.
_MOST_INDEXED_BYTES = 4_000_000
_MOST_FOUND = 500
# The most matching rows that are counted and named, with or without bodies.
_MOST_COUNTED = 1_000
# The bounds of a scan, and of one page of it.
_MOST_ROWS, _MOST_BYTES = 5_000, 64_000_000
_PAGE_ROWS, _PAGE_BYTES = 256, 4_000_000
_NOTHING = CorpusStatistics(0, 1.0, {})


@dataclass(frozen=True, slots=True)
class RecallRow:
    """The current row of a message, or of a compaction's summary.

    `ref` is a message's chain or a compaction's id. `chain` is the message's own or the compaction's
    watermark. `body` is the message's exact bytes, or the summary's UTF-8 (with lone surrogates). A summary
    has the `role` "", no `parent`, depth and tokens 0, and the state "live" or "undone".
    """

    session: str
    kind: Literal["message", "summary"]
    ref: bytes
    chain: bytes
    parent: bytes
    role: str
    depth: int
    arrival: int
    state: RecallState
    relayed: bool
    at: float
    tokens: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Stretch:
    """What arrived in a session after `after`, up to and including `upto`, while its epoch was `epoch`.

    `rows`: all of it, in order of arrival. Index an empty one too: that moves the mark.
    """

    epoch: int
    after: int
    upto: int
    rows: Sequence[RecallRow] = ()


# The arrival of a row and its words, with repetitions: their number is its length.
Indexed: TypeAlias = tuple[int, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Matches:
    """Rows that contain any of the words, best first; `holdings` are totals of everything searched.

    `others` contain the words too and come without bodies: rows after the best ones and rows too large.
    `is_all`: no other row contains them.
    """

    rows: Sequence[RecallRow]
    holdings: CorpusStatistics
    others: Sequence[RecallRow] = ()
    is_all: bool = True


@dataclass(frozen=True, slots=True)
class Scanned:
    """The wanted rows, newest first. `is_all`: all rows were looked at."""

    rows: Sequence[RecallRow]
    is_all: bool


class Search(Repository):
    """See the module docstring."""

    @from_snapshot
    def unindexed(self, namespace: str, session: str, limit: int) -> Reading[Stretch | None]:
        """The oldest rows that are not in the index: at most `limit`, and about 4 MB or a single larger row.

        None when the session does not exist, or the mark has reached the newest row.
        """
        key = key_of(namespace, session)
        places = yield from rows_of(PLACE, **key)
        if not places or places[0][1] >= places[0][2]:
            return None
        epoch, after, newest = places[0]
        asked = {**key, "after": after, "limit": limit}
        rows = [_message_of(row) for row in (yield from rows_of(MESSAGES_AFTER, **asked))]
        rows += [_summary_of(row) for row in (yield from rows_of(SUMMARIES_AFTER, **asked))]
        first = _within(sorted(rows, key=_arrival)[:limit], _MOST_INDEXED_BYTES)
        # Events use the session's counter too: after the last row, the mark moves to the counter's end.
        upto = newest if len(rows) < limit and len(first) == len(rows) else _arrival(first[-1])
        return Stretch(epoch, after, upto, (yield from _read(namespace, first)))

    async def lagging(self, namespace: str, limit: int) -> list[str]:
        """Ids of sessions that are not fully indexed, at most `limit`, the last written first."""
        return [row[0] for row in await self._rows(LAGGING, namespace=namespace, limit=limit)]

    async def index(self, namespace: str, session: str, stretch: Stretch, entries: Sequence[Indexed]) -> bool:
        """Index the entries and move the mark to the end of the stretch.

        Rows of the stretch without an entry are not found. The stretch may be a prefix of one that
        `unindexed` returned. False, and nothing changed, when the mark is not at the beginning of the stretch
        (another caller was faster), the epoch has changed or the session is gone. Other writers wait about 50
        us per entry on SQLite, so pass some 64 at a time.
        """
        key = key_of(namespace, session)
        # The words of fifty long messages take a third of a second.
        spelled = await asyncio.to_thread(list, map(spelled_text, (words for _, words in entries)))
        scopes = f"{scope_of(namespace, None)} {scope_of(namespace, session)}"
        rows = [
            {**key, "place": arrival, "words": f"{scopes} {own}"}
            for (arrival, _), own in zip(entries, spelled, strict=True)
        ]
        words = sum(len(words) for _, words in entries)
        moved = {"after": stretch.after, "arrival": stretch.upto, "entries": len(entries), "words": words}
        steps = [
            arrivals_step({**key, "epoch": stretch.epoch}, 0),
            Step(MOVE_MARK, [{**key, **moved}], "touched"),
            *([Step(ADD_WORDS, rows, "touched")] if rows else []),
        ]
        return (await self._db.write(steps))[1] > 0

    @from_snapshot
    def find(
        self,
        namespace: str,
        session: str | None,
        words: Sequence[str],
        limit: int,
        most_bytes: int = 4_000_000,
    ) -> Reading[Matches]:
        """The best `limit` (at most 500) rows that contain any of the words; of equal rows the newest.

        Rows rank by the sum of their words' rarity within the session, or within all the namespace's sessions
        where `session` is None. The first 96 different words count. Bodies have at most `most_bytes`
        together: a row that would exceed that comes without its body, except the best one. At most 1,000 rows
        are returned in all.
        """
        scope = key_of(namespace, session)
        # A word weighs by its rarity in the scope, an entry the sum of its words' weights. The caller then
        # ranks the chosen rows by their texts.
        entries, length = (yield from rows_of(TOTALS[session is not None], **scope))[0]
        holdings = _NOTHING
        if entries:
            wanted = list(dict.fromkeys(words))[:MOST_WORDS]
            size = _size_for(len(wanted))
            counted = yield from rows_of(COUNTS[size], **_queries(scope, wanted, size))
            mean = max(1.0, length / entries)
            holdings = CorpusStatistics(entries, mean, dict(zip(wanted, counted[0], strict=False)))
        held = {word: count for word, count in holdings.holding.items() if count}
        if not held or limit <= 0:
            return Matches((), holdings)
        size = _size_for(len(held))
        # BM25's inverse document frequency, above 0 even for a word in every entry. In millionths: integers
        # have the same sum in whatever order a database adds them.
        weights = [
            round(1_000_000 * math.log(1 + (holdings.entries - count + 0.5) / (count + 0.5)))
            for count in held.values()
        ]
        asked = {**_queries(scope, list(held), size), "limit": _MOST_COUNTED + 1}
        asked |= {f"weight_{i}": weights[i] if i < len(weights) else 0 for i in range(size)}
        best = [row[0] for row in (yield from rows_of(BEST[size], **asked))]
        found = yield from _entries(namespace, best[:_MOST_COUNTED])
        fitting: list[_Unread] = []
        for each in found[: min(limit, _MOST_FOUND)]:
            if not fitting or each.length <= most_bytes:
                fitting.append(each)
                most_bytes -= each.length
        rows = yield from _read(namespace, fitting)
        read = {(row.session, row.ref) for row in rows}
        others = [each.row for each in found if (each.row.session, each.row.ref) not in read]
        return Matches(rows, holdings, others, len(best) <= _MOST_COUNTED)

    @from_snapshot
    def those(self, namespace: str, session: str, chains: Sequence[bytes]) -> Reading[list[RecallRow]]:
        """The session's messages at `chains`, in no order; unknown ones are left out."""
        rows = yield from rows_among(MESSAGES_AMONG, chains, **key_of(namespace, session))
        return (yield from _read(namespace, list(map(_message_of, rows))))

    async def scan(
        self,
        namespace: str,
        sessions: Sequence[str] | None,
        is_wanted: Callable[[RecallRow], bool],
        limit: int,
    ) -> Scanned:
        """At most `limit` rows for which `is_wanted` is true, session by session, newest first in each.

        None: of all sessions, newest first. At most 5,000 rows and about 64 MB are read. `is_wanted` runs on
        other threads, one call at a time.
        """
        found: list[RecallRow] = []
        rows_left, bytes_left = _MOST_ROWS, _MOST_BYTES
        is_all = True
        if sessions is None:
            newest = await self._rows(NEWEST_SESSIONS, namespace=namespace)
            sessions, is_all = [row[0] for row in newest], len(newest) < READ_SESSIONS
        for session in sessions:
            before = AFTER_ALL_ARRIVALS
            key = key_of(namespace, session)
            while page := await self._db.read_snapshot(_page({**key, "before": before})):
                wanted = await asyncio.to_thread(list, filter(is_wanted, page))
                found += wanted[: limit - len(found)]
                rows_left -= len(page)
                bytes_left -= sum(len(row.body) for row in page)
                before = page[-1].arrival
                if len(found) >= limit or rows_left <= 0 or bytes_left <= 0:
                    return Scanned(found, is_all=False)
        return Scanned(found, is_all)

    async def forget(self, namespace: str, session: str) -> None:
        """Remove the session from the index. Its words' bytes stay until `scrub`."""
        await self._db.write([forgetting(key_of(namespace, session))])

    async def scrub(self) -> None:
        """Remove all words of forgotten sessions from the index. Idempotent; continues after an interruption.

        Uses short transactions. On SQLite it rewrites the whole index, about 4 s for a million entries. It
        does not remove bytes from a write-ahead log, or from pages that PostgreSQL has not vacuumed.
        """
        await scrub_words(self._db)

    async def needs_scrub(self) -> bool:
        """True when words of forgotten sessions are still in the index: a scrub is due or was interrupted."""
        if await self._rows(FORGOTTEN):
            return True
        return self._db.has_fts5 and bool((await self._rows(HAS_REMOVED))[0][0])


@dataclass(frozen=True, slots=True)
class _Unread:
    """A row whose body may not be read yet: then `digest` names it; `length` is its size in bytes."""

    row: RecallRow
    digest: bytes | None
    length: int


def _message_of(row: Row) -> _Unread:
    session, chain, parent, role, depth, arrival, state, relayed, at, tokens, digest, length = row
    place = (chain, chain, parent, role, depth, arrival, state, bool(relayed), at, tokens)
    return _Unread(RecallRow(session, "message", *place, b""), digest, length)


def _summary_of(row: Row) -> _Unread:
    session, ident, watermark, arrival, undone_at, at, summary = row
    state = "live" if undone_at is None else "undone"
    place: Row = (ident.encode(), watermark, b"", "", 0, arrival, state, False, at, 0, summary)
    return _Unread(RecallRow(session, "summary", *place), None, len(summary))


def _read(namespace: str, rows: Sequence[_Unread]) -> Reading[list[RecallRow]]:
    """The rows in order, with their bodies."""
    bodies = yield from bodies_of(namespace, [each.digest for each in rows if each.digest is not None])
    return [each.row if each.digest is None else replace(each.row, body=bodies[each.digest]) for each in rows]


def _within(rows: Iterable[_Unread], most_bytes: int) -> list[_Unread]:
    """The longest prefix whose bodies have at most `most_bytes` together; at least one row."""
    kept: list[_Unread] = []
    for each in rows:
        most_bytes -= each.length
        if kept and most_bytes < 0:
            break
        kept.append(each)
    return kept


def _arrival(each: _Unread) -> int:
    return each.row.arrival


def _page(key: Params) -> Reading[list[RecallRow]]:
    """The newest rows before an arrival; fewer than a page only for their bytes, or at the end."""
    asked = {**key, "limit": _PAGE_ROWS}
    rows = [_message_of(row) for row in (yield from rows_of(MESSAGES_BEFORE, **asked))]
    rows += [_summary_of(row) for row in (yield from rows_of(SUMMARIES_BEFORE, **asked))]
    newest = sorted(rows, key=_arrival, reverse=True)[:_PAGE_ROWS]
    return (yield from _read(str(key["namespace"]), _within(newest, _PAGE_BYTES)))


def _entries(namespace: str, entries: Sequence[int]) -> Reading[list[_Unread]]:
    """The rows of the entries, in order, read by each session's own key.

    A join with the entries made PostgreSQL read a whole session per entry as long as it had no statistics.
    """
    arrivals: dict[int, list[int]] = {}
    for entry in entries:
        arrivals.setdefault(entry // PLACES, []).append(entry % PLACES)
    found: dict[int, _Unread] = {}
    for number, places in arrivals.items():
        named = yield from rows_of(SESSION_OF_NUMBER, namespace=namespace, number=number)
        key: Params = {"namespace": namespace, "session": named[0][0] if named else None}
        messages = yield from rows_among(MESSAGES_AT, places, **key)
        rows = [_message_of(row) for row in messages]
        others = set(places).difference(map(_arrival, rows))
        summaries = yield from rows_among(SUMMARIES_AT, others, **key)
        rows += [_summary_of(row) for row in summaries]
        found.update((number * PLACES + _arrival(each), each) for each in rows)
    return [found[entry] for entry in entries if entry in found]


def _queries(scope: Params, words: Sequence[str], size: int) -> dict[str, object]:
    """The queries for the words; unused parameters ask for a word that no entry contains.

    Each query includes the scope's own word, so the database reads only entries of the scope.
    """
    session = scope["session"]
    own = scope_of(str(scope["namespace"]), None if session is None else str(session))
    asked = [f"{own} {spelled(word)}" for word in words]
    return {f"scoped_{i}": asked[i] if i < len(asked) else NO_WORD for i in range(size)}


def _size_for(count: int) -> int:
    return next(size for size in WORD_SIZES if count <= size)


# The columns of messages and summaries; callers add a condition.
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
_SUMMARIES = rows_in(
    COMPACTIONS, "session", "id", "watermark", "arrival", "undone_at", "created_at", "summary"
)


def _after(rows: Query, table: sa.Table) -> Statement:
    after = rows.where(table.c.arrival > p("after"))
    return after.order_by(table.c.arrival).limit(LIMIT)


def _before(rows: Query, table: sa.Table) -> Statement:
    before = rows.where(table.c.arrival < p("before"))
    return before.order_by(table.c.arrival.desc()).limit(LIMIT)


MESSAGES_AFTER, SUMMARIES_AFTER = _after(_MESSAGES, MESSAGES), _after(_SUMMARIES, COMPACTIONS)
MESSAGES_BEFORE, SUMMARIES_BEFORE = _before(_MESSAGES, MESSAGES), _before(_SUMMARIES, COMPACTIONS)
MESSAGES_AT = sized(_MESSAGES.where(among(MESSAGES.c.arrival)))
SUMMARIES_AT = sized(_SUMMARIES.where(among(COMPACTIONS.c.arrival)))
NEWEST_SESSIONS = (
    sa.select(SESSIONS.c.id)
    .where(of_namespace(SESSIONS))
    .order_by(SESSIONS.c.id.desc())
    .limit(literal(READ_SESSIONS))
)


# How far a session is in the index, and moving its mark.

_MARK = same_session(RECALL_MARKS, SESSIONS)
_MARKED = sa.func.coalesce(RECALL_MARKS.c.arrival, 0)


# Moves the mark only if it is at `after`; 0: there must be none yet.
_AFTER = p("after", sa.BigInteger)
_GIVEN = {c.name: p(c) for c in RECALL_MARKS.c if c.name != "number"}
_NEW_MARK = insert(RECALL_MARKS).from_select(
    list(_GIVEN),
    sa.select(*_GIVEN.values()).where(sa.or_(_AFTER == 0, there_is(of_session(RECALL_MARKS)))),
)
MOVE_MARK = _NEW_MARK.on_conflict_do_update(
    index_elements=[RECALL_MARKS.c.session, RECALL_MARKS.c.namespace],
    set_={
        "arrival": _NEW_MARK.excluded.arrival,
        "entries": RECALL_MARKS.c.entries + _NEW_MARK.excluded.entries,
        "words": RECALL_MARKS.c.words + _NEW_MARK.excluded.words,
    },
    where=RECALL_MARKS.c.arrival == _AFTER,
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
ADD_WORDS = insert(RECALL_WORDS).from_select(
    ["rowid", "words"],
    sa.select(RECALL_MARKS.c.number * PLACES + p("place"), WordsOf("words", holds=False)).where(
        of_session(RECALL_MARKS)
    ),
)


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
COUNTS = {size: partial(_counts, size) for size in WORD_SIZES}
BEST = {size: partial(_best, size) for size in WORD_SIZES}
SESSION_OF_NUMBER = sa.select(RECALL_MARKS.c.session).where(
    RECALL_MARKS.c.number == p("number"), of_namespace(RECALL_MARKS)
)


MESSAGES_AMONG = sized(_MESSAGES.where(among(MESSAGES.c.chain)))
