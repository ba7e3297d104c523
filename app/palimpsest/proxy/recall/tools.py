"""context_grep and context_describe, as called by a model, an MCP client or a person.

Each call leaves an event (C18).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import structlog

from palimpsest.core.recall.lineage import Lineage
from palimpsest.core.recall.tool_calls import (
    DESCRIBE,
    GREP,
    CallScope,
    Describe,
    Grep,
    UnreadableCall,
    names_session,
    read_call,
)
from palimpsest.core.recall.tool_results import (
    HitFacts,
    Json,
    Many,
    conversation_id,
    error_result,
    grep_result,
)
from palimpsest.core.runtime.events import Event
from palimpsest.core.text.fence import sendable
from palimpsest.core.wire.json_text import encoded
from palimpsest.errors import RecallDisabled, StoreError
from palimpsest.proxy.archive import session_named
from palimpsest.proxy.journal_rows import event_rows
from palimpsest.proxy.recall.describing import Describer, lineages_in
from palimpsest.proxy.recall.indexing import RecallSwitch
from palimpsest.proxy.recall.searching import SearchAnswer, Searcher, Where
from palimpsest.storage.search import RecallRow
from palimpsest.storage.store import Store

_log = structlog.get_logger("palimpsest.recall")


@dataclass(frozen=True, slots=True)
class ToolCaller:
    """Who calls a tool: `via`, and the session that the event is written to ("": the one that is read)."""

    via: Literal["model", "rest", "mcp"]
    session: str = ""


class RecallTools:
    """Executes tool calls."""

    def __init__(
        self,
        store: Store,
        searching: Searcher,
        describing: Describer,
        switch: RecallSwitch,
        new_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._searching = searching
        self._describing = describing
        self._switch = switch
        self._new_id = new_id

    async def called(self, where: Where, name: str, arguments: str, newest_user: str = "") -> str:
        """The result as JSON text, the content of a tool message; "null" for an unknown id.

        Invalid calls and store errors are returned as `error`, not raised. Another session is read only if
        `newest_user`, the text of the newest user message, names it (rule 28).
        """
        asked = read_call(name, arguments)
        if isinstance(asked, UnreadableCall):
            return error_result(asked.code, asked.message)
        try:
            effective = await self._effective(where, asked.scope, newest_user)
            effective = replace(effective, question=newest_user.strip())
            return _text(await self.answered(effective, asked, ToolCaller("model", where.session)))
        except RecallDisabled as error:
            return error_result(error.code, error.message)
        except StoreError as error:
            _log.warning("recall_failed", error=type(error).__name__, session=where.session, tool=name)
            return error_result("store_error", "The archive could not be read; try again.")

    async def answered(self, where: Where, asked: Grep | Describe, asking: ToolCaller) -> Json | None:
        """The answer within `where`; a session named in the call is ignored.

        RecallDisabled if recall is switched off for the session: nothing is read then. StoreError.
        """
        await self._switch.check(where.namespace, where.session)
        if isinstance(asked, Grep):
            found = await self._searching.search(where, asked.query, asked.limit, asked.only)
            lineages = await self._lineages(where, found)
            stored = {ident: _stored(row) for ident, row in found.rows.items()}
            many = Many(found.found, found.is_counted)
            result: Json | None = grep_result(where.session, many, found.hits, stored, lineages)
            recalled: Json = {"tool": GREP, "asked": sendable(asked.query)}
            recalled |= {"resultCount": len(found.hits), "totalFound": found.found}
        else:
            result = await self._describing.described(where, asked)
            recalled = {"tool": DESCRIBE, "asked": sendable(asked.ident)}
            recalled |= dict.fromkeys(("resultCount", "totalFound"), int(result is not None))
        scope = asked.scope
        # `requestedSession` is the one asked for, `effectiveSession` the one read.
        recalled |= {
            "via": asking.via,
            "requestedSession": sendable(scope.task) if scope.task is not None else None,
            "explicitUserRequest": scope.explicit,
            "effectiveSession": where.session,
        }
        rows = event_rows([Event("context_recalled", recalled)], time.time(), self._new_id)
        try:
            await self._store.journal.add_events(where.namespace, asking.session or where.session, rows)
        except StoreError as error:
            _log.warning("event_not_stored", error=type(error).__name__, session=where.session)
        return result

    async def newest(self, namespace: str) -> str | None:
        """The id of the namespace's newest session; None when there is none. StoreError."""
        rows = await self._store.history.sessions(namespace, 1, None)
        return rows[0].id if rows else None

    async def is_exposed(self, namespace: str) -> bool:
        """Whether the tools are listed for a caller: on by default, or on for its newest session."""
        if self._switch.by_default:
            return True
        newest = await self.newest(namespace)
        return newest is not None and await self._switch.is_on(namespace, newest)

    async def _effective(self, where: Where, scope: CallScope, newest_user: str) -> Where:
        """The scope of the call: another session only if the user's message names it."""
        if scope.task is None or not scope.explicit:
            return where
        row = await session_named(self._store, where.namespace, scope.task)
        if row is None or row.id == where.session:
            return where
        if not any(
            names_session(newest_user, name, row.external_id) for name in (row.id, conversation_id(row.id))
        ):
            return where
        heads = await self._store.history.heads(where.namespace, row.id)
        return replace(where, session=row.id, head=heads[0].chain if heads else b"", scope="branch")

    async def _lineages(self, where: Where, found: SearchAnswer) -> dict[str, Lineage]:
        """The lineages of the summaries found; nothing is read if there are none."""
        sessions = {row.session for row in found.rows.values() if row.kind == "summary"}
        known: dict[str, Lineage] = {}
        for session in sorted(sessions):
            stored = await self._store.compactions.of_session(where.namespace, session)
            known |= await lineages_in(self._store.history, where.namespace, session, stored)
        return known


def _stored(row: RecallRow) -> HitFacts:
    return HitFacts(row.session, row.tokens, row.ref.decode() if row.kind == "summary" else "")


def _text(value: Any) -> str:
    return encoded(value).decode("utf-8", "surrogatepass")
