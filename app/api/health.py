"""Is the process alive, and can it do its work: for supervisors, so nobody is asked who they are.

Says nothing of what is stored.
"""

from __future__ import annotations

from fastapi import APIRouter, Response

from app.api.replies import reply
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
        """A write and a read of the store succeeded just now; else StoreUnavailable says why not (503)."""
        await self._store.ping()
        return reply({"status": "ready"})
