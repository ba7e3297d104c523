"""context_grep and context_describe as a model, an MCP client or a person calls them.

Each call leaves an event (C18). Knows nothing of how calls and results travel.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import structlog

from app.core.recall.lineage import Lineage
from app.core.recall.tool_schemas import DESCRIBE, GREP
from app.core.recall.tools.arguments import (
    Describe,
    Grep,
    Scoped,
    Unreadable,
    names_session,
    read_call,
)
from app.core.recall.tools.ids import conversation_id
from app.core.recall.tools.results import Json, Many, Stored, error_result, grep_result
from app.core.runtime.events import Recalled, Via, context_recalled
from app.core.wire.json_text import encoded
from app.errors import RecallDisabled, StoreError
from app.proxy.archive import session_named
from app.proxy.chronicle.rows import event_rows
from app.proxy.recall.describing import Describing
from app.proxy.recall.lineages import lineages_in
from app.proxy.recall.searching import Answer, Searching, Where
from app.proxy.recall.switch import RecallSwitch
from app.storage.contract import Store
from app.storage.recall.contract import RecallRow

_log = structlog.get_logger("palimpsest.recall")


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks, beside what is asked: over which way, and the session the events go to ("": the one read)."""

    via: Via
    session: str = ""


class RecallTools:
    """One for the application."""

    def __init__(
        self,
        store: Store,
        searching: Searching,
        describing: Describing,
        switch: RecallSwitch,
        new_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._searching = searching
        self._describing = describing
        self._switch = switch
        self._new_id = new_id

    async def called(self, where: Where, name: str, arguments: str, newest_user: str = "") -> str:
        """The result as JSON text, what a tool message holds; "null" for an id that is not there.

        Never raises for what a model wrote, nor for a store that fails: that comes back as `error`. Another
        session is read only where `newest_user`, the text of the newest user message, names it (rule 28).
        """
        asked = read_call(name, arguments)
        if isinstance(asked, Unreadable):
            return _text(error_result(asked))
        try:
            effective = await self._effective(where, asked.scope, newest_user)
            effective = replace(effective, question=newest_user.strip())
            return _text(await self.answered(effective, asked, Asking("model", where.session)))
        except RecallDisabled as error:
            return _text(error_result(Unreadable(error.code, error.message)))
        except StoreError as error:
            _log.warning("recall_failed", error=type(error).__name__, session=where.session, tool=name)
            return _text(error_result(Unreadable("store_error", "The archive could not be read; try again.")))

    async def answered(self, where: Where, asked: Grep | Describe, asking: Asking) -> Json | None:
        """The answer within `where`, whatever the call says of other sessions.

        RecallDisabled where that session has recall switched off: nothing is read or told then. StoreError.
        """
        await self._switch.check(where.namespace, where.session)
        if isinstance(asked, Grep):
            found = await self._searching.search(where, asked.query, asked.limit, asked.only)
            lineages = await self._lineages(where, found)
            stored = {ident: _stored(row) for ident, row in found.rows.items()}
            many = Many(found.found, found.is_counted)
            result: Json | None = grep_result(where.session, many, found.hits, stored, lineages)
            told = Recalled(GREP, asked.query, len(found.hits), found.found)
        else:
            result = await self._describing.described(where, asked)
            told = Recalled(DESCRIBE, asked.ident, int(result is not None), int(result is not None))
        await self._tell(where, asked.scope, told, asking)
        return result

    async def newest(self, namespace: str) -> str | None:
        """The id of the caller's newest session; None when there is none. StoreError."""
        rows = await self._store.sessions(namespace, 1, None)
        return rows[0].id if rows else None

    async def is_exposed(self, namespace: str) -> bool:
        """Whether a caller is told of the tools: where they are on by default, or for the newest session."""
        if self._switch.by_default:
            return True
        newest = await self.newest(namespace)
        return newest is not None and await self._switch.is_on(namespace, newest)

    async def _effective(self, where: Where, scope: Scoped, newest_user: str) -> Where:
        """Where the call is carried out: another session only if the user asked for it by its name."""
        if scope.task is None or not scope.explicit:
            return where
        row = await session_named(self._store, where.namespace, scope.task)
        if row is None or row.id == where.session:
            return where
        if not any(
            names_session(newest_user, name, row.external_id) for name in (row.id, conversation_id(row.id))
        ):
            return where
        heads = await self._store.heads(where.namespace, row.id)
        return replace(where, session=row.id, head=heads[0].chain if heads else b"", scope="branch")

    async def _lineages(self, where: Where, found: Answer) -> dict[str, Lineage]:
        """Those of the summaries found; a search that found none reads nothing more."""
        sessions = {row.session for row in found.rows.values() if row.kind == "summary"}
        known: dict[str, Lineage] = {}
        for session in sorted(sessions):
            stored = await self._store.compactions(where.namespace, session)
            known |= await lineages_in(self._store, where.namespace, session, stored)
        return known

    async def _tell(self, where: Where, scope: Scoped, told: Recalled, asking: Asking) -> None:
        """The event is stored; a reader is answered also where it could not be."""
        event = context_recalled(told, asking.via, scope.task, scope.explicit, where.session)
        rows = event_rows([event], time.time(), self._new_id)
        try:
            await self._store.add_events(where.namespace, asking.session or where.session, rows)
        except StoreError as error:
            _log.warning("event_not_stored", error=type(error).__name__, session=where.session)


def _stored(row: RecallRow) -> Stored:
    return Stored(row.session, row.tokens, row.ref.decode() if row.kind == "summary" else "")


def _text(value: Any) -> str:
    return encoded(value).decode("utf-8", "surrogatepass")
