"""Imports sessions from other systems, and exports them (A40, A41).

`palimpsest.core.runtime` reads and writes the records; this module stores them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from palimpsest.core.history.message import Conversation, Message, conversation_of, seed_of
from palimpsest.core.recall.rounds.hidden import HiddenRounds
from palimpsest.core.runtime.checkpoint import CheckpointPayload, encoded
from palimpsest.core.runtime.events import conversation_snapshot, session_restored
from palimpsest.core.runtime.evidence import TYPES, ArchivedMessage, exchanges_since
from palimpsest.core.runtime.restore import Restored, StoredRecord, derived_loop
from palimpsest.core.runtime.session_import import (
    COMPACTION,
    HIDDEN,
    ITEMS,
    MESSAGE,
    Imported,
    ImportedRecord,
    RecordedEvent,
    RecordLimits,
    exported_compaction,
    imported_compaction,
    imported_of,
    record_of,
)
from palimpsest.core.runtime.snapshot import (
    QueuesSection,
    RuntimeSnapshot,
    ToolingSection,
    WorkerSection,
    carried_counters,
    files_of,
    tooling_of,
    transcript_of,
)
from palimpsest.core.summary.source import recall_id
from palimpsest.core.view.outcomes import View
from palimpsest.core.view.view import applicable
from palimpsest.core.wire.json_text import encoded as encoded_json
from palimpsest.errors import BodyTooLarge, Conflict, NameTaken
from palimpsest.proxy.access import UnprovenNamespaces
from palimpsest.proxy.journal.runtime import Readings
from palimpsest.proxy.journal_rows import NewId, event_rows
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.proxy.sessions.recorder import stored_message
from palimpsest.proxy.sessions.resolver import preamble_digest
from palimpsest.proxy.sessions.tombstones import Tombstones
from palimpsest.storage.compactions import DatedCompaction, StoredCompaction
from palimpsest.storage.exchange_units import OpenExchange
from palimpsest.storage.journal import EventRow
from palimpsest.storage.store import Store


def exported_events(
    talk: Conversation,
    entries: Sequence[ArchivedMessage],
    compactions: Iterable[StoredCompaction],
    checkpoint: CheckpointPayload,
) -> Iterator[RecordedEvent]:
    """The events of a session: instructions, messages, compactions, and last the checkpoint.

    `entries` (not empty) are the path's messages; they and `compactions` are oldest first.
    """
    for message in talk.preamble:
        yield _message("", message, entries[0].at)
    for entry in entries:
        yield _message(entry.id, entry.message, entry.at)
    for row in compactions:
        record = exported_compaction(row.compaction, talk)
        if record is not None:
            yield RecordedEvent(row.compaction.id, COMPACTION, record, row.created_at)
    yield RecordedEvent(
        checkpoint.span_hash[:32], "checkpoint", encoded(checkpoint), checkpoint.created_at / 1_000
    )


def with_hidden(events: Iterable[RecordedEvent], hidden: Mapping[str, HiddenRounds]) -> list[RecordedEvent]:
    """The events, with the hidden rounds around each answer; `hidden` is by the answer's id."""
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
    """The message as stored, byte for byte: a chat message, or the items of an answer."""
    key = ITEMS if message.raw.startswith(b"[") else "message"
    payload = b'{"%s":%s}' % (key.encode(), message.raw)
    return RecordedEvent(ident, TYPES.get(message.role, MESSAGE), payload, at)


@dataclass(frozen=True, slots=True)
class ImportLimits:
    """Bounds of one import, inclusive: of the document, and of the number of messages."""

    record: RecordLimits
    messages: int


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """The result of an import. `source`: id of the event that the state is from, "" if from several."""

    session: str
    name: str | None
    restored: Restored
    source: str
    messages: int
    events: int


@dataclass(frozen=True, slots=True)
class ImportParts:
    """What imports work with; `clock` gives UTC seconds."""

    store: Store
    reader: MessageReader
    readings: Readings
    newcomers: UnprovenNamespaces
    tombstones: Tombstones
    clock: Callable[[], float]
    new_id: NewId


