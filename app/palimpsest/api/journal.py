"""Endpoints of a session's events (A23), checkpoints, memories (A30, B16) and completion (A38)."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import msgspec
from fastapi import Query
from pydantic import BaseModel, StringConstraints

from palimpsest.api.callers import Admitted, AskedSession, api_router, at_most, order_like
from palimpsest.api.compactions import CheckpointId
from palimpsest.api.events import EventStream
from palimpsest.api.replies import (
    NextId,
    NextNumber,
    Reply,
    UtcTime,
    described,
    object_with,
    page_of,
    raw_reply,
    reply,
    shape_of,
    utc_time,
)
from palimpsest.api.sessions import PlaceFields, place_fields
from palimpsest.core.runtime.events import EVENT_TYPES
from palimpsest.core.view.compaction import Author, context_id
from palimpsest.core.wire.json_text import array_of
from palimpsest.errors import InvalidParameter
from palimpsest.proxy.archive import missing
from palimpsest.proxy.journal_rows import text_of
from palimpsest.storage.exchange_log import NEWEST
from palimpsest.storage.journal import CheckpointKind, CheckpointRow, MemoryKind, MemoryRow

ArrivalAfter = Annotated[int | None, Query(ge=0, le=NEWEST, description="The `next` of the page before.")]
# The largest sequence number: databases use 64 bits.
MOST_SEQ = 2**63 - 1


class EventHead(TypedDict):
    """An event without its payload."""

    seq: Annotated[int, described("Later events of the session have a higher one, with gaps.")]
    id: str
    type: Annotated[str, described("An imported session has further types.")]
    created_at: UtcTime


class EventFields(EventHead):
    """An event; the payload is as it was stored."""

    payload: Any


class EventPage(TypedDict):
    """Events of a session, oldest first."""

    session: str
    next: NextNumber
    events: list[EventFields]


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
    next: NextNumber


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
    next: NextNumber


class FoundMemory(MemoryFields):
    """A memory and its session."""

    session: str


class FoundMemories(TypedDict):
    """Memories of all the caller's sessions, newest first."""

    memories: list[FoundMemory]
    next: NextId


class AddedMemory(TypedDict):
    """The session's memory after an entry was added."""

    session: str
    entry: Annotated[str, described("The id of the new entry.")]
    folded: Annotated[int, described("How many entries were just folded into the block.")]
    author: Annotated[Author, described("Who folded them.")]
    block: str
    entries: list[str]


class CompletionOrder(BaseModel):
    """`marker` is a note on what was completed."""

    model_config = order_like(marker="released as 2.1")

    marker: Annotated[str, StringConstraints(max_length=16_000)] = ""
    branch: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None


class MemoryOrder(BaseModel):
    """An entry for the session's memory."""

    model_config = order_like(text="The release is on Friday.")

    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=16_000)]


api = api_router()


@api.get("/sessions/{name:path}/checkpoints")
async def list_checkpoints(
    session: AskedSession, limit: Annotated[int, at_most(500)] = 50, after: ArrivalAfter = None
) -> Reply[CheckpointList]:
    """List checkpoints, newest first, without their content."""
    row, journal = await session.row(), session.parts.store.journal
    stored = await journal.checkpoints(session.namespace, row.id, limit + 1, after)
    page, more = page_of(stored, limit, "arrival")
    shown = [_checkpoint_fields(one) for one in page]
    return reply({"session": row.id, "checkpoints": shown, "next": more})


@api.get("/sessions/{name:path}/checkpoints/{checkpoint}")
async def get_checkpoint(session: AskedSession, checkpoint: CheckpointId) -> Reply[CheckpointFields]:
    """Get a checkpoint with its content: a summary, exact quotations, and the session's state then."""
    row, parts = await session.row(), session.parts
    stored = await parts.store.journal.checkpoint(session.namespace, row.id, checkpoint)
    if stored is None:
        raise missing()
    payload = msgspec.json.encode(await parts.states.checkpoint(session.namespace, row, stored))
    return raw_reply(object_with({"session": row.id, **_checkpoint_fields(stored)}, payload=payload))


def _checkpoint_fields(checkpoint: CheckpointRow) -> CheckpointHead:
    point, at = context_id(checkpoint.point), utc_time(checkpoint.created_at)
    return {"id": checkpoint.id, "kind": checkpoint.kind, "message": point, "created_at": at}


