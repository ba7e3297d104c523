"""A session as the events that an import takes: its messages, and the state it is in.

Pure: what was read comes in. Knows nothing of stores nor of the document the events stand in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from app.core.history.conversation import Conversation
from app.core.history.message import Message
from app.core.recall.rounds.hidden import HiddenRounds
from app.core.runtime.checkpoint import Checkpoint, encoded
from app.core.runtime.entry import TYPES, Entry
from app.core.runtime.importing import COMPACTION, HIDDEN, ITEMS, MESSAGE
from app.core.runtime.moved import moved_out
from app.core.runtime.records import RecordedEvent
from app.core.wire.json_text import encoded as encoded_json
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


def with_hidden(events: Iterable[RecordedEvent], hidden: Mapping[str, HiddenRounds]) -> list[RecordedEvent]:
    """The events, and around each answer what led to it and its client was not shown: `hidden`, by its id."""
    every: list[RecordedEvent] = []
    for event in events:
        rounds = hidden.get(event.id)
        before, behind = rounds.unseen() if rounds else ((), ())
        every += [_unseen(event, raw) for raw in before]
        every.append(event)
        every += [_unseen(event, raw) for raw in behind]
    return every


def _unseen(answer: RecordedEvent, raw: bytes) -> RecordedEvent:
    named = b'{"answer":' + encoded_json(answer.id) + b',"message":'
    return RecordedEvent("", HIDDEN, named + raw + b"}", answer.at)


def _message(ident: str, message: Message, at: float) -> RecordedEvent:
    """The message as it is stored, byte for byte: a message of chat, or the items of an answer."""
    key = ITEMS if message.raw.startswith(b"[") else "message"
    payload = b'{"%s":%s}' % (key.encode(), message.raw)
    return RecordedEvent(ident, TYPES.get(message.role, MESSAGE), payload, at)
