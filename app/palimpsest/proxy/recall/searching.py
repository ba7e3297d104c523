"""Searches what is stored of a session: reads the index, filters by path, ranks and quotes (rule 5).

The index is brought up to date first.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from palimpsest.core.recall.filters import ANY, Filters
from palimpsest.core.recall.quotes import Hit, hits_of
from palimpsest.core.recall.rank import APART, FOUND, Scored, Weights, ranked
from palimpsest.core.recall.searchable_text import is_recall_output_body
from palimpsest.core.recall.talk import Query, query_of
from palimpsest.core.recall.tool_results import payload_id, summary_id
from palimpsest.core.recall.words import CorpusStatistics, Kind, SearchEntry, Words, joined, plain
from palimpsest.core.view.compaction import context_id
from palimpsest.proxy.recall.indexing import Indexer, IndexLag, RecallSwitch, text_of
from palimpsest.settings.compacting import RecallSettings
from palimpsest.storage.search import RecallRow, Search

Scope = Literal["branch", "session", "namespace"]

# Rows read from the index as candidates, and those of them whose neighbours are read.
_CANDIDATES = 200
_MOST_CANDIDATES = 500
_IN_CONTEXT = 40
_SHOWN = frozenset({"live", "incomplete"})
_NOTHING = CorpusStatistics(1, 1.0, {})
_CURRENT = IndexLag((), is_all=True)


@dataclass(frozen=True, slots=True)
class Where:
    """What is searched: a session up to `head` (branch), all of it, or all sessions of the namespace.

    `question`: the newest user message, if a model searches; user messages with exactly this text are no
    hits.
    """

    namespace: str
    session: str
    head: bytes
    scope: Scope = "branch"
    question: str = ""


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The hits, best first, and `found`, the number of matching entries, returned or not.

    `is_counted`: `found` is exact, else a lower bound. `rows`: the hits' stored rows by id. `is_current`:
    everything recorded before the search was searched.
    """

    hits: Sequence[Hit]
    rows: dict[str, RecallRow]
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


