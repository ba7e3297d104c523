"""Endpoints for a session's status (D23), its preset's state (B09) and its settings (A42)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, TypedDict

from pydantic import ConfigDict, RootModel

from palimpsest.api.callers import AskedSession, Branch, CallersSession, api_router
from palimpsest.api.replies import Day, Reply, Tokens, UtcTime, described, reply, shape_of, utc_time
from palimpsest.api.sessions import PlaceFields, place_fields
from palimpsest.core.budget.upstream_counts import percent
from palimpsest.core.summary.styles import slot_count_label, slots_in
from palimpsest.core.utc import day_of
from palimpsest.core.view.compaction import Author, Trigger
from palimpsest.core.view.outcomes import Fold, MaskOnly
from palimpsest.core.view.plan import plan_of
from palimpsest.proxy.compaction_context import CompactionContext
from palimpsest.settings.session import origins, own_settings, patched, recall_enabled, session_policy
from palimpsest.settings.settings import Origin, Settings
from palimpsest.storage.history import SessionRow

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

    day: Day
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


api = api_router()


@api.get("/sessions/{name:path}/settings")
async def get_settings(session: AskedSession) -> Reply[SessionSettingsFields]:
    """Get the settings of a session.

    Its own ones, and its policy: each number and where it comes from.
    """
    return reply(await settings_of(session, await session.row()))


async def settings_of(session: CallersSession, row: SessionRow) -> SessionSettingsFields:
    """What is in force in the session."""
    stored = await session.parts.store.journal.settings_of(session.namespace, row.id)
    return _settings_fields(session.parts.settings, row, stored)


@api.patch("/sessions/{name:path}/settings")
async def update_settings(session: AskedSession) -> Reply[SessionSettingsFields]:
    """Change the settings of a session.

    The body is a JSON merge patch (RFC 7386). It takes effect at the next request.
    """
    patch = (await session.order(SettingsPatch)).root
    return reply(await patch_settings(session, await session.row(), patch))


async def patch_settings(
    session: CallersSession, row: SessionRow, patch: Mapping[str, Any]
) -> SessionSettingsFields:
    """Merge the patch, and give what is in force. InvalidParameter names an invalid field."""
    parts, at = session.parts, (session.namespace, row.id)
    async with parts.patching:
        current = await parts.store.journal.settings_of(*at)
        stored = patched(current, patch, parts.settings, row.model)
        if stored != current:
            await parts.store.journal.put_settings(*at, stored)
        if not recall_enabled(parts.settings, stored):
            # Also where nothing changed: a repeated call completes one that failed here.
            await parts.indexing.drop(*at)
    return _settings_fields(parts.settings, row, stored)


def _settings_fields(settings: Settings, row: SessionRow, stored: bytes | None) -> SessionSettingsFields:
    policy = asdict(session_policy(settings, row.model, stored))
    sources = origins(settings, row.model, stored)
    return {
        "session": row.id,
        "model": row.model,
        "settings": own_settings(stored),
        "policy": {field: {"value": value, "from": sources[field]} for field, value in policy.items()},
    }


@api.get("/sessions/{name:path}/status")
async def get_status(session: AskedSession, branch: Branch = None) -> Reply[StatusFields]:
    """Get how full the window is.

    Strategy, slots, whether a compaction is in progress, and the shares of the window.
    """
    place, context = await session.context(branch)
    budget, store = context.budget, session.parts.store
    window = budget.window.tokens
    view_tokens = (await context.done(CompactionContext.under, context.current)).tokens
    tokens, tokens_full = budget.for_model(view_tokens), budget.for_model(context.turn.tokens)
    slots = slot_count_label(slots_in(await context.done(CompactionContext.kept_state)))
    made = await store.compactions.of_session(session.namespace, place.row.id)
    newest = next((row for row in reversed(made) if row.undone_at is None), None)
    last: LastCompaction | None = None
    if newest is not None:
        last = shape_of(
            LastCompaction,
            newest.compaction,
            created_at=utc_time(newest.created_at),
            strategy=newest.compaction.policy,
            pct=_shares(newest.compaction.tokens_before, newest.compaction.tokens_after, window),
        )
    # Of all the caller's sessions.
    day = day_of(time.time())
    spent = await store.journal.spending(session.namespace, day)
    return reply(
        {
            **place_fields(place),
            "model": context.turn.model,
            "strategy": context.policy.name,
            "slots": slots,
            "compacting": await session.parts.viewing.is_compacting(context),
            "pct": _shares(tokens_full, tokens, window),
            "tokens": tokens,
            "tokens_full": tokens_full,
            "window_tokens": window,
            "trigger_tokens": budget.for_model(budget.trigger_tokens),
            "target_tokens": budget.for_model(budget.target_tokens),
            "armed": await context.done(_is_armed, view_tokens),
            "last_compaction": last,
            "spending": shape_of(SpendingFields, spent, day=day),
        }
    )


@api.get("/sessions/{name:path}/state")
async def get_state(session: AskedSession, branch: Branch = None) -> Reply[StateFields]:
    """Get the working state.

    The one of the compaction in force; empty where the preset keeps none.
    """
    place, context = await session.context(branch)
    return reply(
        {
            **place_fields(place),
            "strategy": context.policy.name,
            "compaction": context.current.id if context.current else None,
            "state": await context.done(CompactionContext.kept_state),
        }
    )


def _shares(before: int, after: int, window: int) -> WindowShares:
    """Percent of the window: of the full prompt, and of the model's view."""
    return {"before": percent(before, window), "after": percent(after, window)}


def _is_armed(context: CompactionContext, view_tokens: int) -> bool:
    """False where the policy is off, or a prompt above the trigger would gain nothing (D14, F06)."""
    if context.policy.is_off:
        return False
    return view_tokens < context.budget.trigger_tokens or isinstance(context.plan(plan_of), Fold | MaskOnly)
