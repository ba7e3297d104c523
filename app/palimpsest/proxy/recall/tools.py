"""context_grep and context_describe, as called by a model, an MCP client or a person.

Each call leaves an event (C18). context_describe shows one archived entry: a summary with its sources, a
message, a payload (C05); one outside the scope is reported as missing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import structlog

from palimpsest.core.recall.lineage import FoldedSummary, Lineage, folded_on, lineages_of
from palimpsest.core.recall.searchable_text import name_in, summary_text, whole_text
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
from palimpsest.core.recall.words import Kind, SearchEntry
from palimpsest.core.runtime.events import Event
from palimpsest.core.text.fence import sendable
from palimpsest.core.text.secrets import without_secrets
from palimpsest.core.view.compaction import context_id
from palimpsest.core.wire.json_text import encoded
from palimpsest.errors import RecallDisabled, StoreError
from palimpsest.proxy.archive import session_named
from palimpsest.proxy.jobs import logged
from palimpsest.proxy.journal_rows import event_rows
from palimpsest.proxy.recall.indexing import RecallSwitch
from palimpsest.proxy.recall.searching import Places, Searcher, Where, places_of
from palimpsest.storage.compactions import StoredCompaction
from palimpsest.storage.store import Store

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
