"""Events, checkpoints and the memory block of a session as rows of the store, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from palimpsest.core.runtime.checkpoint import CheckpointPayload, encoded
from palimpsest.core.runtime.events import Event
from palimpsest.core.summary.rolling.memory_block import MemoryBlock, with_entry
from palimpsest.storage.journal import CheckpointRow, EventRow, Journal, StoredCheckpoint, StoredMemory

NewId = Callable[[], str]


@dataclass(frozen=True, slots=True)
class KeptCheckpoint:
    """A checkpoint of ours as it was stored, with the id of its row."""

    id: str
    checkpoint: CheckpointPayload


def event_rows(
    events: Iterable[Event], at: float, new_id: NewId, stored: CheckpointRow | None = None
) -> list[EventRow]:
    """The events, in order, as rows created `at` (UTC seconds); the one of `stored` refers to it."""
    return [_event_row(event.type, _json(event), at, new_id, stored) for event in events]


def _event_row(
    type_: str, payload: bytes, at: float, new_id: NewId, stored: CheckpointRow | None
) -> EventRow:
    if stored and payload == stored.payload:
        return EventRow(stored.id, type_, b"", at)
    return EventRow(new_id(), type_, payload, at)


def checkpoint_row(checkpoint: CheckpointPayload, at: float, new_id: NewId) -> CheckpointRow:
    """The checkpoint as a row created `at` (UTC seconds)."""
    return CheckpointRow(
        id=new_id(),
        kind=checkpoint.kind,
        span_hash=bytes.fromhex(checkpoint.span_hash),
        schema=checkpoint.schema,
        payload=encoded(checkpoint),
        created_at=at,
    )


def kept_of(rows: Sequence[StoredCheckpoint]) -> list[KeptCheckpoint]:
    """The checkpoints in our format, in the order given; imported ones may have another."""
    found = ((row.checkpoint.id, _decoded(row.checkpoint.payload)) for row in rows)
    return [KeptCheckpoint(ident, checkpoint) for ident, checkpoint in found if checkpoint is not None]


def _decoded(payload: bytes) -> CheckpointPayload | None:
    try:
        return msgspec.json.decode(payload, type=CheckpointPayload)
    except (ValueError, RecursionError):
        # Damaged or in another format. msgspec's errors are ValueErrors.
        return None


def _json(event: Event) -> bytes:
    try:
        return msgspec.json.encode(event.payload)
    except UnicodeEncodeError:
        # Callers choose model names, which may contain a lone surrogate.
        return json.dumps(event.payload, ensure_ascii=False).encode("utf-8", "replace")


# Most rows read; entries are folded at fifteen, so that there are never as many.
_MOST_ROWS = 200


async def block_in(journal: Journal, namespace: str, session: str) -> MemoryBlock:
    """The session's memory block."""
    return block_of(*await rows_of(journal, namespace, session))


async def rows_of(
    journal: Journal, namespace: str, session: str
) -> tuple[Sequence[StoredMemory], Sequence[StoredMemory]]:
    """The block rows and the entries since, both oldest first, read in one query."""
    rows = list(reversed(await journal.memories(namespace, session, _MOST_ROWS, ["entry", "block"])))
    kinds = {kind: [row for row in rows if row.memory.kind == kind] for kind in ("block", "entry")}
    return kinds["block"], kinds["entry"]


def block_of(blocks: Sequence[StoredMemory], entries: Sequence[StoredMemory]) -> MemoryBlock:
    """The rows as a memory block."""
    block = MemoryBlock("\n".join(map(text_of, blocks)))
    for row in entries:
        block = with_entry(block, text_of(row))
    return block


def text_of(row: StoredMemory) -> str:
    """The row's text."""
    return row.memory.text.decode("utf-8", "surrogatepass")
