"""Is the process alive, and can it do its work: for supervisors, so nobody is asked who they are.

Says nothing of what is stored.
"""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response

from app.api.replies import reply
from app.errors import StoreUnavailable
from app.storage.contract import Store


class HealthPages:
    """The two questions a supervisor asks."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def on(self, router: APIRouter) -> None:
        """The routes are registered."""
        router.add_api_route("/healthz", self.alive, methods=["GET", "HEAD"])
        router.add_api_route("/readyz", self.ready, methods=["GET", "HEAD"])

    async def alive(self) -> Response:
        """The process answers; nothing else is touched."""
        return reply({"status": "ok"})

    async def ready(self) -> Response:
        """A write and a read of the store succeeded just now; else 503 and why not, in a word."""
        trouble = await asyncio.to_thread(self._store.trouble)
        if trouble is not None and trouble.reason != "disk_full":
            return _not_ready(trouble.reason, f"The database cannot be used: {trouble.remedy}.")
        try:
            await self._store.ping()
        except StoreUnavailable as failure:
            return _not_ready(failure.reason or "unavailable", failure.message)
        return reply({"status": "ready"})


def _not_ready(reason: str, message: str) -> Response:
    failure = StoreUnavailable(message)
    error = {"message": message, "type": failure.type, "param": None, "code": failure.code}
    answer = reply({"status": "not ready", "reason": reason, "error": error}, failure.status)
    answer.headers["retry-after"] = "1"
    return answer
