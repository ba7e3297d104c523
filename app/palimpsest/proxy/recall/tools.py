"""Searches of what is stored of a session (rule 5), and context_grep and context_describe, which models call.

A search brings the index up to date first, filters by path, ranks and quotes. Tools are also called by MCP
clients and people. Each call leaves an event (C18). context_describe shows one archived entry: a summary with
its sources, a message, a payload (C05); one outside the scope is reported as missing.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import structlog

from palimpsest.core.recall.filters import ANY, Filters
from palimpsest.core.recall.lineage import FoldedSummary, Lineage, folded_on, lineages_of
from palimpsest.core.recall.quotes import READ_BY_MODELS, READ_BY_PEOPLE, Hit, hits_of
from palimpsest.core.recall.rank import APART, FOUND, ranked
from palimpsest.core.recall.searchable_text import is_recall_output_body, name_in, summary_text, whole_text
from palimpsest.core.recall.talk import Query, query_of
from palimpsest.core.recall.tool_calls import (
    DESCRIBE,
    GREP,
    Describe,
    Grep,
    UnreadableCall,
    names_session,
    numbers_in,
    read_call,
)
from palimpsest.core.recall.tool_results import (
    Json,
    chain_digits_of,
    compaction_of,
    conversation_id,
    error_result,
    grep_result,
    message_result,
    messages_result,
    payload_id,
    summary_id,
    summary_result,
)
from palimpsest.core.recall.words import CorpusStatistics, Kind, SearchEntry, Words, joined, plain
from palimpsest.core.runtime.events import Event
from palimpsest.core.text.fence import sendable
from palimpsest.core.text.secrets import without_secrets
from palimpsest.core.view.compaction import context_id
from palimpsest.core.wire.json_text import encoded
from palimpsest.errors import RecallDisabled, StoreError
from palimpsest.proxy.archive import session_named
from palimpsest.proxy.jobs import logged
from palimpsest.proxy.journal_rows import event_rows
from palimpsest.proxy.recall.indexing import Indexer, IndexLag, RecallSwitch, text_of
from palimpsest.settings.compacting import RecallSettings
from palimpsest.storage.history import History
from palimpsest.storage.journal import StoredCompaction
from palimpsest.storage.search import Matches, RecallRow
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

    async def candidates(self, limit: int, *, has_index: bool) -> Matches:
        """Matching rows that may be shown. Reads more of the index if other branches take up the candidates.

        A scan finds rows that pass the filters beyond the best candidates, substrings (C15), and everything
        where no index was used.
        """
        where, query, only = self._where, self._query, self._only
        session = None if where.scope == "namespace" else where.session
        matching = Matches((), _NOTHING)
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
            # Of rows that may be shown those that were not read are counted.
            others = [row for row in found.others if row.state in _SHOWN and self._is_inside(row)]
            is_all = found.is_all and not (only.reads_bodies and others)
            matching = Matches(rows, found.holdings, others, is_all)
            if (rows or others) and (is_enough or only == ANY or not others):
                return matching
        if not query.text:
            return matching
        by_words = not has_index or bool(matching.others)
        read, is_all = await self.scanned([session] if session else None, by_words=by_words, only=only)
        if not matching.rows:
            return Matches(read, await asyncio.to_thread(self.holdings, read), (), is_all)
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

    def chosen(self, matching: Matches, late: Sequence[RecallRow]) -> tuple[list[RecallRow], list[RecallRow]]:
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
        entries = {}
        for ident, row in every.items():
            place = (row.depth, 0)
            if is_message := row.kind == "message":
                place = (self.places or {}).get(row.chain, place)
            kind: Kind = "payload" if row.tokens > self._how.large_payload_tokens else row.kind
            text = without_secrets(text_of(row)) if where.is_tool else text_of(row)
            about = place[1], name_in(row.body) if is_message else "", row.tokens, row.session
            entries[ident] = SearchEntry(ident, kind, row.role, place[0], row.at, text, *about)
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


_log = structlog.get_logger("palimpsest.recall")
_MOST_STEPS = 1_000
# Messages read for one page: with what stands beside each text hardly more fit.
_MOST_AT_ONCE = 50
# The fewest digits of a message's id that name it (History.message).
_LEAST_DIGITS = 24


@dataclass(frozen=True, slots=True)
class ToolCaller:
    """Who calls a tool: `via`, and the session that the event is written to ("": the one that is read)."""

    via: Literal["model", "rest", "mcp"]
    session: str = ""


@dataclass(frozen=True, slots=True)
class RecallTools:
    """Executes tool calls. A message of more than `large_payload_tokens` is shown as head and tail."""

    store: Store
    searching: Searcher
    switch: RecallSwitch
    new_id: Callable[[], str]
    large_payload_tokens: int

    async def called(self, where: Where, name: str, arguments: str, newest_user: str = "") -> str:
        """The result as JSON text, the content of a tool message; "null" for an unknown id.

        Invalid calls and store errors are returned as `error`, not raised. Another session is read only if
        `newest_user`, the text of the newest user message, names it (rule 28).
        """
        asked = read_call(name, arguments)
        if isinstance(asked, UnreadableCall):
            return error_result(asked.code, asked.message)
        try:
            effective = await self._effective(where, asked, newest_user)
            effective = replace(effective, question=newest_user.strip())
            answer = await self.answered(effective, asked, ToolCaller("model", where.session))
            return encoded(answer).decode("utf-8", "surrogatepass")
        except RecallDisabled as error:
            return error_result(error.code, error.message)
        except StoreError as error:
            _log.warning("recall_failed", error=type(error).__name__, session=where.session, tool=name)
            return error_result("store_error", "The archive could not be read; try again.")

    async def answered(self, where: Where, asked: Grep | Describe, asking: ToolCaller) -> Json | None:
        """The answer within `where`; a session named in the call is ignored.

        RecallDisabled if recall is switched off for the session: nothing is read then. StoreError.
        """
        await self.switch.check(where.namespace, where.session)
        where = replace(where, is_tool=True)
        if isinstance(asked, Grep):
            found = await self.searching.search(where, asked.query, asked.limit, asked.only)
            lineages: dict[str, Lineage] = {}
            for session in {
                hit.quote.entry.session for hit in found.hits if hit.quote.entry.kind == "summary"
            }:
                made = await self.store.compactions.of_session(where.namespace, session)
                read = await self._lineages(where.namespace, session, made)
                lineages |= {summary_id(ident): lineage for ident, lineage in read.items()}
            result: Json | None = grep_result(
                where.session, found.hits, lineages, found.found, is_counted=found.is_counted
            )
            about = GREP, asked.query, len(found.hits), found.found
        else:
            result = await self._described(where, asked)
            about = DESCRIBE, asked.ident, int(result is not None), int(result is not None)
        task = asked.task
        # `requestedSession` is the one asked for, `effectiveSession` the one read.
        recalled: Json = {
            **dict(zip(("tool", "asked", "resultCount", "totalFound"), about, strict=True)),
            "asked": sendable(about[1]),
            "via": asking.via,
            "requestedSession": sendable(task) if task is not None else None,
            "explicitUserRequest": asked.explicit,
            "effectiveSession": where.session,
        }
        rows = event_rows([Event("context_recalled", recalled)], time.time(), self.new_id)
        with logged(_log, "event_not_stored", session=where.session):
            await self.store.journal.add_events(where.namespace, asking.session or where.session, rows)
        return result

    async def newest(self, namespace: str) -> str | None:
        """The id of the namespace's newest session; None when there is none. StoreError."""
        rows = await self.store.history.sessions(namespace, 1, None)
        return rows[0].id if rows else None

    async def is_exposed(self, namespace: str) -> bool:
        """Whether the tools are listed for a caller: on by default, or on for its newest session."""
        if self.switch.by_default:
            return True
        newest = await self.newest(namespace)
        return newest is not None and await self.switch.is_on(namespace, newest)

    async def _effective(self, where: Where, asked: Grep | Describe, newest_user: str) -> Where:
        """The scope of the call: another session only if the user's message names it."""
        if asked.task is None or not asked.explicit:
            return where
        row = await session_named(self.store, where.namespace, asked.task)
        if row is None or row.id == where.session:
            return where
        if not any(
            names_session(newest_user, name, row.external_id) for name in (row.id, conversation_id(row.id))
        ):
            return where
        heads = await self.store.history.heads(where.namespace, row.id)
        return replace(where, session=row.id, head=heads[0].chain if heads else b"", scope="branch")

    async def _lineages(
        self, namespace: str, session: str, stored: Sequence[StoredCompaction]
    ) -> Mapping[str, Lineage]:
        """The lineage of each of the session's compactions that removed messages, by its id. StoreError.

        `stored` are all, oldest first. Those that only mask are left out; as parents they are replaced by
        their own parents.
        """
        above = {one.compaction.id: one.compaction.parents for one in stored}
        summaries = [one for one in stored if one.compaction.kind == "message_removal"]
        ids = {one.compaction.id for one in summaries}
        covered: list[FoldedSummary] = []
        paths: list[tuple[bytes, ...]] = []
        # Newest first: the path of a summary mostly contains those of the older ones.
        for one in reversed(summaries):
            made, folded = one.compaction, None
            for path in paths:
                folded = await asyncio.to_thread(folded_on, made, path)
                # After a client dropped its oldest messages another path contains the same watermark.
                if folded is not None and len(folded) == made.messages_folded:
                    break
            else:
                entries = await self.store.history.path(namespace, session, made.watermark)
                paths.append(tuple(entry.chain for entry in entries))
                folded = await asyncio.to_thread(folded_on, made, paths[-1])
            # The nearest ancestors that are summaries; an import may bring a circle.
            parents, waiting, steps = list[str](), list(made.parents), _MOST_STEPS
            while waiting and steps:
                steps -= 1
                parent = waiting.pop(0)
                if parent in ids:
                    parents.append(parent)
                else:
                    waiting += above.get(parent, ())
            covered.append(
                FoldedSummary(made.id, folded or (), tuple(parents), one.created_at, one.undone_at)
            )
        return await asyncio.to_thread(lineages_of, covered[::-1])

    async def _described(self, where: Where, asked: Describe) -> Json | None:
        """The entry or the messages; None when there are none in the scope. StoreError."""
        places = await places_of(self.store.history, where)
        path = list(places)

        def number_of(ident: str) -> int:
            digits = chain_digits_of(ident) or ""
            is_id = len(digits) >= _LEAST_DIGITS
            return next((n for n, chain in enumerate(path, 1) if is_id and chain.hex().startswith(digits)), 0)

        first, last = numbers_in(asked.ident, number_of)
        chains = path[max(0, first - 1) : min(last, first + _MOST_AT_ONCE)]
        if not last:
            if (summary := await self._summary(where, asked, places)) is not None:
                return summary
            digits = (chain_digits_of(asked.ident) or "") if where.scope != "branch" else ""
            start = bytes.fromhex(digits[: len(digits) // 2 * 2])
            found = await self.store.history.message(where.namespace, start)
            # Sessions with the same beginning share message ids: this session's row counts.
            chains = [found[1].chain] if found else []
        entries = await self._entries(where, chains, places)
        if entries and (first < last or "-" in asked.ident):
            return messages_result(entries, min(last, len(path)), where.session, asked.page)
        return message_result(entries[0], len(path), asked.page) if entries else None

    async def _entries(self, where: Where, chains: Sequence[bytes], places: Places) -> list[SearchEntry]:
        """The messages that may be shown, in order and without secrets. StoreError."""
        entries = []
        for row in await self.store.history.those(where.namespace, where.session, chains):
            is_large = row.tokens > self.large_payload_tokens
            ident = payload_id(row.chain) if is_large else context_id(row.chain)
            number, turn = places.get(row.chain, (row.depth, 0))
            text = without_secrets(whole_text(row.body) or row.body.decode("utf-8", "surrogatepass"))
            about = (turn, name_in(row.body), row.tokens, where.session)
            kind: Kind = "payload" if is_large else "message"
            if row.state in ("live", "incomplete"):
                entries.append(SearchEntry(ident, kind, row.role, number, row.created_at, text, *about))
        return entries

    async def _summary(self, where: Where, asked: Describe, places: Places) -> Json | None:
        namespace, session = where.namespace, where.session
        stored = await self.store.compactions.of_session(namespace, session)
        ident = compaction_of(asked.ident)
        found = next((one for one in stored if one.compaction.id == ident), None)
        if found is None or found.compaction.kind != "message_removal" or found.undone_at is not None:
            return None
        made = found.compaction
        if where.scope == "branch" and made.watermark not in places:
            return None
        lineage = (await self._lineages(namespace, session, stored))[ident]
        sources = await self._entries(where, lineage.sources[: asked.source_limit], places)
        text = without_secrets(summary_text(made.summary.encode("utf-8", "surrogatepass")))
        entry = SearchEntry(summary_id(ident), "summary", "", 0, found.created_at, text, session=session)
        return summary_result(entry, lineage, sources, asked.page)
