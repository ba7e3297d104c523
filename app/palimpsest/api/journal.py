"""Endpoints for a session's checkpoints, memories (A30, B16) and completion (A38)."""

from __future__ import annotations

from typing import Annotated, Any, Protocol, TypedDict

import msgspec
from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, StringConstraints

from palimpsest.api.callers import Admitted, SessionName, credentials_of, order_of
from palimpsest.api.replies import Reply, UtcTime, described, object_with, raw_reply, reply, utc_time
from palimpsest.api.sessions import PlaceFields, place_fields
from palimpsest.core.view.compaction import Author, context_id
from palimpsest.proxy.archive import Archive, missing
from palimpsest.proxy.compacting.context_loader import ContextLoader
from palimpsest.proxy.journal.runtime import RuntimeReader
from palimpsest.proxy.memory_blocks import MemoryBlocks
from palimpsest.proxy.turn import Subject
from palimpsest.storage.exchange_log import NEWEST
from palimpsest.storage.journal import CheckpointKind, CheckpointRow, Journal, MemoryKind, MemoryRow

_MOST_CHECKPOINTS = 500
ArrivalAfter = Annotated[int | None, Query(ge=0, le=NEWEST, description="The `next` of the page before.")]


class CheckpointHead(TypedDict):
    """A checkpoint without its content."""

    id: str
    kind: CheckpointKind
    message: Annotated[str, described("The newest message that it covers.")]
    created_at: UtcTime


class CheckpointList(TypedDict):
    """Checkpoints of a session, newest first."""

    session: str
    checkpoints: list[CheckpointHead]
    next: Annotated[int | None, described("The `after` of the next page; null on the last one.")]


class CheckpointFields(CheckpointHead):
    """A checkpoint with its content, which is computed from what was stored before it."""

    session: str
    payload: Any


class CompletedSession(PlaceFields):
    """`checkpoint` is null when nothing was produced or decided since the last one."""

    checkpoint: str | None


class MemoryFields(TypedDict):
    """A memory; `compaction` is the one that it comes from."""

    id: str
    kind: MemoryKind
    text: str
    compaction: str | None
    created_at: UtcTime


class MemoryPage(TypedDict):
    """Memories of a session, newest first."""

    session: str
    memories: list[MemoryFields]
    next: Annotated[int | None, described("The `after` of the next page; null on the last one.")]


class FoundMemory(MemoryFields):
    """A memory and its session."""

    session: str


class FoundMemories(TypedDict):
    """Memories of all the caller's sessions, newest first."""

    memories: list[FoundMemory]
    next: Annotated[str | None, described("The `after` of the next page; null on the last one.")]


class AddedMemory(TypedDict):
    """The session's memory after an entry was added."""

    session: str
    entry: Annotated[str, described("The id of the new entry.")]
    folded: Annotated[int, described("How many entries were just folded into the block.")]
    author: Annotated[Author, described("Who folded them.")]
    block: str
    entries: list[str]


class CheckpointPages:
    """Checkpoints of a session."""

    def __init__(self, archive: Archive, journal: Journal, states: RuntimeReader) -> None:
        self._archive = archive
        self._journal = journal
        self._states = states

    def on(self, api: APIRouter) -> None:
        """The routes are registered."""
        api.add_api_route("/sessions/{name:path}/checkpoints", self.list_checkpoints, methods=["GET"])
        api.add_api_route(
            "/sessions/{name:path}/checkpoints/{checkpoint}", self.get_checkpoint, methods=["GET"]
        )

    async def list_checkpoints(
        self,
        caller: Admitted,
        name: SessionName,
        limit: Annotated[int, Query(ge=1, le=_MOST_CHECKPOINTS, description="At most so many.")] = 50,
        after: ArrivalAfter = None,
    ) -> Reply[CheckpointList]:
        """List checkpoints, newest first, without their content."""
        row = await self._archive.session(caller.namespace, name)
        stored = await self._journal.checkpoints(caller.namespace, row.id, limit + 1, after)
        page = stored[:limit]
        listed = [_checkpoint_fields(one) for one in page]
        more = page[-1].arrival if len(stored) > limit else None
        return reply({"session": row.id, "checkpoints": listed, "next": more})

    async def get_checkpoint(
        self,
        caller: Admitted,
        name: SessionName,
        checkpoint: Annotated[str, Path(description="Id of a checkpoint of the session.")],
    ) -> Reply[CheckpointFields]:
        """Get a checkpoint with its content: a summary, exact quotations, and the session's state then."""
        row = await self._archive.session(caller.namespace, name)
        stored = await self._journal.checkpoint(caller.namespace, row.id, checkpoint)
        if stored is None:
            raise missing()
        payload = msgspec.json.encode(await self._states.checkpoint(caller.namespace, row, stored))
        head = {"session": row.id, **_checkpoint_fields(stored)}
        return raw_reply(object_with(head, payload=payload))


