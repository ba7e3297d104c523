"""What is read for a record: a stored path as entries, what is known of a session, what a model sees.

Changes nothing; knows nothing of what is made of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from app.core.history.conversation import Conversation
from app.core.runtime.entry import Entry
from app.core.view.compaction import Compaction
from app.core.view.outcomes import View
from app.core.view.view import applicable, view_of
from app.proxy.chronicle.rows import kept_of
from app.proxy.chronicle.runtime import TOLD, Past
from app.proxy.compacting.model_tokens import ModelTokens
from app.proxy.sessions.reader import MessageReader
from app.proxy.subject import Subject
from app.storage.contract import Store

# Checkpoints that are read to go on from: the newest one on a path is rarely further back.
CHECKPOINTS_READ = 32
# More events of the counted types no session has.
_EVENTS_READ = 10_000


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

    async def past(self, subject: Subject) -> Past:
        """What is stored of the subject's session beside its messages."""
        at = subject.namespace, subject.session
        checkpoints, compactions, events = await asyncio.gather(
            self._store.checkpoints(*at, CHECKPOINTS_READ),
            self._store.compactions(*at),
            self._store.events(*at, 0, _EVENTS_READ, TOLD),
        )
        return Past(kept_of(checkpoints), compactions, events)

    def view(self, talk: Conversation, compaction: Compaction | None, model: str) -> View:
        """What the model sees of `talk` with `compaction` in force."""
        return view_of(talk, compaction, self._tokens.counter_of(model).count_text)


def in_force(talk: Conversation, past: Past) -> Compaction | None:
    """The compaction that applies to `talk`."""
    return applicable([row.compaction for row in past.compactions if row.undone_at is None], talk)
