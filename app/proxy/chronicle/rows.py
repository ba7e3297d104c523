"""Events and checkpoints as rows of the store, and back.

Knows nothing of when one is written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from app.core.runtime.checkpoint import Checkpoint, encoded
from app.core.runtime.events import Event
from app.storage.journal import Checkpoint as CheckpointRow
from app.storage.journal import Event as EventRow
from app.storage.journal import StoredCheckpoint

NewId = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Kept:
    """A checkpoint of ours as it was stored, with the id of its row."""

    id: str
    checkpoint: Checkpoint


def event_rows(events: Iterable[Event], at: float, new_id: NewId) -> list[EventRow]:
    """The events, in order, as they are stored `at` (UTC seconds)."""
    return [EventRow(new_id(), event.type, _json(event), at) for event in events]


def checkpoint_row(checkpoint: Checkpoint, at: float, new_id: NewId) -> CheckpointRow:
    """The checkpoint as it is stored `at` (UTC seconds)."""
    return CheckpointRow(
        id=new_id(),
        kind=checkpoint.kind,
        span_hash=bytes.fromhex(checkpoint.span_hash),
        schema=checkpoint.schema,
        payload=encoded(checkpoint),
        created_at=at,
    )


def kept_of(rows: Sequence[StoredCheckpoint]) -> list[Kept]:
    """The checkpoints that are of our form, in the order given; imported ones may be of another."""
    found = ((row.checkpoint.id, _decoded(row.checkpoint.payload)) for row in rows)
    return [Kept(ident, checkpoint) for ident, checkpoint in found if checkpoint is not None]


def _decoded(payload: bytes) -> Checkpoint | None:
    try:
        return msgspec.json.decode(payload, type=Checkpoint)
    except (ValueError, RecursionError):
        # Damaged or of another form: not ours to go on from. msgspec's errors are ValueErrors.
        return None


def _json(event: Event) -> bytes:
    try:
        return msgspec.json.encode(event.payload)
    except UnicodeEncodeError:
        # Callers name models, and may put half of a surrogate pair there.
        return json.dumps(event.payload, ensure_ascii=False).encode("utf-8", "replace")
