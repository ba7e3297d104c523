"""Endpoints for a session's checkpoints, memories (A30, B16) and completion (A38)."""

from __future__ import annotations

from typing import Annotated, Any, Protocol, get_args

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, StringConstraints

from palimpsest.api.callers import Admitted, credentials_of, order_of
from palimpsest.api.replies import object_with, raw_reply, reply
from palimpsest.api.sessions import place_fields
from palimpsest.proxy.archive import Archive, missing
from palimpsest.proxy.compacting.context_loader import ContextLoader
from palimpsest.proxy.memory_blocks import MemoryBlocks
from palimpsest.proxy.turn import Subject
from palimpsest.storage.journal import CheckpointRow, Journal, MemoryKind, StoredMemory

_MOST_CHECKPOINTS = 500


class CheckpointPages:
    """Checkpoints of a session."""

    def __init__(self, archive: Archive, journal: Journal) -> None:
        self._archive = archive
        self._journal = journal

    def on(self, api: APIRouter) -> None:
        """The routes are registered."""
        api.add_api_route("/sessions/{name:path}/checkpoints", self.listed, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/checkpoints/{checkpoint}", self.one, methods=["GET"])

    async def listed(
        self, caller: Admitted, name: str, limit: Annotated[int, Query(ge=1, le=_MOST_CHECKPOINTS)] = 50
    ) -> Response:
        """Checkpoints, newest first, without payloads."""
        row = await self._archive.session(caller.namespace, name)
        stored = await self._journal.checkpoints(caller.namespace, row.id, limit)
        listed = [_checkpoint_fields(one.checkpoint) for one in stored]
        return reply({"session": row.id, "checkpoints": listed})

    async def one(self, caller: Admitted, name: str, checkpoint: str) -> Response:
        """One checkpoint with its payload, byte for byte."""
        row = await self._archive.session(caller.namespace, name)
        stored = await self._journal.checkpoint(caller.namespace, row.id, checkpoint)
        if stored is None:
            raise missing()
        fields = {"session": row.id, **_checkpoint_fields(stored.checkpoint)}
        return raw_reply(object_with(fields, "payload", stored.checkpoint.payload))


def _checkpoint_fields(checkpoint: CheckpointRow) -> dict[str, Any]:
    return {
        "id": checkpoint.id,
        "kind": checkpoint.kind,
        "schema": checkpoint.schema,
        "span_hash": checkpoint.span_hash.hex(),
        "created_at": checkpoint.created_at,
    }


class CompletionWriter(Protocol):
    """Writes completion checkpoints."""

    async def completed(self, subject: Subject, marker: str = "") -> str | None:
        """The checkpoint's id, also of an existing one; None when nothing was produced or decided."""


class CompletionOrder(BaseModel):
    """`marker` is a note on what was completed."""

    model_config = ConfigDict(extra="forbid")

    marker: Annotated[str, StringConstraints(max_length=16_000)] = ""
    branch: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None


class CompletionPages:
    """Completion of a session."""

    def __init__(self, archive: Archive, completes: CompletionWriter) -> None:
        self._archive = archive
        self._completes = completes

    def on(self, api: APIRouter) -> None:
        """The route is registered."""
        api.add_api_route("/sessions/{name:path}/complete", self.complete, methods=["POST"])

    async def complete(self, request: Request, caller: Admitted, name: str) -> Response:
        """Write a completion checkpoint; null when nothing was produced or decided since the last one."""
        order = await order_of(request, CompletionOrder)
        place = await self._archive.place(caller.namespace, name, order.branch)
        subject = await self._archive.branch(place, credentials_of(request))
        made = await self._completes.completed(subject, order.marker)
        return reply({**place_fields(place), "checkpoint": made})


_KINDS: tuple[MemoryKind, ...] = get_args(MemoryKind)
_MOST_MEMORIES = 200


class MemoryOrder(BaseModel):
    """An entry for the session's memory."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=16_000)]


class MemoryPages:
    """Memories of a session and of a namespace."""

    def __init__(
        self, archive: Archive, journal: Journal, contexts: ContextLoader, blocks: MemoryBlocks
    ) -> None:
        self._archive = archive
        self._journal = journal
        self._contexts = contexts
        self._blocks = blocks

    def on(self, api: APIRouter) -> None:
        """The routes are registered."""
        api.add_api_route("/memory/search", self.search, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/memory", self.listed, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/memory-block", self.add, methods=["POST"])

    async def listed(
        self, caller: Admitted, name: str, limit: Annotated[int, Query(ge=1, le=_MOST_MEMORIES)] = 50
    ) -> Response:
        """The session's memories: the newest `limit` of each kind, newest first."""
        row = await self._archive.session(caller.namespace, name)
        found = {
            kind: [_memory_fields(one) for one in await self._of_kind(caller.namespace, row.id, kind, limit)]
            for kind in _KINDS
        }
        return reply({"session": row.id, "memories": found})

    async def search(
        self,
        caller: Admitted,
        q: Annotated[str, Query(max_length=1_000)] = "",
        limit: Annotated[int, Query(ge=1, le=_MOST_MEMORIES)] = 20,
    ) -> Response:
        """Memories of all the caller's sessions that contain every word of `q`, newest first."""
        found = await self._journal.search_memories(caller.namespace, q.split(), limit)
        return reply({"memories": [{"session": one.session, **_memory_fields(one)} for one in found]})

    async def add(self, request: Request, caller: Admitted, name: str) -> Response:
        """Add an entry to the memory; at fifteen entries the ten oldest are folded into the block."""
        order = await order_of(request, MemoryOrder)
        place = await self._archive.place(caller.namespace, name, None)
        context = await self._contexts.of(await self._archive.branch(place, credentials_of(request)))
        done = await self._blocks.added(context, order.text)
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
        return list(await self._journal.memories(namespace, session, limit, [kind]))


def _memory_fields(stored: StoredMemory) -> dict[str, Any]:
    memory = stored.memory
    return {
        "id": memory.id,
        "kind": memory.kind,
        "text": memory.text.decode("utf-8", "surrogatepass"),
        "compaction": memory.compaction,
        "created_at": memory.created_at,
    }