class Imports:
    """Imports sessions."""

    def __init__(self, parts: ImportParts, limits: ImportLimits) -> None:
        self._parts = parts
        self._limits = limits

    async def imported(self, namespace: str, body: bytes) -> ImportedSession:
        """Import the session in the document `body`, with all its messages and events, or nothing of it.

        InvalidJson, InvalidParameter, BodyTooLarge, NothingToRestore, NameTaken, ErasedSession,
        NamespaceUnproven or StoreUnavailable.
        """
        now = self._parts.clock()
        record = await asyncio.to_thread(record_of, body, self._limits.record, now)
        imported = await asyncio.to_thread(imported_of, record)
        if len(imported.messages) > self._limits.messages:
            raise BodyTooLarge(f"More than {self._limits.messages} messages.", param="events")
        if record.name is not None and await self._parts.store.history.named(namespace, record.name):
            raise _taken()
        await self._parts.newcomers.admit(namespace, len(imported.messages) + len(imported.events))
        raws = [message.raw for message in imported.messages]
        messages = await self._parts.reader.read_stored(raws, record.model)
        talk = conversation_of(messages, seed_of(namespace))
        await self._parts.tombstones.admit_list(namespace, talk.chains, record.name)
        made = _made(imported, talk)
        force = applicable([compaction for compaction, _ in made], talk)
        view = await asyncio.to_thread(self._parts.readings.view, talk, force, record.model)
        opened = _opened(namespace, self._parts.new_id(), record, talk, now)
        state = state_of(imported.restored, talk, view)
        events = self._events(imported, state, len(made), now)
        times = [message.at for message in imported.messages[len(talk.preamble) :]]
        try:
            await self._parts.store.exchanges.import_session(opened, times, events, made)
        except Conflict:
            raise _taken() from None
        return ImportedSession(
            session=opened.session,
            name=record.name,
            restored=imported.restored,
            source=imported.source,
            messages=len(imported.messages),
            events=len(imported.events),
        )

    def _events(
        self, imported: Imported, state: RuntimeSnapshot, compactions: int, now: float
    ) -> list[EventRow]:
        """The imported events, then a snapshot of the state here and the event of the restore."""
        new_id = self._parts.new_id
        came = [
            EventRow(event.id or new_id(), event.type, event.payload, event.at) for event in imported.events
        ]
        derived = derived_loop(
            [StoredRecord(event.type, event.payload, event.at) for event in imported.events]
        )
        restored = replace(imported.restored, snapshot=state)
        ours = [
            conversation_snapshot(state),
            session_restored(
                restored, imported.source, carried_counters(state, compactions, derived.recovery)
            ),
        ]
        return [*came, *event_rows(ours, now, new_id)]


def state_of(restored: Restored, talk: Conversation, view: View) -> RuntimeSnapshot:
    """The restored state with the ids of the conversation here, and without jobs of another process.

    What an older format lacks is counted from the messages.
    """
    found = restored.snapshot
    state = msgspec.structs.replace(
        found,
        transcript=transcript_of(talk, view),
        queues=QueuesSection(),
        worker=WorkerSection(
            watermark=view.compaction.watermark.hex() if view.compaction else "",
            failures=found.worker.failures,
        ),
    )
    if not restored.is_upgraded and found.tooling != ToolingSection():
        return state
    users = sum(message.role == "user" for message in talk.messages)
    loop = msgspec.structs.replace(
        found.loop, turns=found.loop.turns or users, exchanges=exchanges_since(talk.messages, 0)
    )
    return msgspec.structs.replace(
        state, loop=loop, tooling=tooling_of(talk.messages), files=files_of(talk.messages)
    )


def _made(imported: Imported, talk: Conversation) -> list[DatedCompaction]:
    """The imported compactions that apply to this conversation, oldest first."""
    spoken = imported.messages[len(talk.preamble) :]
    names = {
        message.name: recall_id(chain)
        for message, chain in zip(spoken, talk.chains, strict=True)
        if message.name
    }
    records = [event for event in imported.events if event.type == COMPACTION]
    made = ((imported_compaction(event.payload, talk, names), event.at) for event in records)
    return [(compaction, at) for compaction, at in made if compaction is not None]


def _opened(
    namespace: str, session: str, record: ImportedRecord, talk: Conversation, now: float
) -> OpenExchange:
    parents = (b"", *talk.chains[:-1])
    places = enumerate(zip(talk.messages, talk.chains, parents, strict=True), 1)
    return OpenExchange(
        namespace=namespace,
        session=session,
        external_id=record.name,
        exchange="",
        base=b"",
        head=talk.head,
        messages=[
            stored_message(message, chain, parent, depth, 0) for depth, (message, chain, parent) in places
        ],
        variants=(),
        rebase=None,
        preamble=[(message.raw, message.digest) for message in talk.preamble],
        preamble_digest=preamble_digest(talk.preamble),
        model=record.model,
        found_by="import",
        mode="full",
        full_history=talk.is_history,
        idempotency_key=None,
        started_at=now,
    )


def _taken() -> NameTaken:
    return NameTaken("There is a session of that name already.", param="name")
