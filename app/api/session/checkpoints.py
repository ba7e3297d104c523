"""Checkpoints of a session, read back as they were written.

Knows nothing of when one is written nor of what it says.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from app.api.callers import Admitted
from app.api.replies import object_with, raw_reply, reply
from app.proxy.archive import Archive, missing
from app.storage.contract import Store
from app.storage.journal import Checkpoint

_MOST = 500


class CheckpointPages:
    """Checkpoints of a session."""

    def __init__(self, archive: Archive, store: Store) -> None:
        self._archive = archive
        self._store = store

    def on(self, api: APIRouter) -> None:
        """The routes are registered."""
        api.add_api_route("/sessions/{name:path}/checkpoints", self.listed, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/checkpoints/{checkpoint}", self.one, methods=["GET"])

    async def listed(
        self, caller: Admitted, name: str, limit: Annotated[int, Query(ge=1, le=_MOST)] = 50
    ) -> Response:
        """Newest first, without what they hold."""
        row = await self._archive.session(caller.namespace, name)
        stored = await self._store.checkpoints(caller.namespace, row.id, limit)
        return reply({"session": row.id, "checkpoints": [_fields(one.checkpoint) for one in stored]})

    async def one(self, caller: Admitted, name: str, checkpoint: str) -> Response:
        """One checkpoint with its payload, byte for byte."""
        row = await self._archive.session(caller.namespace, name)
        stored = await self._store.checkpoint(caller.namespace, row.id, checkpoint)
        if stored is None:
            raise missing()
        fields = {"session": row.id, **_fields(stored.checkpoint)}
        return raw_reply(object_with(fields, "payload", stored.checkpoint.payload))


def _fields(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "id": checkpoint.id,
        "kind": checkpoint.kind,
        "schema": checkpoint.schema,
        "span_hash": checkpoint.span_hash.hex(),
        "created_at": checkpoint.created_at,
    }
