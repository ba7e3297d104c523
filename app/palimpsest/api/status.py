"""Endpoints for a session's status (D23), its preset's state (B09) and its settings (A42)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, TypedDict

from fastapi import APIRouter, Request
from pydantic import ConfigDict, RootModel

from palimpsest.api.callers import Admitted, Branch, SessionName, credentials_of, order_of
from palimpsest.api.replies import Reply, Tokens, UtcTime, described, reply, utc_time
from palimpsest.api.sessions import PlaceFields, place_fields
from palimpsest.core.budget.upstream_counts import percent
from palimpsest.core.summary.styles import slot_count_label, state_fields
from palimpsest.core.utc import day_of
from palimpsest.core.view.compaction import Author, Trigger
from palimpsest.core.view.outcomes import Fold, MaskOnly
from palimpsest.proxy.archive import Archive, Place
from palimpsest.proxy.compacting.context_loader import ContextLoader
from palimpsest.proxy.compacting.viewing import ViewPlanner
from palimpsest.proxy.compaction_context import CompactionContext
from palimpsest.settings.session import origins, own_settings, patched, recall_enabled, session_policy
from palimpsest.settings.settings import Origin, Settings
from palimpsest.storage.compactions import StoredCompaction
from palimpsest.storage.history import SessionRow
from palimpsest.storage.journal import Journal
from palimpsest.storage.store import Store

# Removes a session of a namespace from the word index.
IndexRemoval = Callable[[str, str], Awaitable[None]]


PolicyNumber = TypedDict("PolicyNumber", {"value": Any, "from": Origin})


class SessionSettingsFields(TypedDict):
    """The session's own settings, and its policy: each number by its name, and where it comes from."""

    session: str
    model: str
    settings: Annotated[dict[str, Any], described("As they were set, under their current names.")]
    policy: dict[str, PolicyNumber]


class WindowShares(TypedDict):
    """Percent of the window, of the full prompt and of the view."""

    before: float
    after: float


class LastCompaction(TypedDict):
    """The session's newest compaction in force."""

    id: str
    created_at: UtcTime
    strategy: str
    trigger: Trigger
    author: Author
    tokens_before: Tokens
    tokens_after: Tokens
    pct: WindowShares


class SpendingFields(TypedDict):
    """Tokens that summaries took today (UTC), for all the caller's sessions."""

    day: Annotated[str, described("", format="date")]
    calls: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class StatusFields(PlaceFields):
    """How full the window is, and what a compaction would do."""

    model: str
    strategy: str
    slots: Annotated[str | None, described("Filled slots of the working state; null where none is kept.")]
    compacting: Annotated[bool, described("A compaction is in progress.")]
    pct: WindowShares
    tokens: Tokens
    tokens_full: Tokens
    window_tokens: Tokens
    trigger_tokens: Tokens
    target_tokens: Tokens
    armed: Annotated[bool, described("False above the trigger where a compaction would gain nothing.")]
    last_compaction: LastCompaction | None
    spending: SpendingFields


class StateFields(PlaceFields):
    """The state that the preset in force keeps; empty when it keeps none."""

    strategy: str
    compaction: str | None
    state: dict[str, Any]


