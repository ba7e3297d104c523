"""What the model sees of a stored branch now, and a compaction by hand.

Knows nothing of how either is decided.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, StringConstraints

from app.api.callers import Admitted, credentials_of, order_of
from app.api.replies import array_of, object_with, raw_reply, reply
from app.api.session.explanation import cost_fields, explanation_fields
from app.api.sessions import compaction_fields, place_fields
from app.core.view.compaction import context_id
from app.core.view.outcomes import ViewPart
from app.proxy.archive import Archive
from app.proxy.compacting.scene import Scene
from app.proxy.compacting.scenes import Scenes
from app.proxy.compacting.viewing import Viewing
from app.proxy.turn import Shown

# Of a budget, in the model's tokens.
_SIZES = (
    "fixed_tokens",
    "available_tokens",
    "precompute_tokens",
    "trigger_tokens",
    "target_tokens",
    "ceiling_tokens",
    "summary_tokens",
)
_NOTHING_TO_FOLD = "nothing_to_fold"


class CompactOrder(BaseModel):
    """A compaction by hand (D25): `focus` is what the summary should keep in mind."""

    model_config = ConfigDict(extra="forbid")

    focus: Annotated[str, StringConstraints(max_length=2_000)] = ""
    branch: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None


class ViewPages:
    """The endpoints that need to know what a model would be shown."""

    def __init__(self, archive: Archive, scenes: Scenes, viewing: Viewing) -> None:
        self._archive = archive
        self._scenes = scenes
        self._viewing = viewing

    def on(self, api: APIRouter) -> None:
        """The routes are registered."""
        api.add_api_route("/sessions/{name:path}/view", self.view, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/compact", self.compact, methods=["POST"])

    async def view(
        self,
        request: Request,
        caller: Admitted,
        name: str,
        branch: str | None = None,
        explain: bool = False,
    ) -> Response:
        """What would be forwarded now, part by part, with the numbers it is judged by.

        With `explain` also what each part costs in a turn, and how far the marks are.
        """
        place = await self._archive.place(caller.namespace, name, branch)
        subject = await self._archive.branch(place, credentials_of(request))
        scene = await self._scenes.of(subject)
        shown = await scene.done(Scene.under, scene.current)
        head = {
            **place_fields(place),
            "model": subject.model,
            "view": "original" if shown.is_original else "compacted",
            "compaction": scene.current.id if scene.current else None,
            "tokens": scene.budget.for_model(shown.tokens),
            "tokens_full": scene.budget.for_model(subject.tokens),
            **_budget_fields(scene),
        }
        if explain:
            head["explanation"] = explanation_fields(scene, shown.tokens)
        return raw_reply(await scene.done(_page, head, shown, explain))

    async def compact(self, request: Request, caller: Admitted, name: str) -> Response:
        """A compaction, or the reason why there is none: a no-op is never called a compaction (F35)."""
        order = await order_of(request, CompactOrder)
        place = await self._archive.place(caller.namespace, name, order.branch)
        subject = await self._archive.branch(place, credentials_of(request))
        done = await self._viewing.by_hand(subject, order.focus)
        if done is None:
            return reply({**place_fields(place), "compacted": False, "reason": _NOTHING_TO_FOLD})
        return reply({**place_fields(place), "compacted": True, "compaction": compaction_fields(done)})


def _budget_fields(scene: Scene) -> dict[str, Any]:
    """Window and marks in the model's tokens; `ratio`: so many of them are one of our own count."""
    budget = scene.budget
    return {
        "window": {
            "tokens": budget.window.tokens,
            "source": budget.window.source,
            "ratio": budget.ratio,
        },
        "budget": {
            "window_tokens": budget.window.tokens,
            **{name: budget.for_model(getattr(budget, name)) for name in _SIZES},
            "policy": scene.policy.name,
        },
    }


def _page(scene: Scene, head: dict[str, Any], shown: Shown, explain: bool) -> bytes:
    parts = [_part(part, scene, explain) for part in shown.view.parts]
    return object_with(head, "parts", array_of(parts))


def _part(part: ViewPart, scene: Scene, explain: bool) -> bytes:
    fields: dict[str, Any] = {
        "kind": part.kind,
        "reason": part.reason,
        "tokens": scene.budget.for_model(part.tokens),
        "masked": part.masked,
        "id": None if part.index is None else context_id(scene.conversation.names[part.index]),
    }
    if part.kind == "summary" and scene.current is not None:
        fields["compaction"] = scene.current.id
    if explain:
        fields["cost_per_turn"] = cost_fields(scene, part.tokens)
    return object_with(fields, "message", part.raw)
