"""What is read for a record: a stored path as entries, what is known of a session, what a model sees.

Changes nothing; knows nothing of what is made of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.core.history.conversation import Conversation
from app.core.history.message import Message
from app.core.runtime.entry import Entry
from app.core.runtime.restore import RESTORABLE, STATES, Restored
from app.core.view.compaction import Compaction
from app.core.view.outcomes import View
from app.core.view.view import applicable, view_of
from app.proxy.chronicle.restoring import restored_on
from app.proxy.chronicle.rows import kept_of
from app.proxy.chronicle.runtime import TOLD, Past
from app.proxy.compacting.model_tokens import ModelTokens
from app.proxy.sessions.reader import MessageReader
from app.proxy.subject import Subject
from app.storage.contract import Store
from app.storage.journal import StoredCheckpoint, StoredEvent

# Checkpoints that are read to go on from: the newest one on a path is rarely further back.
CHECKPOINTS_READ = 32
# More events of the counted types no session has.
_EVENTS_READ = 10_000
_EVENTS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class StoredPath:
    """The messages of a path from index `start` on, oldest first; empty when it is unknown.

    `relayed`: how many answers of ours lead to its end.
    """

    entries: tuple[Entry, ...]
    relayed: int
    start: int = 0

    def after(self, place: int, most_bytes: int) -> Sequence[Entry]:
        """The newest entries from the path's index `place` on, until they have `most_bytes`; at least one."""
        messages = [entry.message for entry in self.entries]
        return self.entries[newest(messages, place - self.start, most_bytes) :]


def newest(messages: Sequence[Message], place: int, most_bytes: int) -> int:
    """Where the newest messages begin: at index `place`, or where they have `most_bytes`; at least one."""
    start, size = len(messages), 0
    while start > 0 and (size == 0 or (start > place and size < most_bytes)):
        start -= 1
        size += len(messages[start].raw)
    return start


class Readings:
    """One for the application."""

    def __init__(self, store: Store, reader: MessageReader, tokens: ModelTokens) -> None:
        self._store = store
        self._reader = reader
        self._tokens = tokens

    async def path(self, subject: Subject, talk: Conversation, start: int = 0) -> StoredPath:
        """The stored path of `talk` in the subject's session, from its index `start` on if it is found there.

        What stands before it is not read.
        """
        at = subject.namespace, subject.session
        since = talk.chains[start] if 0 < start < len(talk.chains) else b""
        rows, known = await asyncio.gather(
            self._store.bodies(*at, talk.head, since), self._store.known(at[0], [talk.head], at[1])
        )
        messages = await self._reader.read_stored([row.body for row in rows], subject.model)
        entries = tuple(
            Entry(row.chain, message, row.arrival, row.created_at)
            for row, message in zip(rows, messages, strict=True)
        )
        is_found = bool(rows and since) and rows[0].chain == since
        return StoredPath(entries, known[0].answers if known else 0, start if is_found else 0)

    async def past(self, subject: Subject, talk: Conversation | None = None) -> Past:
        """What is stored of the subject's session beside its messages, for its own conversation or `talk`.

        Events of other forms are read only where no checkpoint is of that path.
        """
        at = subject.namespace, subject.session
        checkpoints, compactions, events = await asyncio.gather(
            self._store.checkpoints(*at, CHECKPOINTS_READ),
            self._store.compactions(*at),
            self._store.events(*at, 0, _EVENTS_READ, TOLD),
        )
        kept, talk = kept_of(checkpoints), talk or subject.conversation
        past = Past(kept, compactions, events, is_damaged=len(kept) < len(checkpoints))
        if past.on_path(talk)[0] is not None:
            return past
        return replace(past, restored=await self._restored(subject, talk, past, checkpoints))

    async def _restored(
        self, subject: Subject, talk: Conversation, past: Past, checkpoints: Sequence[StoredCheckpoint]
    ) -> Restored | None:
        """Of a state of ours that has counted something, no other events are asked for."""
        found = None
        for types in (STATES, RESTORABLE):
            told = await self._told(subject, types)
            if told or checkpoints:
                found = await asyncio.to_thread(restored_on, talk, past, checkpoints, told)
            if found is not None and not found.is_upgraded and not found.snapshot.usage.is_zero:
                break
        return found

    async def _told(self, subject: Subject, types: Sequence[str]) -> Sequence[StoredEvent]:
        """The session's events of these types, oldest first."""
        found: list[StoredEvent] = []
        after = 0
        while len(found) < _EVENTS_READ:
            page = await self._store.events(subject.namespace, subject.session, after, _EVENTS_AT_ONCE, types)
            found.extend(page)
            if len(page) < _EVENTS_AT_ONCE:
                break
            after = page[-1].seq
        return found

    def view(self, talk: Conversation, compaction: Compaction | None, model: str) -> View:
        """What the model sees of `talk` with `compaction` in force."""
        return view_of(talk, compaction, self._tokens.counter_of(model).count_text)


def in_force(talk: Conversation, past: Past) -> Compaction | None:
    """The compaction that applies to `talk`."""
    return applicable([row.compaction for row in past.compactions if row.undone_at is None], talk)
