"""What is worth finding again: of one session, of all of them, and entries that somebody adds (A30, B16).

Knows nothing of when summaries are kept, nor of how entries are folded.
"""

from __future__ import annotations

from typing import Annotated, Any, get_args

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, StringConstraints

from app.api.callers import Admitted, credentials_of, order_of
from app.api.replies import reply
from app.proxy.archive import Archive
from app.proxy.compacting.scenes import Scenes
from app.proxy.memory_blocks import MemoryBlocks
from app.storage.contract import Store
from app.storage.journal import MemoryKind, StoredMemory

_KINDS: tuple[MemoryKind, ...] = get_args(MemoryKind)
_MOST = 200


class MemoryOrder(BaseModel):
    """An entry for the session's memory."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=16_000)]


class MemoryPages:
    """Memories of a session and of a namespace."""

    def __init__(self, archive: Archive, store: Store, scenes: Scenes, blocks: MemoryBlocks) -> None:
        self._archive = archive
        self._store = store
        self._scenes = scenes
        self._blocks = blocks

    def on(self, api: APIRouter) -> None:
        """The routes are registered."""
        api.add_api_route("/memory/search", self.search, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/memory", self.listed, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/memory-block", self.add, methods=["POST"])

    async def listed(
        self, caller: Admitted, name: str, limit: Annotated[int, Query(ge=1, le=_MOST)] = 50
    ) -> Response:
        """Of each kind the newest `limit`, newest first."""
        row = await self._archive.session(caller.namespace, name)
        found = {
            kind: [_fields(one) for one in await self._of_kind(caller.namespace, row.id, kind, limit)]
            for kind in _KINDS
        }
        return reply({"session": row.id, "memories": found})

    async def search(
        self,
        caller: Admitted,
        q: Annotated[str, Query(max_length=1_000)] = "",
        limit: Annotated[int, Query(ge=1, le=_MOST)] = 20,
    ) -> Response:
        """Those of all the caller's sessions that hold every word, newest first."""
        found = await self._store.search_memories(caller.namespace, q.split(), limit)
        return reply({"memories": [{"session": one.session, **_fields(one)} for one in found]})

    async def add(self, request: Request, caller: Admitted, name: str) -> Response:
        """The entry is in the memory; at fifteen the ten oldest are folded into the block."""
        order = await order_of(request, MemoryOrder)
        place = await self._archive.place(caller.namespace, name, None)
        scene = await self._scenes.of(await self._archive.branch(place, credentials_of(request)))
        done = await self._blocks.added(scene, order.text)
        fields: dict[str, Any] = {
            "session": place.row.id,
            "entry": done.entry,
            "folded": done.folded,
            "author": done.author,
            "block": done.block.summary,
            "entries": list(done.block.entries),
        }
        return reply(fields, 201)

    async def _of_kind(
        self, namespace: str, session: str, kind: MemoryKind, limit: int
    ) -> list[StoredMemory]:
        return list(await self._store.memories(namespace, session, limit, [kind]))


def _fields(stored: StoredMemory) -> dict[str, Any]:
    memory = stored.memory
    return {
        "id": memory.id,
        "kind": memory.kind,
        "text": memory.text.decode("utf-8", "surrogatepass"),
        "compaction": memory.compaction,
        "created_at": memory.created_at,
    }
