"""Makes a session of another system's records, and reads a session as such records (A40, A41).

The records are read and written by `app.core.runtime`; here they meet the store. Knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from app.core.history.chain import conversation_of, seed_of
from app.core.history.conversation import Conversation
from app.core.runtime.carried import carried_by
from app.core.runtime.entry import exchanges_since
from app.core.runtime.events import conversation_snapshot, session_restored
from app.core.runtime.foreign import Stored, derived_loop
from app.core.runtime.importing import COMPACTION, Imported, imported_of
from app.core.runtime.moved import moved_in
from app.core.runtime.records import Record, RecordLimits, record_of
from app.core.runtime.restore import Restored
from app.core.runtime.snapshot import (
    QueuesSection,
    RuntimeSnapshot,
    ToolingSection,
    WorkerSection,
)
from app.core.runtime.tallies import files_of, tooling_of, transcript_of
from app.core.summary.source import recall_id
from app.core.view.outcomes import View
from app.core.view.view import applicable
from app.errors import BodyTooLarge, Conflict, NameTaken
from app.proxy.access.newcomers import Newcomers
from app.proxy.chronicle.readings import Readings
from app.proxy.chronicle.rows import NewId, event_rows
from app.proxy.sessions.reader import MessageReader
from app.proxy.sessions.recorder import stored_message
from app.proxy.sessions.resolver import preamble_digest
from app.proxy.sessions.tombstones import Tombstones
from app.storage.contract import OpenExchange, Store
from app.storage.exchange.imports import Made
from app.storage.journal import Event as EventRow


@dataclass(frozen=True, slots=True)
class ImportLimits:
    """Bounds of one import, inclusive: of the document, and messages."""

    record: RecordLimits
    messages: int


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """What an import made: `source` is the id of the event that the state is from, "" when from many."""

    session: str
    name: str | None
    restored: Restored
    source: str
    messages: int
    events: int


@dataclass(frozen=True, slots=True)
class ImportParts:
    """What imports are made with; `clock` gives UTC seconds."""

    store: Store
    reader: MessageReader
    readings: Readings
    newcomers: Newcomers
    tombstones: Tombstones
    clock: Callable[[], float]
    new_id: NewId


class Imports:
    """One for the application."""

    def __init__(self, parts: ImportParts, limits: ImportLimits) -> None:
        self._parts = parts
        self._limits = limits

    async def imported(self, namespace: str, body: bytes) -> ImportedSession:
        """The session that the document `body` tells of is there, with all its messages and events.

        InvalidJson, InvalidParameter, BodyTooLarge, NothingToRestore, NameTaken, ErasedSession or
        NamespaceUnproven, and StoreUnavailable: then there is nothing of it.
        """
        now = self._parts.clock()
        record = await asyncio.to_thread(record_of, body, self._limits.record, now)
        imported = await asyncio.to_thread(imported_of, record)
        if len(imported.messages) > self._limits.messages:
            raise BodyTooLarge(f"More than {self._limits.messages} messages.", param="events")
        if record.name is not None and await self._parts.store.named(namespace, record.name):
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
            await self._parts.store.import_session(opened, times, events, made)
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
        """The events that came, the state as it is taken up here, and that it was restored."""
        new_id = self._parts.new_id
        came = [
            EventRow(event.id or new_id(), event.type, event.payload, event.at) for event in imported.events
        ]
        told = derived_loop([Stored(event.type, event.payload, event.at) for event in imported.events])
        restored = replace(imported.restored, snapshot=state)
        ours = [
            conversation_snapshot(state),
            session_restored(restored, imported.source, carried_by(state, compactions, told.recovery)),
        ]
        return [*came, *event_rows(ours, now, new_id)]


def state_of(restored: Restored, talk: Conversation, view: View) -> RuntimeSnapshot:
    """The restored state for the conversation it is here: named anew, without jobs of another process.

    What an older form does not tell is counted from the messages.
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


def _made(imported: Imported, talk: Conversation) -> list[Made]:
    """The compactions that came along, as they are of this conversation, oldest first."""
    spoken = imported.messages[len(talk.preamble) :]
    names = {
        message.name: recall_id(chain)
        for message, chain in zip(spoken, talk.chains, strict=True)
        if message.name
    }
    records = [event for event in imported.events if event.type == COMPACTION]
    made = ((moved_in(event.payload, talk, names), event.at) for event in records)
    return [(compaction, at) for compaction, at in made if compaction is not None]


def _opened(namespace: str, session: str, record: Record, talk: Conversation, now: float) -> OpenExchange:
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
        full_history=bool(talk.preamble) or any(message.role == "assistant" for message in talk.messages),
        idempotency_key=None,
        started_at=now,
    )


def _taken() -> NameTaken:
    return NameTaken("There is a session of that name already.", param="name")
