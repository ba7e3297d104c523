"""A search in what is stored of a session: found in the index, kept to the path, ranked, quoted (rule 5).

Changes nothing but the index, which it catches up with first. Knows nothing of HTTP nor of tools.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from app.core.recall.entry import Entry, Holdings, Kind, joined
from app.core.recall.filters import ANY, Filters
from app.core.recall.query import Query, query_of
from app.core.recall.quotes import Hit, hits_of
from app.core.recall.rank import APART, FOUND, Scored, Weights, ranked
from app.core.recall.reading import is_echo_body
from app.core.recall.tools.ids import payload_id, summary_id
from app.core.recall.words import Words, plain
from app.core.view.compaction import context_id
from app.proxy.recall.catching_up import Behind, CatchingUp
from app.proxy.recall.indexing import text_of
from app.proxy.recall.switch import RecallSwitch
from app.settings.recall import Recall as RecallSettings
from app.storage.contract import Store
from app.storage.recall.contract import RecallRow

Scope = Literal["branch", "session", "namespace"]

# Rows the index gives to choose from, and those of them whose neighbours are read.
_CANDIDATES = 200
_MOST_CANDIDATES = 500
_IN_CONTEXT = 40
_SHOWN = frozenset({"live", "incomplete"})
_NOTHING = Holdings(1, 1.0, {})
_CURRENT = Behind((), is_all=True)


@dataclass(frozen=True, slots=True)
class Where:
    """What is searched: a session up to `head` (branch), all of it, or all the namespace's sessions.

    `question` is what a user has just asked, in which case a model searches: no message of just these words
    answers it.
    """

    namespace: str
    session: str
    head: bytes
    scope: Scope = "branch"
    question: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The hits, best first, and how many entries hold something of what is looked for, returned or not.

    `is_counted`: there are no more than `found`; else at least so many. `rows` are the hits' stored rows by
    their ids; `is_current`: nothing that was recorded before is missing.
    """

    hits: Sequence[Hit]
    rows: dict[str, RecallRow]
    found: int
    is_counted: bool
    is_current: bool


@dataclass(frozen=True, slots=True)
class _Matching:
    """What may be shown of what matches: `rows` are read, `others` only counted.

    `is_all`: nothing else matches.
    """

    rows: Sequence[RecallRow]
    holdings: Holdings
    others: Sequence[RecallRow] = ()
    is_all: bool = True


@dataclass(frozen=True, slots=True)
class _Ranking:
    """What is ranked, and how."""

    query: Query
    rows: Sequence[RecallRow]
    around: Sequence[RecallRow]
    holdings: Holdings
    weights: Weights
    only: Filters


