"""Windows of models that a caller's own requests have taught: what they are, and forgetting one.

Knows nothing of how a window is learned.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from app.api.callers import Admitted
from app.api.replies import reply
from app.core.budget.learned import LIFE_SECONDS
from app.proxy.compacting.windows import Windows
from app.storage.learned.contract import LearnedWindow


class WindowPages:
    """What the caller's namespace has learned."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows

    def on(self, api: APIRouter) -> None:
        """The routes are registered."""
        api.add_api_route("/windows", self.listed, methods=["GET"])
        api.add_api_route("/windows/{model:path}", self.forget, methods=["DELETE"])

    async def listed(self, caller: Admitted) -> Response:
        """By model."""
        found = self._windows.learned_by(caller.namespace)
        return reply({"windows": [self._fields(one) for one in found]})

    async def forget(self, caller: Admitted, model: str) -> Response:
        """The model's window is found anew; the same answer where nothing was known."""
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
