"""A search in what is stored of a session: found in the index, kept to the path, ranked, quoted (rule 5).

Changes nothing but the index, which it catches up with first. Knows nothing of HTTP nor of tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import structlog

from app.core.recall.entry import Entry, Holdings
from app.core.recall.query import Query, query_of
from app.core.recall.quotes import Hit, hits_of
from app.core.recall.rank import FOUND, Scored, Weights, ranked
from app.core.recall.reading import is_echo_body
from app.core.recall.words import Words, plain
from app.core.view.masking import context_id
from app.proxy.recall.indexing import Indexing, text_of
from app.storage.contract import Store
from app.storage.recall.contract import RecallRow

Scope = Literal["branch", "session", "namespace"]

# Rows the index gives to choose from, and those of them whose neighbours are read.
_CANDIDATES = 200
_MOST_CANDIDATES = 500
_IN_CONTEXT = 40
# A search waits so long for the index to be brought up to date; then it finds what there is (seconds).
CATCH_UP_SECONDS = 10.0
_SHOWN = frozenset({"live", "incomplete"})
# Of several branches or sessions nobody knows what stands beside what.
_APART = replace(FOUND, before=0.0, after=0.0, further=0.0)
_NOTHING = Holdings(1, 1.0, {})
_log = structlog.get_logger("palimpsest.recall")


@dataclass(frozen=True, slots=True)
class Where:
    """What is searched: a session up to `head` (branch), all of it, or all the namespace's sessions."""

    namespace: str
    session: str
    head: bytes
    scope: Scope = "branch"


@dataclass(frozen=True, slots=True)
class Answer:
    """The hits, best first, and how many entries hold something of what is looked for, of those looked at.

    `rows` are the hits' stored rows by their ids; `is_current`: nothing that was recorded before is missing.
    """

    hits: Sequence[Hit]
    rows: dict[str, RecallRow]
    found: int
    is_current: bool


@dataclass(frozen=True, slots=True)
class _Ranking:
    """What is ranked, and how."""

    query: Query
    rows: Sequence[RecallRow]
    around: Sequence[RecallRow]
    holdings: Holdings
    weights: Weights


class Searching:
    """One for the application."""

    def __init__(self, store: Store, indexing: Indexing) -> None:
        self._store = store
        self._indexing = indexing
        self._words = Words()

    async def search(self, where: Where, text: str, limit: int) -> Answer:
        """At most `limit` hits for a question in any words; none is an error. StoreError."""
        is_current = await self._caught_up(where)
        query = await asyncio.to_thread(query_of, text, self._words)
        rows, holdings = await self._candidates(where, query, limit)
        around = await self._around(where, rows[:_IN_CONTEXT])
        weights = FOUND if where.scope == "branch" else _APART
        ranking = _Ranking(query, rows, around, holdings, weights)
        hits = await asyncio.to_thread(self._hits, ranking, limit)
        every = {_id(row): row for row in (*rows, *around)}
        return Answer(
            hits, {hit.quote.entry.id: every[hit.quote.entry.id] for hit in hits}, len(rows), is_current
        )

    def forget(self) -> None:
        """No word that was read is remembered (P6)."""
        self._words.forget()
        self._indexing.forget()

    async def _caught_up(self, where: Where) -> bool:
        if not self._store.has_index or where.scope == "namespace":
            return True
        try:
            async with asyncio.timeout(CATCH_UP_SECONDS):
                await self._indexing.catch_up(where.namespace, where.session)
        except TimeoutError:
            _log.warning("search_before_the_index", session=where.session)
            return False
        return True

    async def _candidates(self, where: Where, query: Query, limit: int) -> tuple[list[RecallRow], Holdings]:
        """What may be shown of what is found; more is asked for when others' branches take the places."""
        session = None if where.scope == "namespace" else where.session
        if self._store.has_index and query.words:
            for most in (_CANDIDATES, _MOST_CANDIDATES):
                found = await self._store.found(where.namespace, session, query.every, most)
                rows = await self._allowed(where, found.rows)
                if len(rows) >= limit or len(found.rows) < most:
                    break
            if rows:
                return rows, found.holdings
        if not query.text:
            return [], _NOTHING
        rows, holdings = await self._scanned(where, session, query)
        return await self._allowed(where, rows), holdings

    async def _scanned(
        self, where: Where, session: str | None, query: Query
    ) -> tuple[list[RecallRow], Holdings]:
        """C15: what no index finds is found by its letters; where there is none, by its words too."""
        wanted, looked_for = plain(query.text), frozenset(query.every)
        has_index = self._store.has_index

        def is_wanted(row: RecallRow) -> bool:
            text = text_of(row)
            return wanted in plain(text) or (
                not has_index and not looked_for.isdisjoint(self._words.of(text))
            )

        scanned = await self._store.scanned(where.namespace, session, is_wanted, _CANDIDATES)
        return list(scanned.rows), await asyncio.to_thread(self._holdings, query, scanned.rows)

    def _holdings(self, query: Query, rows: Sequence[RecallRow]) -> Holdings:
        held = [set(self._words.of(text_of(row))) for row in rows]
        holding = {word: sum(word in words for words in held) for word in query.every}
        length = sum(map(len, held)) / max(1, len(held))
        return Holdings(max(1, len(held)), max(1.0, length), holding)

    async def _allowed(self, where: Where, rows: Sequence[RecallRow]) -> list[RecallRow]:
        """Those that may be shown: on the path if that is asked for, not rejected or undone, no echo."""
        shown = await asyncio.to_thread(_shown, rows)
        if where.scope != "branch":
            return shown
        on_path = await self._store.path_holds(
            where.namespace, where.session, where.head, [row.chain for row in shown]
        )
        return [row for row in shown if row.chain in on_path]

    async def _around(self, where: Where, rows: Sequence[RecallRow]) -> list[RecallRow]:
        """What stands up to two messages beside these on the path; of other scopes nothing is told."""
        if where.scope != "branch":
            return []
        known = {row.chain: row for row in rows if row.kind == "message"}
        fresh = list(known)
        for _ in range(2):
            beside = await self._store.beside(where.namespace, where.session, fresh[:64])
            found = [row for each in beside.values() for row in (each.before, *each.after) if row is not None]
            new = await self._allowed(where, [row for row in found if row.chain not in known])
            known.update({row.chain: row for row in new})
            fresh = [row.chain for row in new]
            if not fresh:
                break
        return list(known.values())

    def _hits(self, ranking: _Ranking, limit: int) -> list[Hit]:
        query, words = ranking.query, self._words
        entries = {_id(row): _entry(row) for row in (*ranking.rows, *ranking.around)}
        scored = ranked(query, list(entries.values()), ranking.holdings, words, ranking.weights)
        if not scored:
            # Found by their letters: no word says which is better, so that the newest come first.
            scored = [Scored(entries[_id(row)], 1.0) for row in ranking.rows]
        around = (entries[_id(row)] for row in ranking.around)
        beside = {entry.place: entry for entry in around if entry.kind == "message"}
        return hits_of(scored, beside, query, words, limit=limit)


def _shown(rows: Sequence[RecallRow]) -> list[RecallRow]:
    return [row for row in rows if row.state in _SHOWN and not _is_echo(row)]


def _is_echo(row: RecallRow) -> bool:
    return row.kind == "message" and is_echo_body(row.body)


def _entry(row: RecallRow) -> Entry:
    return Entry(_id(row), row.kind, row.role, row.depth, row.at, text_of(row))


def _id(row: RecallRow) -> str:
    return context_id(row.chain) if row.kind == "message" else row.ref.decode()