@api.get("/sessions/{name:path}/events")
async def list_events(
    session: AskedSession,
    after: Annotated[
        int,
        Query(ge=0, le=MOST_SEQ, description="The `next` of the page before, or the `seq` of an event."),
    ] = 0,
    limit: Annotated[int, at_most(1_000)] = 100,
    types: Annotated[str, Query(description="Of these types only, separated by commas.")] = "",
) -> Reply[EventPage]:
    """List events, oldest first, as a list or a stream.

    A stream when the client accepts `text/event-stream`: it continues after `Last-Event-ID`, and sends
    new events as they arrive.
    """
    row, parts, headers = await session.row(), session.parts, session.request.headers
    asked = tuple(dict.fromkeys(word.strip() for word in types.split(",") if word.strip()))
    if not {*EVENT_TYPES}.issuperset(asked):
        raise InvalidParameter(
            f"There is no such type of event; the types are {', '.join(EVENT_TYPES)}.", param="types"
        )
    if "text/event-stream" in headers.get("accept", "").lower():
        # Of a client that reconnects (HTML standard, 9.2.4).
        if seen := headers.get("last-event-id"):
            if not (seen.isascii() and seen.isdigit() and len(seen) < 20 and int(seen) <= MOST_SEQ):
                said = f"The id of an event is a number from 0 to {MOST_SEQ}."
                raise InvalidParameter(said, param="Last-Event-ID")
            after = int(seen)
        return EventStream(session, row.id, after, asked)
    rows = await parts.store.journal.events(session.namespace, row.id, after, limit + 1, asked)
    page, more = page_of(rows, limit, "seq")
    items = [
        object_with(
            {"seq": one.seq, "id": one.id, "type": one.type, "created_at": utc_time(one.created_at)},
            payload=one.payload,
        )
        for one in await parts.states.shown(session.namespace, row.id, page)
    ]
    return raw_reply(object_with({"session": row.id, "next": more}, events=array_of(items)))


@api.get("/memory/search")
async def search_memories(
    caller: Admitted,
    q: Annotated[str, Query(max_length=1_000, description="Words, each of which a memory contains.")] = "",
    limit: Annotated[int, at_most(200)] = 20,
    after: Annotated[str, Query(max_length=200, description="The `next` of the page before.")] = "",
) -> Reply[FoundMemories]:
    """Search the memories of all sessions.

    Those that contain every word of `q`, newest first.
    """
    journal = caller.parts.store.journal
    found = await journal.search_memories(caller.namespace, q.split(), limit + 1, after)
    page, more = page_of(found, limit, "id")
    shown: list[FoundMemory] = [{"session": one.session, **_memory_fields(one)} for one in page]
    return reply({"memories": shown, "next": more})


@api.get("/sessions/{name:path}/memory")
async def list_memories(
    session: AskedSession,
    kind: Annotated[MemoryKind | None, Query(description="Of this kind only.")] = None,
    limit: Annotated[int, at_most(200)] = 50,
    after: ArrivalAfter = None,
) -> Reply[MemoryPage]:
    """List the session's memories, newest first."""
    row, journal = await session.row(), session.parts.store.journal
    kinds = [kind] if kind else []
    found = await journal.memories(session.namespace, row.id, limit + 1, kinds, after)
    page, more = page_of(found, limit, "arrival")
    return reply({"session": row.id, "memories": [_memory_fields(one) for one in page], "next": more})


@api.post("/sessions/{name:path}/memory-block", status_code=201)
async def add_memory(session: AskedSession) -> Reply[AddedMemory]:
    """Add an entry to the memory.

    At fifteen entries the ten oldest are folded into the block.
    """
    order = await session.order(MemoryOrder)
    place, context = await session.context()
    done = await session.parts.blocks.added(context, order.text)
    block, entries = done.block.summary, list(done.block.entries)
    return reply(shape_of(AddedMemory, done, session=place.row.id, block=block, entries=entries), 201)


@api.post("/sessions/{name:path}/complete")
async def complete_session(session: AskedSession) -> Reply[CompletedSession]:
    """Mark something as complete.

    Writes a checkpoint, unless nothing was produced or decided since the last one.
    """
    order = await session.order(CompletionOrder)
    place = await session.place(order.branch)
    made = await session.parts.journal.completed(await session.branch(place), order.marker)
    return reply({**place_fields(place), "checkpoint": made})


def _memory_fields(memory: MemoryRow) -> MemoryFields:
    return shape_of(MemoryFields, memory, text=text_of(memory), created_at=utc_time(memory.created_at))
