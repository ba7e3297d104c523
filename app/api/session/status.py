"""How a session stands (D23), and what the way of summarising has noted of it (B09).

Knows nothing of how any of it is decided.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request, Response

from app.api.callers import Admitted, credentials_of
from app.api.replies import reply
from app.api.sessions import place_fields
from app.core.budget.calibration import percent
from app.core.summary.kept_state import slots_of, state_fields
from app.core.view.outcomes import Fold, MaskOnly
from app.proxy.archive import Archive, Place
from app.proxy.compacting.scene import Scene
from app.proxy.compacting.scenes import Scenes
from app.proxy.compacting.viewing import Viewing
from app.storage.contract import Store, StoredCompaction


class StatusPages:
    """The endpoints that say where a session is."""

    def __init__(self, archive: Archive, store: Store, scenes: Scenes, viewing: Viewing) -> None:
        self._archive = archive
        self._store = store
        self._scenes = scenes
        self._viewing = viewing

    def on(self, api: APIRouter) -> None:
        """The routes are registered."""
        api.add_api_route("/sessions/{name:path}/status", self.status, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/state", self.state, methods=["GET"])

    async def status(
        self, request: Request, caller: Admitted, name: str, branch: str | None = None
    ) -> Response:
        """Strategy, slots, whether a compaction is being made, and the shares of the window."""
        place, scene = await self._scene(request, caller, name, branch)
        view_tokens = (await scene.done(Scene.under, scene.current)).tokens
        budget = scene.budget
        tokens, tokens_full = budget.for_model(view_tokens), budget.for_model(scene.turn.tokens)
        slots = slots_of(await scene.done(Scene.kept_state))
        stored = await self._store.compactions(caller.namespace, place.row.id)
        return reply(
            {
                **place_fields(place),
                "model": scene.turn.model,
                "strategy": scene.policy.name,
                **({"slots": slots} if slots else {}),
                "compacting": await self._viewing.is_compacting(scene),
                "pct": _shares(tokens_full, tokens, budget.window.tokens),
                "tokens": tokens,
                "tokens_full": tokens_full,
                "window_tokens": budget.window.tokens,
                "trigger_tokens": budget.for_model(budget.trigger_tokens),
                "target_tokens": budget.for_model(budget.target_tokens),
                "armed": await scene.done(_is_armed, view_tokens),
                "last_compaction": _last(stored, scene),
                "spending": await self._spending(caller.namespace),
            }
        )

    async def state(
        self, request: Request, caller: Admitted, name: str, branch: str | None = None
    ) -> Response:
        """The state that the preset in force keeps; empty where it keeps none."""
        place, scene = await self._scene(request, caller, name, branch)
        return reply(
            {
                **place_fields(place),
                "strategy": scene.policy.name,
                "compaction": scene.current.id if scene.current else None,
                "state": state_fields(await scene.done(Scene.kept_state)),
            }
        )

    async def _scene(
        self, request: Request, caller: Admitted, name: str, branch: str | None
    ) -> tuple[Place, Scene]:
        place = await self._archive.place(caller.namespace, name, branch)
        subject = await self._archive.branch(place, credentials_of(request))
        return place, await self._scenes.of(subject)

    async def _spending(self, namespace: str) -> dict[str, Any]:
        """Of all sessions of the caller, today (UTC)."""
        day = datetime.fromtimestamp(time.time(), UTC).date().isoformat()
        spent = await self._store.spending(namespace, day)
        return {
            "day": day,
            "calls": spent.calls,
            "prompt_tokens": spent.prompt_tokens,
            "completion_tokens": spent.completion_tokens,
            "cached_tokens": spent.cached_tokens,
        }


def _shares(before: int, after: int, window: int) -> dict[str, float]:
    """Percent of the window: with nothing folded, and as the model is shown it."""
    return {"before": percent(before, window), "after": percent(after, window)}


def _is_armed(scene: Scene, view_tokens: int) -> bool:
    """False while the prompt is above the trigger and a compaction would win nothing (D14, F06)."""
    if view_tokens < scene.budget.trigger_tokens:
        return True
    return isinstance(scene.plan(), Fold | MaskOnly)


def _last(stored: Sequence[StoredCompaction], scene: Scene) -> dict[str, Any] | None:
    """The newest compaction of the session that stands."""
    standing = [row for row in stored if row.undone_at is None]
    if not standing:
        return None
    made, window = standing[-1].compaction, scene.budget.window.tokens
    return {
        "id": made.id,
        "created_at": standing[-1].created_at,
        "strategy": made.policy,
        "trigger": made.trigger,
        "author": made.author,
        "tokens_before": made.tokens_before,
        "tokens_after": made.tokens_after,
        "pct": _shares(made.tokens_before, made.tokens_after, window),
    }
