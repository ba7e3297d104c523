"""Searches what is stored of a session: reads the index, filters by path, ranks and quotes (rule 5).

The index is brought up to date first.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from palimpsest.core.recall.filters import ANY, Filters
from palimpsest.core.recall.quotes import READ_BY_MODELS, READ_BY_PEOPLE, Hit, hits_of
from palimpsest.core.recall.rank import APART, FOUND, ranked
from palimpsest.core.recall.searchable_text import is_recall_output_body, name_in
from palimpsest.core.recall.talk import Query, query_of
from palimpsest.core.recall.tool_results import payload_id, summary_id
from palimpsest.core.recall.words import CorpusStatistics, SearchEntry, Words, joined, plain
from palimpsest.core.text.secrets import without_secrets
from palimpsest.core.view.compaction import context_id
from palimpsest.proxy.recall.indexing import Indexer, IndexLag, RecallSwitch, text_of
from palimpsest.settings.compacting import RecallSettings
from palimpsest.storage.history import History
from palimpsest.storage.search import RecallRow
from palimpsest.storage.store import Store

Scope = Literal["branch", "session", "namespace"]
Places = Mapping[bytes, tuple[int, int]]
"""The number and the turn of each message of a path, by its chain, in order."""

# Rows read from the index as candidates, and those of them whose neighbours are read.
_CANDIDATES = 200
_MOST_CANDIDATES = 500
_IN_CONTEXT = 100
_SHOWN = frozenset({"live", "incomplete"})
_NOTHING = CorpusStatistics(1, 1.0, {})
_CURRENT = IndexLag((), is_all=True)


@dataclass(frozen=True, slots=True)
class Where:
    """What is searched: a session up to `head` (branch), all of it, or all sessions of the namespace.

    `question`: the newest user message, if a model searches; user messages with exactly this text are no
    hits. `is_tool`: a tool searches, which gets shorter quotes and no secrets.
    """

    namespace: str
    session: str
    head: bytes
    scope: Scope = "branch"
    question: str = ""
    is_tool: bool = False


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The hits, best first, and `found`, the number of matching entries, returned or not.

    `is_counted`: `found` is exact, else a lower bound. `is_current`: everything recorded before the search
    was searched.
    """

    hits: Sequence[Hit]
    found: int
    is_counted: bool
    is_current: bool


@dataclass(frozen=True, slots=True)
class _Matching:
    """Matching rows that may be shown: `rows` are read, `others` counted. `is_all`: nothing else matches."""

    rows: Sequence[RecallRow]
    holdings: CorpusStatistics
    others: Sequence[RecallRow] = ()
    is_all: bool = True


async def places_of(history: History, where: Where) -> Places:
    """The messages of the branch. StoreError.

    A turn begins with a message of the user; what precedes the first one belongs to turn 1.
    """
    places: dict[bytes, tuple[int, int]] = {}
    turn = 0
    for number, entry in enumerate(await history.path(where.namespace, where.session, where.head), 1):
        turn += entry.role == "user"
        places[entry.chain] = number, max(1, turn)
    return places


class Searcher:
    """Searches sessions and namespaces."""

    def __init__(self, store: Store, indexing: Indexer, switch: RecallSwitch, how: RecallSettings) -> None:
        self._store = store
        self._indexing = indexing
        self._switch = switch
        self._how = how
        self._words = Words()

    async def search(self, where: Where, text: str, limit: int, only: Filters = ANY) -> SearchAnswer:
        """At most `limit` hits for a free text, filtered by `only`. StoreError.

        Summaries are included if `only` asks for them, or if nothing else matches (C14). Any text is a valid
        query.
        """
        session = None if where.scope == "namespace" else where.session
        # A session with recall switched off is scanned.
        has_index = await self._switch.is_on(where.namespace, session) if session else self._switch.by_default
        behind = await self._indexing.caught_up(where.namespace, session) if has_index else _CURRENT
        query = await asyncio.to_thread(query_of, text, self._words)
        search = _Search(self._store, self._how, self._words, where, query, only)
        if where.scope == "branch":
            search.places = await places_of(self._store.history, where)
        late, is_current = list[RecallRow](), behind.is_all
        if behind.sessions and query.text:
            late, is_all = await search.scanned(behind.sessions, by_words=True, only=ANY)
            is_current = is_current and is_all
        matching = await search.candidates(limit, has_index=has_index)
        holdings = matching.holdings
        if late:
            holdings = joined(holdings, await asyncio.to_thread(search.holdings, late))
        rows, others = await asyncio.to_thread(search.chosen, matching, late)
        around = await search.around(rows)
        hits = await asyncio.to_thread(search.hits, rows, around, holdings, limit)
        # Hits found through their neighbours count as matches too.
        found = {*map(search.id_of, (*rows, *others)), *(hit.quote.entry.id for hit in hits)}
        return SearchAnswer(hits, len(found), matching.is_all, is_current)

    def forget(self) -> None:
        """Forget all cached words (P6)."""
        self._words.forget()
        self._indexing.forget()


