"""A session as the events that an import takes: its messages, and the state it is in.

Pure: what was read comes in. Knows nothing of stores nor of the document the events stand in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from app.core.history.conversation import Conversation
from app.core.history.message import Message
from app.core.runtime.checkpoint import Checkpoint, encoded
from app.core.runtime.entry import TYPES, Entry
from app.core.runtime.importing import COMPACTION, MESSAGE
from app.core.runtime.moved import moved_out
from app.core.runtime.records import RecordedEvent
from app.storage.contract import StoredCompaction


def exported_events(
    talk: Conversation,
    entries: Sequence[Entry],
    compactions: Iterable[StoredCompaction],
    checkpoint: Checkpoint,
) -> Iterator[RecordedEvent]:
    """Instructions, messages, compactions, and last the checkpoint.

    `entries` (not empty) are the path's, oldest first, and so are `compactions`.
    """
    for message in talk.preamble:
        yield _message("", message, entries[0].at)
    for entry in entries:
        yield _message(entry.id, entry.message, entry.at)
    for row in compactions:
        record = moved_out(row.compaction, talk)
        if record is not None:
            yield RecordedEvent(row.compaction.id, COMPACTION, record, row.created_at)
    yield RecordedEvent(
        checkpoint.span_hash[:32], "checkpoint", encoded(checkpoint), checkpoint.created_at / 1_000
    )


def _message(ident: str, message: Message, at: float) -> RecordedEvent:
    """The message as it is stored, byte for byte."""
    return RecordedEvent(ident, TYPES.get(message.role, MESSAGE), b'{"message":' + message.raw + b"}", at)
