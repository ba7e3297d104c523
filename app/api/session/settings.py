"""The settings of one session: read with what they come to, and merged (A42).

Knows nothing of what a number means, nor of when a policy is looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import RootModel

from app.api.callers import Admitted, order_of
from app.api.replies import reply
from app.core.wire.json_text import decoded
from app.proxy.archive import Archive
from app.settings.origins import origins
from app.settings.session import patched, recall_enabled, session_policy
from app.settings.settings import Settings
from app.storage.contract import SessionRow, Store

# Takes a session of a namespace out of the index of words.
Unindexes = Callable[[str, str], Awaitable[None]]


class Patch(RootModel[dict[str, Any]]):
    """A JSON merge patch (RFC 7386): null removes, objects are merged."""


class SettingsPages:
    """Settings of a session; `unindexes` is told of one that switches recall off."""

    def __init__(
        self, archive: Archive, store: Store, settings: Settings, unindexes: Unindexes | None = None
    ) -> None:
        self._archive = archive
        self._store = store
        self._settings = settings
        self._unindexes = unindexes
        # Two patches at once must not undo each other.
        self._patching = asyncio.Lock()

    def on(self, api: APIRouter) -> None:
        """The routes are registered."""
        api.add_api_route("/sessions/{name:path}/settings", self.read, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/settings", self.patch, methods=["PATCH"])

    async def read(self, caller: Admitted, name: str) -> Response:
        """What is set for the session, and the policy that it has: each number and where it comes from."""
        row = await self._archive.session(caller.namespace, name)
        return self._told(row, await self._store.settings_of(caller.namespace, row.id))

    async def patch(self, request: Request, caller: Admitted, name: str) -> Response:
        """The patch is merged and counts from the next request on; 422 names the field that cannot be."""
        patch = (await order_of(request, Patch)).root
        row = await self._archive.session(caller.namespace, name)
        async with self._patching:
            current = await self._store.settings_of(caller.namespace, row.id)
            stored = patched(current, patch, self._settings, row.model)
            if stored != current:
                await self._store.put_settings(caller.namespace, row.id, stored)
            if self._unindexes and not recall_enabled(self._settings, stored):
                # Also where nothing changed: whoever repeats it, for it failed the first time, is served.
                await self._unindexes(caller.namespace, row.id)
        return self._told(row, stored)

    def _told(self, row: SessionRow, stored: bytes | None) -> Response:
        policy = session_policy(self._settings, row.model, stored)
        sources = origins(self._settings, row.model, stored)
        numbers = {field: {"value": value, "from": sources[field]} for field, value in asdict(policy).items()}
        return reply(
            {
                "session": row.id,
                "model": row.model,
                "settings": decoded(stored) if stored else {},
                "policy": numbers,
            }
        )
