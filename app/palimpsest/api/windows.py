"""Endpoints that list and forget the model windows learned from a caller's own requests."""

from __future__ import annotations

from typing import Annotated, TypedDict

from fastapi import APIRouter, Path

from palimpsest.api.callers import Admitted
from palimpsest.api.replies import Reply, UtcTime, described, reply, utc_time
from palimpsest.core.budget.window import LIFE_SECONDS
from palimpsest.proxy.compacting.windows import Windows
from palimpsest.storage.accounts import LearnedWindow


class LearnedWindowFields(TypedDict):
    """The window of a model, learned from the caller's requests."""

    model: str
    tokens: int
    source: Annotated[str, described("`overflow` or `observed`.")]
    learned_at: UtcTime
    expires_at: UtcTime
    for_all: Annotated[bool, described("It counts for all callers.")]


class WindowList(TypedDict):
    """Learned windows, by model."""

    windows: list[LearnedWindowFields]


class ForgottenWindow(TypedDict):
    """`forgotten` is false when nothing was known."""

    model: str
    forgotten: bool


class WindowPages:
    """The windows learned by the caller's namespace."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows

    def on(self, api: APIRouter) -> None:
        """Register the routes."""
        api.add_api_route("/windows", self.list_windows, methods=["GET"])
        api.add_api_route("/windows/{model:path}", self.forget_window, methods=["DELETE"])

    async def list_windows(self, caller: Admitted) -> Reply[WindowList]:
        """List the windows of models that were learned from the caller's requests."""
        found = self._windows.learned_by(caller.namespace)
        return reply({"windows": [self._fields(one) for one in found]})

    async def forget_window(
        self, caller: Admitted, model: Annotated[str, Path(description="Name of a model.")]
    ) -> Reply[ForgottenWindow]:
        """Forget the learned window of a model."""
        forgotten = await self._windows.forget(model, caller.namespace)
        return reply({"model": model, "forgotten": forgotten})

    def _fields(self, one: LearnedWindow) -> LearnedWindowFields:
        return {
            "model": one.model,
            "tokens": one.tokens,
            "source": one.source,
            "learned_at": utc_time(one.learned_at),
            "expires_at": utc_time(one.learned_at + LIFE_SECONDS),
            "for_all": self._windows.is_for_all(one.model, one.namespace),
        }