class _Search:
    """One search. `places`: of the messages of the branch, None for other scopes."""

    places: Places | None = None

    def __init__(
        self, store: Store, how: RecallSettings, words: Words, where: Where, query: Query, only: Filters
    ) -> None:
        self._search = store.search
        self._how = how
        self._words = words
        self._where = where
        self._query = query
        self._only = only

    async def candidates(self, limit: int, *, has_index: bool) -> _Matching:
        """Matching rows that may be shown. Reads more of the index if other branches take up the candidates.

        A scan finds rows that pass the filters beyond the best candidates, substrings (C15), and everything
        where no index was used.
        """
        where, query, only = self._where, self._query, self._only
        session = None if where.scope == "namespace" else where.session
        matching = _Matching((), _NOTHING)
        if has_index and query.words:
            for most in (_CANDIDATES, _MOST_CANDIDATES):
                found = await self._search.find(
                    where.namespace, session, query.every, most, self._how.search_bytes
                )
                rows = await asyncio.to_thread(self._allowed, found.rows)
                meant = await asyncio.to_thread(self._meant, rows)
                is_enough = sum(row.kind == "message" for row in meant) >= limit
                if is_enough or len(found.rows) < most:
                    break
            others = [row for row in found.others if row.state in _SHOWN and self._is_inside(row)]
            is_all = found.is_all and not (only.reads_bodies and others)
            matching = _Matching(rows, found.holdings, others, is_all)
            if (rows or others) and (is_enough or only == ANY or not others):
                return matching
        if not query.text:
            return matching
        by_words = not has_index or bool(matching.others)
        read, is_all = await self.scanned([session] if session else None, by_words=by_words, only=only)
        if not matching.rows:
            return _Matching(read, await asyncio.to_thread(self.holdings, read), (), is_all)
        return replace(matching, rows=_unique([*matching.rows, *read]), is_all=is_all)

    async def scanned(
        self, sessions: Sequence[str] | None, *, by_words: bool, only: Filters
    ) -> tuple[list[RecallRow], bool]:
        """Rows that may be shown and hold the query, or a word of it; whether these are all. StoreError."""
        query = self._query
        wanted, looked_for, beginnings = plain(query.text), frozenset(query.every), query.beginnings

        def is_wanted(row: RecallRow) -> bool:
            if only != ANY and not only.holds(row.kind, row.role, row.body):
                return False
            text = text_of(row)
            return wanted in plain(text) or (
                by_words and not looked_for.isdisjoint(self._words.of(text, beginnings))
            )

        scanned = await self._search.scan(self._where.namespace, sessions, is_wanted, _CANDIDATES)
        first, rest = scanned.rows[:1], scanned.rows[1:]
        read = [*first, *_within(rest, self._how.search_bytes - _size(first))]
        is_all = scanned.is_all and len(read) == len(scanned.rows)
        return await asyncio.to_thread(self._allowed, read), is_all

    def holdings(self, rows: Sequence[RecallRow]) -> CorpusStatistics:
        """The statistics of rows that are not in the index."""
        beginnings = self._query.beginnings
        held = [Counter(self._words.of(text_of(row), beginnings)) for row in rows]
        holding = {word: sum(word in words for words in held) for word in self._query.every}
        length = sum(words.total() for words in held) / max(1, len(held))
        return CorpusStatistics(max(1, len(held)), max(1.0, length), holding)

    def chosen(
        self, matching: _Matching, late: Sequence[RecallRow]
    ) -> tuple[list[RecallRow], list[RecallRow]]:
        """The matching rows that are ranked, and those that are only counted.

        Summaries are included only if no message matches. Rows that a filter must read to judge are not
        counted.
        """
        only = self._only
        rows = self._meant(_unique([*matching.rows, *late]))
        others = [row for row in matching.others if not only.reads_bodies and only.may_be(row.kind, row.role)]
        if messages := [row for row in rows if row.kind == "message"]:
            return messages, [row for row in others if row.kind == "message"]
        return rows, others

    async def around(self, rows: Sequence[RecallRow]) -> list[RecallRow]:
        """The best of these rows, and the messages up to two places before and after them on the path.

        Empty for other scopes than a branch. Neighbours beyond `search_bytes` are left out.
        """
        path = list(self.places or ())
        best = [row for row in rows[:_IN_CONTEXT] if row.kind == "message"] if path else []
        places = [self.places[row.chain][0] for row in best if self.places]
        beside = dict.fromkeys(
            path[at] for place in places for at in range(place - 3, place + 2) if at in range(len(path))
        )
        unread = [chain for chain in beside if chain not in {row.chain for row in rows}]
        found = await self._search.those(self._where.namespace, self._where.session, unread)
        around = await asyncio.to_thread(self._allowed, found)
        return [*best, *_within(around, self._how.search_bytes - _size(rows))]

    def hits(
        self,
        rows: Sequence[RecallRow],
        around: Sequence[RecallRow],
        holdings: CorpusStatistics,
        limit: int,
    ) -> list[Hit]:
        """The best of the rows, and of those around them, with quotes."""
        query, only, where = self._query, self._only, self._where
        every = {self.id_of(row): row for row in (*rows, *around)}
        entries = {ident: self._entry(ident, row) for ident, row in every.items()}
        weights = FOUND if where.scope == "branch" else APART
        found = ranked(query, list(entries.values()), holdings, self._words, weights)
        if only != ANY:
            found = [entry for entry in found if self._meant([every[entry.id]])]
        if not found:
            # Substring matches have no score: the newest come first.
            found = [entries[self.id_of(row)] for row in rows]
        # Positions are unique on a path alone.
        on_path = entries.values() if around else ()
        beside = {entry.place: entry for entry in on_path if entry.kind == "message"}
        room = READ_BY_MODELS if where.is_tool else READ_BY_PEOPLE
        return hits_of(found, beside, query, self._words, limit=limit, room=room)

    def id_of(self, row: RecallRow) -> str:
        """The row's public id (C10)."""
        if row.kind == "summary":
            return summary_id(row.ref.decode())
        is_large = row.tokens > self._how.large_payload_tokens
        return payload_id(row.chain) if is_large else context_id(row.chain)

    def _entry(self, ident: str, row: RecallRow) -> SearchEntry:
        is_message = row.kind == "message"
        is_large = row.tokens > self._how.large_payload_tokens
        number, turn = (self.places or {}).get(row.chain, (row.depth, 0)) if is_message else (row.depth, 0)
        text = without_secrets(text_of(row)) if self._where.is_tool else text_of(row)
        name = name_in(row.body) if is_message else ""
        kind = "payload" if is_large else row.kind
        return SearchEntry(ident, kind, row.role, number, row.at, text, turn, name, row.tokens, row.session)

    def _meant(self, rows: Sequence[RecallRow]) -> list[RecallRow]:
        return [row for row in rows if self._only.holds(row.kind, row.role, row.body)]

    def _is_inside(self, row: RecallRow) -> bool:
        return self.places is None or row.chain in self.places

    def _allowed(self, rows: Sequence[RecallRow]) -> list[RecallRow]:
        """Rows that may be shown: in the scope, not rejected or undone, no results of our own tools.

        Nor the question itself.
        """
        shown = []
        question = self._where.question
        for row in filter(self._is_inside, rows):
            is_message = row.kind == "message"
            is_echo = is_message and is_recall_output_body(row.body)
            is_question = question and is_message and row.role == "user" and text_of(row).strip() == question
            if row.state in _SHOWN and not is_echo and not is_question:
                shown.append(row)
        return shown


def _unique(rows: Sequence[RecallRow]) -> list[RecallRow]:
    return list({(row.session, row.ref): row for row in rows}.values())


def _within(rows: Sequence[RecallRow], most_bytes: int) -> list[RecallRow]:
    """The rows, in order, that fit into `most_bytes` together."""
    kept: list[RecallRow] = []
    for row in rows:
        if len(row.body) <= most_bytes:
            kept.append(row)
            most_bytes -= len(row.body)
    return kept


def _size(rows: Sequence[RecallRow]) -> int:
    return sum(len(row.body) for row in rows)