def _checkpoint_fields(checkpoint: CheckpointRow) -> CheckpointHead:
    return {
        "id": checkpoint.id,
        "kind": checkpoint.kind,
        "message": context_id(checkpoint.point),
        "created_at": utc_time(checkpoint.created_at),
    }


class CompletionWriter(Protocol):
    """Writes completion checkpoints."""

    async def completed(self, subject: Subject, marker: str = "") -> str | None:
        """The checkpoint's id, also of an existing one; None when nothing was produced or decided."""


class CompletionOrder(BaseModel):
    """`marker` is a note on what was completed."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"marker": "released as 2.1"}]})

    marker: Annotated[str, StringConstraints(max_length=16_000)] = ""
    branch: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None


class CompletionPages:
    """Completion of a session."""

    def __init__(self, archive: Archive, completes: CompletionWriter) -> None:
        self._archive = archive
        self._completes = completes

    def on(self, api: APIRouter) -> None:
        """The route is registered."""
        api.add_api_route("/sessions/{name:path}/complete", self.complete_session, methods=["POST"])

    async def complete_session(
        self, request: Request, caller: Admitted, name: SessionName
    ) -> Reply[CompletedSession]:
        """Mark something as complete.

        Writes a checkpoint, unless nothing was produced or decided since the last one.
        """
        order = await order_of(request, CompletionOrder)
        place = await self._archive.place(caller.namespace, name, order.branch)
        subject = await self._archive.branch(place, credentials_of(request))
        made = await self._completes.completed(subject, order.marker)
        return reply({**place_fields(place), "checkpoint": made})


_MOST_MEMORIES = 200


class MemoryOrder(BaseModel):
    """An entry for the session's memory."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"text": "The release is on Friday."}]}
    )

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
        api.add_api_route("/memory/search", self.search_memories, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/memory", self.list_memories, methods=["GET"])
        api.add_api_route(
            "/sessions/{name:path}/memory-block", self.add_memory, methods=["POST"], status_code=201
        )

    async def list_memories(
        self,
        caller: Admitted,
        name: SessionName,
        kind: Annotated[MemoryKind | None, Query(description="Of this kind only.")] = None,
        limit: Annotated[int, Query(ge=1, le=_MOST_MEMORIES, description="At most so many.")] = 50,
        after: ArrivalAfter = None,
    ) -> Reply[MemoryPage]:
        """List the session's memories, newest first."""
        row = await self._archive.session(caller.namespace, name)
        kinds = [kind] if kind else []
        found = await self._journal.memories(caller.namespace, row.id, limit + 1, kinds, after)
        page = found[:limit]
        more = page[-1].arrival if len(found) > limit else None
        return reply({"session": row.id, "memories": [_memory_fields(one) for one in page], "next": more})

    async def search_memories(
        self,
        caller: Admitted,
        q: Annotated[
            str, Query(max_length=1_000, description="Words, each of which a memory contains.")
        ] = "",
        limit: Annotated[int, Query(ge=1, le=_MOST_MEMORIES, description="At most so many.")] = 20,
        after: Annotated[str, Query(max_length=200, description="The `next` of the page before.")] = "",
    ) -> Reply[FoundMemories]:
        """Search the memories of all sessions.

        Those that contain every word of `q`, newest first.
        """
        found = await self._journal.search_memories(caller.namespace, q.split(), limit + 1, after)
        page = found[:limit]
        more = page[-1].id if len(found) > limit else None
        shown: list[FoundMemory] = [{"session": one.session, **_memory_fields(one)} for one in page]
        return reply({"memories": shown, "next": more})

    async def add_memory(self, request: Request, caller: Admitted, name: SessionName) -> Reply[AddedMemory]:
        """Add an entry to the memory.

        At fifteen entries the ten oldest are folded into the block.
        """
        order = await order_of(request, MemoryOrder)
        place = await self._archive.place(caller.namespace, name, None)
        branch = await self._archive.branch(place, credentials_of(request), caller.quota)
        context = await self._contexts.of(branch)
        done = await self._blocks.added(context, order.text)
        fields: AddedMemory = {
            "session": place.row.id,
            "entry": done.entry,
            "folded": done.folded,
            "author": done.author,
            "block": done.block.summary,
            "entries": list(done.block.entries),
        }
        return reply(fields, 201)


def _memory_fields(memory: MemoryRow) -> MemoryFields:
    return {
        "id": memory.id,
        "kind": memory.kind,
        "text": memory.text.decode("utf-8", "surrogatepass"),
        "compaction": memory.compaction,
        "created_at": utc_time(memory.created_at),
    }
