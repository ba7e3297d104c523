"""A session as the events that an import takes: its messages, and the state it is in.

Pure: what was read comes in. Knows nothing of stores nor of the document the events stand in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from app.core.history.message import Message
from app.core.runtime.checkpoint import Checkpoint, encoded
from app.core.runtime.entry import TYPES, Entry
from app.core.runtime.importing import MESSAGE
from app.core.runtime.records import RecordedEvent


def exported_events(
    preamble: Iterable[Message], entries: Sequence[Entry], checkpoint: Checkpoint
) -> Iterator[RecordedEvent]:
    """Instructions, messages, and last the checkpoint; `entries` (not empty) are the path's, oldest first."""
    for message in preamble:
        yield _message("", message, entries[0].at)
    for entry in entries:
        yield _message(entry.id, entry.message, entry.at)
    yield RecordedEvent(
        checkpoint.span_hash[:32], "checkpoint", encoded(checkpoint), checkpoint.created_at / 1_000
    )


def _message(ident: str, message: Message, at: float) -> RecordedEvent:
    """The message as it is stored, byte for byte."""
    return RecordedEvent(ident, TYPES.get(message.role, MESSAGE), b'{"message":' + message.raw + b"}", at)