class Searcher:
    """Searches sessions and namespaces."""

    def __init__(
        self,
        search: Search,
        indexing: Indexer,
        switch: RecallSwitch,
        how: RecallSettings,
    ) -> None:
        self._search = search
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
        late, is_current = await self._late(where, behind, query)
        matching = await self._candidates(where, query, limit, has_index, only)
        holdings = matching.holdings
        if late:
            holdings = joined(holdings, await asyncio.to_thread(self._holdings, query, late))
        rows, others = await asyncio.to_thread(_chosen, matching, late, only)
        around = await self._around(where, rows)
        weights = FOUND if where.scope == "branch" else APART
        hits = await asyncio.to_thread(self._hits, query, rows, around, holdings, weights, only, limit)
        every = {self._id(row): row for row in (*rows, *around)}
        hit_rows = {hit.quote.entry.id: every[hit.quote.entry.id] for hit in hits}
        # Hits found through their neighbours count as matches too.
        found = len({*map(self._id, (*rows, *others)), *hit_rows})
        return SearchAnswer(hits, hit_rows, found, matching.is_all, is_current)

    def forget(self) -> None:
        """Forget all cached words (P6)."""
        self._words.forget()
        self._indexing.forget()

    async def _late(self, where: Where, behind: IndexLag, query: Query) -> tuple[list[RecallRow], bool]:
        """Matches in sessions that are not fully indexed, by scanning; and whether all were scanned."""
        if not behind.sessions or not query.text:
            return [], behind.is_all
        by_words = self._is_wanted(query, by_words=True)
        scanned = await self._search.scan(where.namespace, behind.sessions, by_words, _CANDIDATES)
        return await self._allowed(where, self._fitting(scanned.rows)), behind.is_all and scanned.is_all

    async def _candidates(
        self, where: Where, query: Query, limit: int, has_index: bool, only: Filters
    ) -> _Matching:
        """Matching rows that may be shown. Reads more from the index if other branches take up the
        candidates.

        Rows that `only` lets through beyond the best candidates are found by a scan.
        """
        session = None if where.scope == "namespace" else where.session
        matching = _Matching((), _NOTHING)
        if has_index and query.words:
            for most in (_CANDIDATES, _MOST_CANDIDATES):
                found = await self._search.find(
                    where.namespace, session, query.every, most, self._how.search_bytes
                )
                rows = await self._allowed(where, found.rows)
                meant = await asyncio.to_thread(_meant, rows, only)
                is_enough = sum(row.kind == "message" for row in meant) >= limit
                if is_enough or len(found.rows) < most:
                    break
            others = await self._on_path(where, [row for row in found.others if row.state in _SHOWN])
            is_all = found.is_all and not (only.reads_bodies and others)
            matching = _Matching(rows, found.holdings, others, is_all)
            if (rows or others) and (is_enough or only == ANY or not others):
                return matching
        if not query.text:
            return matching
        return await self._scanned(where, query, has_index, only, matching)

    async def _scanned(
        self, where: Where, query: Query, has_index: bool, only: Filters, known: _Matching
    ) -> _Matching:
        """`known` with the matches of a scan: by substring (C15), and by words if no index was used."""
        by_words = not has_index or bool(known.others)
        is_wanted = self._is_wanted(query, by_words=by_words, only=only)
        sessions = None if where.scope == "namespace" else [where.session]
        scanned = await self._search.scan(where.namespace, sessions, is_wanted, _CANDIDATES)
        read = self._fitting(scanned.rows)
        if not known.rows:
            holdings = await asyncio.to_thread(self._holdings, query, read)
            known = _Matching((), holdings, (), is_all=True)
        rows = _unique([*known.rows, *await self._allowed(where, read)])
        is_all = scanned.is_all and len(read) == len(scanned.rows)
        return _Matching(rows, known.holdings, known.others, is_all)

    def _fitting(self, rows: Sequence[RecallRow]) -> list[RecallRow]:
        """The first row, and the others that fit into `search_bytes`."""
        return [*rows[:1], *_within(rows[1:], self._how.search_bytes - _size(rows[:1]))]

    def _is_wanted(self, query: Query, *, by_words: bool, only: Filters = ANY) -> Callable[[RecallRow], bool]:
        wanted, looked_for, beginnings = plain(query.text), frozenset(query.every), query.beginnings

        def is_wanted(row: RecallRow) -> bool:
            if only != ANY and not _is_meant(row, only):
                return False
            text = text_of(row)
            return wanted in plain(text) or (
                by_words and not looked_for.isdisjoint(self._words.of(text, beginnings))
            )

        return is_wanted

    def _holdings(self, query: Query, rows: Sequence[RecallRow]) -> CorpusStatistics:
        beginnings = query.beginnings
        held = [Counter(self._words.of(text_of(row), beginnings)) for row in rows]
        holding = {word: sum(word in words for words in held) for word in query.every}
        length = sum(words.total() for words in held) / max(1, len(held))
        return CorpusStatistics(max(1, len(held)), max(1.0, length), holding)

    async def _allowed(self, where: Where, rows: Sequence[RecallRow]) -> list[RecallRow]:
        """Rows that may be shown: in the scope, not rejected or undone, no results of our own tools."""
        return await self._on_path(where, await asyncio.to_thread(_shown, rows, where.question))

    async def _on_path(self, where: Where, rows: Sequence[RecallRow]) -> list[RecallRow]:
        """The rows on the path, if the scope is a branch; else all."""
        if where.scope != "branch" or not rows:
            return list(rows)
        on_path = await self._search.on_path(
            where.namespace, where.session, where.head, [row.chain for row in rows]
        )
        return [row for row in rows if row.chain in on_path]

    async def _around(self, where: Where, rows: Sequence[RecallRow]) -> list[RecallRow]:
        """The best of these rows, and the messages up to two places before and after them on the path.

        Empty for other scopes than a branch. Neighbours beyond `search_bytes` are left out.
        """
        if where.scope != "branch":
            return []
        here = {row.chain: row for row in rows[:_IN_CONTEXT] if row.kind == "message"}
        known = dict(here)
        fresh = list(here)
        for _ in range(2):
            beside = await self._search.neighbours(where.namespace, where.session, fresh[:64])
            found = [row for each in beside.values() for row in (each.before, *each.after) if row is not None]
            new = await self._allowed(where, [row for row in found if row.chain not in known])
            known.update({row.chain: row for row in new})
            fresh = [row.chain for row in new]
            if not fresh:
                break
        read = {row.chain for row in rows}
        around = [row for chain, row in known.items() if chain not in read]
        return [*here.values(), *_within(around, self._how.search_bytes - _size(rows))]

    def _hits(
        self,
        query: Query,
        rows: Sequence[RecallRow],
        around: Sequence[RecallRow],
        holdings: CorpusStatistics,
        weights: Weights,
        only: Filters,
        limit: int,
    ) -> list[Hit]:
        every = {self._id(row): row for row in (*rows, *around)}
        entries = {
            ident: SearchEntry(ident, self._kind(row), row.role, row.depth, row.at, text_of(row))
            for ident, row in every.items()
        }
        scored = ranked(query, list(entries.values()), holdings, self._words, weights)
        if only != ANY:
            scored = [found for found in scored if _is_meant(every[found.entry.id], only)]
        if not scored:
            # Substring matches have no score: the newest come first.
            scored = [Scored(entries[self._id(row)], 1.0) for row in rows]
        # Positions are unique on a path alone.
        on_path = entries.values() if around else ()
        beside = {entry.place: entry for entry in on_path if entry.kind == "message"}
        return hits_of(scored, beside, query, self._words, limit=limit)

    def _id(self, row: RecallRow) -> str:
        """The row's public id (C10)."""
        kind = self._kind(row)
        if kind == "summary":
            return summary_id(row.ref.decode())
        return payload_id(row.chain) if kind == "payload" else context_id(row.chain)

    def _kind(self, row: RecallRow) -> Kind:
        return "payload" if row.tokens > self._how.large_payload_tokens else row.kind


def _chosen(
    matching: _Matching, late: Sequence[RecallRow], only: Filters
) -> tuple[list[RecallRow], list[RecallRow]]:
    """The matching rows that are ranked, and those that are only counted.

    Summaries are included only if no message matches. Rows that `only` must read to judge are not counted.
    """
    rows = _meant(_unique([*matching.rows, *late]), only)
    others = [] if only.reads_bodies else [row for row in matching.others if only.may_be(row.kind, row.role)]
    if messages := [row for row in rows if row.kind == "message"]:
        return messages, [row for row in others if row.kind == "message"]
    return rows, others


def _meant(rows: Sequence[RecallRow], only: Filters) -> list[RecallRow]:
    return [row for row in rows if _is_meant(row, only)]


def _is_meant(row: RecallRow, only: Filters) -> bool:
    return only.holds(row.kind, row.role, row.body)


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


def _shown(rows: Sequence[RecallRow], question: str) -> list[RecallRow]:
    """Those that are neither rejected nor undone, no results of our own tools, nor the question itself."""
    shown = []
    for row in rows:
        is_message = row.kind == "message"
        is_echo = is_message and is_recall_output_body(row.body)
        is_question = (
            bool(question) and is_message and row.role == "user" and text_of(row).strip() == question
        )
        if row.state in _SHOWN and not is_echo and not is_question:
            shown.append(row)
    return shown