class SettingsPatch(RootModel[dict[str, Any]]):
    """A JSON merge patch (RFC 7386): null removes, objects are merged."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"policy": {"tail_messages": 8}}]})


class SettingsPages:
    """Settings of a session; `unindexes` is called for one that switches recall off."""

    def __init__(
        self, archive: Archive, journal: Journal, settings: Settings, unindexes: IndexRemoval
    ) -> None:
        self._archive = archive
        self._journal = journal
        self._settings = settings
        self._unindexes = unindexes
        # Concurrent patches must not undo each other.
        self._patching = asyncio.Lock()

    def on(self, api: APIRouter) -> None:
        """The routes are registered."""
        api.add_api_route("/sessions/{name:path}/settings", self.get_settings, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/settings", self.update_settings, methods=["PATCH"])

    async def get_settings(self, caller: Admitted, name: SessionName) -> Reply[SessionSettingsFields]:
        """Get the settings of a session.

        Its own ones, and its policy: each number and where it comes from.
        """
        row = await self._archive.session(caller.namespace, name)
        return reply(await self.fields(caller.namespace, row))

    async def update_settings(
        self, request: Request, caller: Admitted, name: SessionName
    ) -> Reply[SessionSettingsFields]:
        """Change the settings of a session.

        The body is a JSON merge patch (RFC 7386). It takes effect at the next request.
        """
        patch = (await order_of(request, SettingsPatch)).root
        row = await self._archive.session(caller.namespace, name)
        return reply(await self.patched(caller.namespace, row, patch))

    async def patched(
        self, namespace: str, row: SessionRow, patch: Mapping[str, Any]
    ) -> SessionSettingsFields:
        """Merge the patch, and give what is in force. InvalidParameter names an invalid field."""
        async with self._patching:
            current = await self._journal.settings_of(namespace, row.id)
            stored = patched(current, patch, self._settings, row.model)
            if stored != current:
                await self._journal.put_settings(namespace, row.id, stored)
            if not recall_enabled(self._settings, stored):
                # Also where nothing changed: a repeated call completes one that failed here.
                await self._unindexes(namespace, row.id)
        return self._fields(row, stored)

    async def fields(self, namespace: str, row: SessionRow) -> SessionSettingsFields:
        """What is in force in the session."""
        return self._fields(row, await self._journal.settings_of(namespace, row.id))

    def _fields(self, row: SessionRow, stored: bytes | None) -> SessionSettingsFields:
        policy = session_policy(self._settings, row.model, stored)
        sources = origins(self._settings, row.model, stored)
        numbers: dict[str, PolicyNumber] = {
            field: {"value": value, "from": sources[field]} for field, value in asdict(policy).items()
        }
        return {
            "session": row.id,
            "model": row.model,
            "settings": own_settings(stored),
            "policy": numbers,
        }


class StatusPages:
    """The endpoints for status and state."""

    def __init__(self, archive: Archive, store: Store, contexts: ContextLoader, viewing: ViewPlanner) -> None:
        self._archive = archive
        self._store = store
        self._contexts = contexts
        self._viewing = viewing

    def on(self, api: APIRouter) -> None:
        """The routes are registered."""
        api.add_api_route("/sessions/{name:path}/status", self.get_status, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/state", self.get_state, methods=["GET"])

    async def get_status(
        self, request: Request, caller: Admitted, name: SessionName, branch: Branch = None
    ) -> Reply[StatusFields]:
        """Get how full the window is.

        Strategy, slots, whether a compaction is in progress, and the shares of the window.
        """
        place, context = await self._context(request, caller, name, branch)
        view_tokens = (await context.done(CompactionContext.under, context.current)).tokens
        budget = context.budget
        tokens, tokens_full = budget.for_model(view_tokens), budget.for_model(context.turn.tokens)
        slots = slot_count_label(await context.done(CompactionContext.kept_state))
        stored = await self._store.compactions.of_session(caller.namespace, place.row.id)
        return reply(
            {
                **place_fields(place),
                "model": context.turn.model,
                "strategy": context.policy.name,
                "slots": slots,
                "compacting": await self._viewing.is_compacting(context),
                "pct": _shares(tokens_full, tokens, budget.window.tokens),
                "tokens": tokens,
                "tokens_full": tokens_full,
                "window_tokens": budget.window.tokens,
                "trigger_tokens": budget.for_model(budget.trigger_tokens),
                "target_tokens": budget.for_model(budget.target_tokens),
                "armed": await context.done(_is_armed, view_tokens),
                "last_compaction": _last(stored, context),
                "spending": await self._spending(caller.namespace),
            }
        )

    async def get_state(
        self, request: Request, caller: Admitted, name: SessionName, branch: Branch = None
    ) -> Reply[StateFields]:
        """Get the working state.

        The one of the compaction in force; empty where the preset keeps none.
        """
        place, context = await self._context(request, caller, name, branch)
        return reply(
            {
                **place_fields(place),
                "strategy": context.policy.name,
                "compaction": context.current.id if context.current else None,
                "state": state_fields(await context.done(CompactionContext.kept_state)),
            }
        )

    async def _context(
        self, request: Request, caller: Admitted, name: str, branch: str | None
    ) -> tuple[Place, CompactionContext]:
        place = await self._archive.place(caller.namespace, name, branch)
        subject = await self._archive.branch(place, credentials_of(request))
        return place, await self._contexts.of(subject)

    async def _spending(self, namespace: str) -> SpendingFields:
        """The summary spending of all the caller's sessions today (UTC)."""
        day = day_of(time.time())
        spent = await self._store.journal.spending(namespace, day)
        return {
            "day": day,
            "calls": spent.calls,
            "prompt_tokens": spent.prompt_tokens,
            "completion_tokens": spent.completion_tokens,
            "cached_tokens": spent.cached_tokens,
        }


def _shares(before: int, after: int, window: int) -> WindowShares:
    """Percent of the window: of the full prompt, and of the model's view."""
    return {"before": percent(before, window), "after": percent(after, window)}


def _is_armed(context: CompactionContext, view_tokens: int) -> bool:
    """False while the prompt is above the trigger and a compaction would gain nothing (D14, F06)."""
    if view_tokens < context.budget.trigger_tokens:
        return True
    return isinstance(context.plan(), Fold | MaskOnly)


def _last(stored: Sequence[StoredCompaction], context: CompactionContext) -> LastCompaction | None:
    """The session's newest compaction that was not undone."""
    standing = [row for row in stored if row.undone_at is None]
    if not standing:
        return None
    made, window = standing[-1].compaction, context.budget.window.tokens
    return {
        "id": made.id,
        "created_at": utc_time(standing[-1].created_at),
        "strategy": made.policy,
        "trigger": made.trigger,
        "author": made.author,
        "tokens_before": made.tokens_before,
        "tokens_after": made.tokens_after,
        "pct": _shares(made.tokens_before, made.tokens_after, window),
    }
