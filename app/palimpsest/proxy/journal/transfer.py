"""Imports sessions from other systems (A40, A41).

`palimpsest.core.runtime` reads the records; this module stores them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from palimpsest.core.history.message import Conversation, conversation_of, seed_of
from palimpsest.core.recall.rounds.hidden import HiddenRounds
from palimpsest.core.runtime.events import Event, session_restored
from palimpsest.core.runtime.restore import RecordedEvent, Restored
from palimpsest.core.runtime.session_import import (
    COMPACTION,
    HIDDEN,
    Imported,
    ImportedRecord,
    imported_compaction,
    imported_of,
    record_of,
)
from palimpsest.core.runtime.snapshot import BroughtState
from palimpsest.core.view.compaction import context_id
from palimpsest.core.wire.json_text import encoded as encoded_json
from palimpsest.errors import BodyTooLarge, Conflict, NameTaken, StoreError
from palimpsest.proxy.access import UnprovenNamespaces
from palimpsest.proxy.journal_rows import NewId, event_rows
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.proxy.sessions.recorder import stored_message
from palimpsest.proxy.sessions.resolver import preamble_digest
from palimpsest.proxy.sessions.tombstones import Tombstones
from palimpsest.settings.serving import Limits
from palimpsest.storage.compactions import DatedCompaction
from palimpsest.storage.exchange_units import OpenExchange
from palimpsest.storage.journal import EventRow
from palimpsest.storage.store import Store

# Events that a session may have for each message of a request: calls, results, usages.
_EVENTS_A_MESSAGE = 5


def with_hidden(events: Iterable[RecordedEvent], hidden: Mapping[str, HiddenRounds]) -> list[RecordedEvent]:
    """The events, with the hidden rounds around each answer; `hidden` is by the answer's id."""
    every: list[RecordedEvent] = []
    for event in events:
        rounds = hidden.get(event.id)
        before, behind = rounds.unseen() if rounds else ((), ())
        named = b'{"answer":' + encoded_json(event.id) + b',"message":'
        unseen = [RecordedEvent("", HIDDEN, named + raw + b"}", event.at) for raw in (*before, *behind)]
        every += [*unseen[: len(before)], event, *unseen[len(before) :]]
    return every


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """The result of an import."""

    session: str
    name: str | None
    restored: Restored
    messages: int
    events: int


@dataclass(frozen=True, slots=True)
class Imports:
    """Imports sessions; `limits` are those of a request and its messages."""

    store: Store
    reader: MessageReader
    newcomers: UnprovenNamespaces
    tombstones: Tombstones
    limits: Limits
    clock: Callable[[], float]
    new_id: NewId

    async def imported(self, namespace: str, body: bytes) -> ImportedSession:
        """Import the session in the document `body`, with all its messages and events, or nothing of it.

        InvalidJson, InvalidParameter, BodyTooLarge, NothingToRestore, NameTaken, ErasedSession,
        NamespaceUnproven or StoreUnavailable.
        """
        now, limits = self.clock(), self.limits
        most_events = _EVENTS_A_MESSAGE * limits.messages
        # All that grows with the document is done on another thread: it takes seconds for 100,000 events.
        record = await asyncio.to_thread(record_of, body, limits.json_depth, most_events, now)
        imported = await asyncio.to_thread(imported_of, record)
        if len(imported.messages) > self.limits.messages:
            raise BodyTooLarge(f"More than {self.limits.messages} messages.", param="events")
        if record.name is not None and await self.store.history.named(namespace, record.name):
            raise _taken()
        await self.newcomers.admit(namespace, len(imported.messages) + len(imported.events))
        raws = [message.raw for message in imported.messages]
        messages = await self.reader.read_stored(raws, record.model)
        talk = await asyncio.to_thread(conversation_of, messages, seed_of(namespace))
        await self.tombstones.admit_list(namespace, talk.chains, record.name)
        opened = await asyncio.to_thread(_opened, namespace, self.new_id(), record, talk, now)
        made = await asyncio.to_thread(_made, imported, talk)
        events = await asyncio.to_thread(self._events, imported, talk, len(made), now)
        times = [message.at for message in imported.messages[len(talk.preamble) :]]
        try:
            await self.store.exchanges.import_session(opened, times, events, made)
        except (StoreError, Conflict) as failure:
            with suppress(StoreError):
                await self.store.erasure.drop_import(namespace, opened.session)
            # What was stored is there, although the database's answer was lost.
            if not await self.store.history.named(namespace, opened.session):
                raise (_taken() if isinstance(failure, Conflict) else failure) from None
        return ImportedSession(
            session=opened.session,
            name=record.name,
            restored=imported.restored,
            messages=len(imported.messages),
            events=len(imported.events),
        )

    def _events(self, imported: Imported, talk: Conversation, compactions: int, now: float) -> list[EventRow]:
        """The imported events, then that of the restore, and a snapshot."""
        came = [
            EventRow(event.id or self.new_id(), event.type, event.payload, event.at)
            for event in imported.events
        ]
        brought = _brought_by(imported.restored, talk, compactions)
        restored = session_restored(imported.restored, len(talk.messages), brought)
        snapshot = Event("conversation_snapshot", {"point": talk.head.hex()})
        return [*came, *event_rows([restored, snapshot], now, self.new_id)]


def _brought_by(restored: Restored, talk: Conversation, compactions: int) -> BroughtState:
    """What the restored state has beside its messages, with so many imported compactions.

    Turns that it does not count are the user's messages.
    """
    found = restored.snapshot
    loop = msgspec.structs.replace(found.loop, compaction_count=max(found.loop.compaction_count, compactions))
    if not loop.turns:
        turns = sum(message.role == "user" for message in talk.messages)
        loop = msgspec.structs.replace(loop, turns=turns)
    return BroughtState(
        loop=loop,
        recovery=found.recovery,
        queues=found.queues,
        worker=found.worker,
        verification=found.verification,
        usage=found.usage,
    )


def _made(imported: Imported, talk: Conversation) -> list[DatedCompaction]:
    """The imported compactions that apply to this conversation, oldest first."""
    spoken = imported.messages[len(talk.preamble) :]
    names = {
        message.name: context_id(chain)
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
