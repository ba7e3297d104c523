"""Endpoints that list and forget the model windows learned from a caller's own requests."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from palimpsest.api.callers import Admitted
from palimpsest.api.replies import reply
from palimpsest.core.budget.window import LIFE_SECONDS
from palimpsest.proxy.compacting.windows import Windows
from palimpsest.storage.accounts import LearnedWindow


class WindowPages:
    """The windows learned by the caller's namespace."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows

    def on(self, api: APIRouter) -> None:
        """Register the routes."""
        api.add_api_route("/windows", self.listed, methods=["GET"])
        api.add_api_route("/windows/{model:path}", self.forget, methods=["DELETE"])

    async def listed(self, caller: Admitted) -> Response:
        """The learned windows, by model."""
        found = self._windows.learned_by(caller.namespace)
        return reply({"windows": [self._fields(one) for one in found]})

    async def forget(self, caller: Admitted, model: str) -> Response:
        """Forget a model's window; the same answer when nothing was known."""
        forgotten = await self._windows.forget(model, caller.namespace)
        return reply({"model": model, "forgotten": forgotten})

    def _fields(self, one: LearnedWindow) -> dict[str, Any]:
        return {
            "model": one.model,
            "tokens": one.tokens,
            "source": one.source,
            "learned_at": one.learned_at,
            "expires_at": one.learned_at + LIFE_SECONDS,
            "for_all": self._windows.is_for_all(one.model, one.namespace),
        }
