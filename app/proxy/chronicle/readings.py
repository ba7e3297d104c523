"""What is read for a record: a stored path as entries, what is known of a session, what a model sees.

Changes nothing; knows nothing of what is made of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.core.history.conversation import Conversation
from app.core.runtime.entry import Entry
from app.core.runtime.restore import RESTORABLE
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
from app.storage.journal import StoredEvent

# Checkpoints that are read to go on from: the newest one on a path is rarely further back.
CHECKPOINTS_READ = 32
# More events of the counted types no session has.
_EVENTS_READ = 10_000
_EVENTS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class StoredPath:
    """The messages of a path, oldest first; `relayed` of them are answers of ours. Empty when unknown."""

    entries: tuple[Entry, ...]
    relayed: int

    def after(self, place: int, most_bytes: int) -> Sequence[Entry]:
        """The newest entries from index `place` on, until they have `most_bytes` together; at least one."""
        start, size = len(self.entries), 0
        while start > 0 and (size == 0 or (start > place and size < most_bytes)):
            start -= 1
            size += len(self.entries[start].message.raw)
        return self.entries[start:]


class Readings:
    """One for the application."""

    def __init__(self, store: Store, reader: MessageReader, tokens: ModelTokens) -> None:
        self._store = store
        self._reader = reader
        self._tokens = tokens

    async def path(self, subject: Subject, head: bytes) -> StoredPath:
        """The path of the subject's session that `head` names."""
        rows = await self._store.bodies(subject.namespace, subject.session, head)
        messages = await self._reader.read_stored([row.body for row in rows], subject.model)
        entries = tuple(
            Entry(row.chain, message, row.arrival, row.created_at)
            for row, message in zip(rows, messages, strict=True)
        )
        return StoredPath(entries, sum(row.relayed for row in rows))

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
        told = await self._restorable(subject)
        found = (
            await asyncio.to_thread(restored_on, talk, past, checkpoints, told)
            if told or checkpoints
            else None
        )
        return replace(past, restored=found)

    async def _restorable(self, subject: Subject) -> Sequence[StoredEvent]:
        """The session's events that a state may be read from, oldest first."""
        found: list[StoredEvent] = []
        after = 0
        while len(found) < _EVENTS_READ:
            page = await self._store.events(
                subject.namespace, subject.session, after, _EVENTS_AT_ONCE, RESTORABLE
            )
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