class Searching:
    """One for the application."""

    def __init__(
        self, store: Store, catching_up: CatchingUp, switch: RecallSwitch, how: RecallSettings
    ) -> None:
        self._store = store
        self._catching_up = catching_up
        self._switch = switch
        self._how = how
        self._words = Words()

    async def search(self, where: Where, text: str, limit: int, only: Filters = ANY) -> Answer:
        """At most `limit` hits for a question in any words, of those that `only` lets through.

        Summaries are among them where they are asked for, or where nothing else matches (C14). No question is
        an error. StoreError.
        """
        has_index = await self._has_index(where)
        behind = await self._behind(where) if has_index else _CURRENT
        query = await asyncio.to_thread(query_of, text, self._words)
        late, is_current = await self._late(where, behind, query)
        matching = await self._candidates(where, query, limit, has_index, only)
        holdings = matching.holdings
        if late:
            holdings = joined(holdings, await asyncio.to_thread(self._holdings, query, late))
        rows, others = await asyncio.to_thread(_chosen, matching, late, only)
        around = await self._around(where, rows)
        weights = FOUND if where.scope == "branch" else APART
        ranking = _Ranking(query, rows, around, holdings, weights, only)
        hits = await asyncio.to_thread(self._hits, ranking, limit)
        every = {self._id(row): row for row in (*rows, *around)}
        told = {hit.quote.entry.id: every[hit.quote.entry.id] for hit in hits}
        # What is found for what stands beside it matches too.
        found = len({*map(self._id, (*rows, *others)), *told})
        return Answer(hits, told, found, matching.is_all, is_current)

    def forget(self) -> None:
        """No word that was read is remembered (P6)."""
        self._words.forget()
        self._catching_up.forget()

    async def _has_index(self, where: Where) -> bool:
        """Whether what is searched is in the index; a session that switched recall off is read through."""
        if not self._store.has_index:
            return False
        if where.scope == "namespace":
            return self._switch.by_default
        return await self._switch.is_on(where.namespace, where.session)

    async def _behind(self, where: Where) -> Behind:
        if where.scope == "namespace":
            return await self._catching_up.namespace(where.namespace)
        return await self._catching_up.session(where.namespace, where.session)

    async def _late(self, where: Where, behind: Behind, query: Query) -> tuple[list[RecallRow], bool]:
        """What is found by reading what the index has not got; and whether nothing was left unread."""
        if not behind.sessions or not query.text:
            return [], behind.is_all
        by_words = self._is_wanted(query, by_words=True)
        scanned = await self._store.scanned(where.namespace, behind.sessions, by_words, _CANDIDATES)
        return await self._allowed(where, self._fitting(scanned.rows)), behind.is_all and scanned.is_all

    async def _candidates(
        self, where: Where, query: Query, limit: int, has_index: bool, only: Filters
    ) -> _Matching:
        """What may be shown of what is found; more is asked for when others' branches take the places.

        What is meant by `only` and stands behind the best is looked for by reading.
        """
        session = None if where.scope == "namespace" else where.session
        matching = _Matching((), _NOTHING)
        if has_index and query.words:
            for most in (_CANDIDATES, _MOST_CANDIDATES):
                found = await self._store.found(
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
        """`known`, and what is found by reading: by the letters, and by the words where no index was asked.

        C15: what no index finds is found by its letters.
        """
        by_words = not has_index or bool(known.others)
        is_wanted = self._is_wanted(query, by_words=by_words, only=only)
        sessions = None if where.scope == "namespace" else [where.session]
        scanned = await self._store.scanned(where.namespace, sessions, is_wanted, _CANDIDATES)
        read = self._fitting(scanned.rows)
        if not known.rows:
            holdings = await asyncio.to_thread(self._holdings, query, read)
            known = _Matching((), holdings, (), is_all=True)
        rows = _unique([*known.rows, *await self._allowed(where, read)])
        is_all = scanned.is_all and len(read) == len(scanned.rows)
        return _Matching(rows, known.holdings, known.others, is_all)

    def _fitting(self, rows: Sequence[RecallRow]) -> list[RecallRow]:
        """The first, and of the others all that have their place in what a search may read to choose."""
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

    def _holdings(self, query: Query, rows: Sequence[RecallRow]) -> Holdings:
        beginnings = query.beginnings
        held = [Counter(self._words.of(text_of(row), beginnings)) for row in rows]
        holding = {word: sum(word in words for words in held) for word in query.every}
        length = sum(words.total() for words in held) / max(1, len(held))
        return Holdings(max(1, len(held)), max(1.0, length), holding)

    async def _allowed(self, where: Where, rows: Sequence[RecallRow]) -> list[RecallRow]:
        """Those that may be shown: on the path if that is asked for, not rejected or undone, no echo."""
        return await self._on_path(where, await asyncio.to_thread(_shown, rows, where.question))

    async def _on_path(self, where: Where, rows: Sequence[RecallRow]) -> list[RecallRow]:
        """Those that stand where is searched."""
        if where.scope != "branch" or not rows:
            return list(rows)
        on_path = await self._store.path_holds(
            where.namespace, where.session, where.head, [row.chain for row in rows]
        )
        return [row for row in rows if row.chain in on_path]

    async def _around(self, where: Where, rows: Sequence[RecallRow]) -> list[RecallRow]:
        """What stands up to two messages beside the best of these on the path, and they themselves.

        Of other scopes nothing is told; nor what has no place in what a search may read, beside these rows.
        """
        if where.scope != "branch":
            return []
        here = {row.chain: row for row in rows[:_IN_CONTEXT] if row.kind == "message"}
        known = dict(here)
        fresh = list(here)
        for _ in range(2):
            beside = await self._store.beside(where.namespace, where.session, fresh[:64])
            found = [row for each in beside.values() for row in (each.before, *each.after) if row is not None]
            new = await self._allowed(where, [row for row in found if row.chain not in known])
            known.update({row.chain: row for row in new})
            fresh = [row.chain for row in new]
            if not fresh:
                break
        read = {row.chain for row in rows}
        around = [row for chain, row in known.items() if chain not in read]
        return [*here.values(), *_within(around, self._how.search_bytes - _size(rows))]

    def _hits(self, ranking: _Ranking, limit: int) -> list[Hit]:
        query, words = ranking.query, self._words
        every = {self._id(row): row for row in (*ranking.rows, *ranking.around)}
        entries = {ident: self._entry(row) for ident, row in every.items()}
        scored = ranked(query, list(entries.values()), ranking.holdings, words, ranking.weights)
        if ranking.only != ANY:
            scored = [found for found in scored if _is_meant(every[found.entry.id], ranking.only)]
        if not scored:
            # Found by their letters: no word says which is better, so that the newest come first.
            scored = [Scored(entries[self._id(row)], 1.0) for row in ranking.rows]
        # On a path no two have one place.
        on_path = entries.values() if ranking.around else ()
        beside = {entry.place: entry for entry in on_path if entry.kind == "message"}
        return hits_of(scored, beside, query, words, limit=limit)

    def _entry(self, row: RecallRow) -> Entry:
        return Entry(self._id(row), self._kind(row), row.role, row.depth, row.at, text_of(row))

    def _id(self, row: RecallRow) -> str:
        """As results name it (C10)."""
        kind = self._kind(row)
        if kind == "summary":
            return summary_id(row.ref.decode())
        return payload_id(row.chain) if kind == "payload" else context_id(row.chain)

    def _kind(self, row: RecallRow) -> Kind:
        return "payload" if row.tokens > self._how.large_payload_tokens else row.kind


def _chosen(
    matching: _Matching, late: Sequence[RecallRow], only: Filters
) -> tuple[list[RecallRow], list[RecallRow]]:
    """Of what matches the rows that are ranked, and those that are only counted: summaries where nothing else
    matches, or where they are asked for.

    What cannot be told without reading is not counted.
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
    """Those in their order that have their place in so many bytes together."""
    kept: list[RecallRow] = []
    for row in rows:
        if len(row.body) <= most_bytes:
            kept.append(row)
            most_bytes -= len(row.body)
    return kept


def _size(rows: Sequence[RecallRow]) -> int:
    return sum(len(row.body) for row in rows)


def _shown(rows: Sequence[RecallRow], question: str) -> list[RecallRow]:
    shown = [row for row in rows if row.state in _SHOWN and not _is_echo(row)]
    return [row for row in shown if not _is_question(row, question)] if question else shown


def _is_question(row: RecallRow, question: str) -> bool:
    return row.kind == "message" and row.role == "user" and text_of(row).strip() == question


def _is_echo(row: RecallRow) -> bool:
    return row.kind == "message" and is_echo_body(row.body)
