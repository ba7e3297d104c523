"""What is stored of a session beside its messages: checkpoints, events, memories, the daily log.

A failed write is logged and does not fail the turn, except for the checkpoint before a compaction: it must be
durable before anything is removed (A36).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from palimpsest.core.history.append import has_only_new_messages
from palimpsest.core.runtime.checkpoint import Gist
from palimpsest.core.runtime.events import (
    Event,
    client_changed_prefix,
    compaction_failed,
    overflow_recovery_completed,
    overflow_recovery_failed,
    overflow_recovery_started,
    session_not_continued,
)
from palimpsest.core.runtime.session_import import RecordedEvent
from palimpsest.core.text.fence import sendable, unfenced
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.view import cut_in
from palimpsest.errors import Conflict, StoreError
from palimpsest.proxy.compaction_context import CompactionContext
from palimpsest.proxy.journal.checkpoints import (
    READ_BYTES,
    Checkpoints,
    CompactionNotes,
    NotesInput,
    Writing,
    compaction_notes,
    periodic_due,
)
from palimpsest.proxy.journal.runtime import Readings, Usages, newest
from palimpsest.proxy.journal_rows import checkpoint_row, event_rows
from palimpsest.proxy.sessions.recorder import Outcome
from palimpsest.proxy.turn import ForwardedView, Subject, Turn
from palimpsest.storage.compactions import JournalEntries
from palimpsest.storage.journal import EventRow, MemoryRow

# Called with the gist of a span of a turn's conversation.
Remembers = Callable[[Turn, Gist], Awaitable[None]]
_log = structlog.get_logger("palimpsest.journal")


@dataclass(frozen=True, slots=True)
class PendingCompaction:
    """A compaction ready to be stored, `at` (UTC seconds), with `also` in its transaction (B13)."""

    subject: Subject
    compaction: Compaction
    also: JournalEntries
    at: float


class SessionJournal:
    """Writes checkpoints, events and memories, and the daily log."""

    def __init__(self, writing: Writing, readings: Readings) -> None:
        self._journal = writing.journal
        self._jobs = writing.jobs
        self._clock = writing.clock
        self._new_id = writing.new_id
        self._daily_log = writing.log
        self._readings = readings
        self._usages = Usages()
        self._checkpoints = Checkpoints(writing, readings, self._usages)

    async def before(
        self, context: CompactionContext, compaction: Compaction, *, summaries: int = 0
    ) -> PendingCompaction:
        """Store what must be durable before the compaction; the rest is returned for its transaction.

        When messages are removed: a checkpoint with the session's state (A36), and a flush if little room is
        left (A43). StoreError when the checkpoint cannot be stored, Conflict when the session was erased:
        then the compaction must not be stored. `summaries`: the number being written now.
        """
        turn = context.turn
        talk = context.conversation
        # Include the last folded message, so that there is always one.
        start = newest(talk.messages, cut_in(context.current, talk) - 1, READ_BYTES)
        path = await self._readings.path(turn, talk, start)
        if not path.entries:
            raise Conflict("The session was erased while it was being compacted.")
        at, memory = self._clock(), self._new_id()
        async with self._usages.taken(turn.namespace, turn.session) as taken:
            past = await self._readings.past(turn)
            material = NotesInput(context, compaction, path, past, taken.usage, summaries, at, memory)
            notes = await asyncio.to_thread(compaction_notes, material)
            taken.is_stored = await self._store_before(turn, notes, past.restore_events, at)
        also = JournalEntries(
            [_summary(compaction, memory, at)] if notes.checkpoint else [],
            await asyncio.to_thread(event_rows, notes.beside, at, self._new_id),
        )
        return PendingCompaction(turn, compaction, also, at)

    def erased(self, namespace: str, session: str) -> None:
        """Forget the usage of an erased session."""
        self._usages.erased(namespace, session)

    def adopted(self, pending: PendingCompaction) -> None:
        """The compaction is in force: write its summary to the daily log (A30), in the background."""
        if self._daily_log is not None and pending.compaction.kind == "message_removal":
            subject = pending.subject
            self._jobs.start(
                self._daily_log.write(subject.namespace, subject.session, pending.compaction, pending.at)
            )

    def answered(self, turn: Turn, shown: ForwardedView, outcome: Outcome, remembers: Remembers) -> None:
        """An answer is stored: count its tokens; if due, make a checkpoint in the background (A37).

        `remembers` is called with the gists of new checkpoints (B16).
        """
        self._usages.count(turn.namespace, turn.session, outcome.usage)
        if periodic_due(turn, outcome):
            self._jobs.start(self._checked(turn, shown, outcome, remembers))

    async def _checked(
        self, turn: Turn, shown: ForwardedView, outcome: Outcome, remembers: Remembers
    ) -> None:
        for gist in await self._checkpoints.periodic(turn, shown, outcome):
            await remembers(turn, gist)

    async def completed(self, subject: Subject, marker: str = "") -> str | None:
        """The session was declared complete (A38): make a checkpoint; its id.

        None when nothing was decided or produced. `marker` is the text given with it. StoreError.
        """
        return await self._checkpoints.completed(subject, marker)

    async def exported(self, subject: Subject) -> Sequence[RecordedEvent]:
        """The session as events for an import; empty without messages. StoreError."""
        return await self._checkpoints.exported(subject)

    async def failed(self, subject: Subject, reason: str, trigger: str, watermark: bytes = b"") -> None:
        """A compaction failed, and history is unchanged; `reason` is a stable word."""
        await self.tell(subject, compaction_failed(reason, trigger, watermark))

    async def recovery_started(self, subject: Subject, attempt: int, most: int, tokens: int) -> None:
        """The upstream refused a prompt of `tokens`; attempts count from 1 to `most` (A29)."""
        await self.tell(subject, overflow_recovery_started(attempt, most, tokens))

    async def recovery_completed(
        self, subject: Subject, attempts: int, compaction_id: str, tokens: int
    ) -> None:
        """The upstream answered a prompt of `tokens` after so many attempts."""
        await self.tell(subject, overflow_recovery_completed(attempts, compaction_id, tokens))

    async def recovery_failed(self, subject: Subject, attempts: int, code: str) -> None:
        """The client got the error `code`."""
        await self.tell(subject, overflow_recovery_failed(attempts, code))

    def placed(self, turn: Turn) -> None:
        """Write, in the background, an event if the client's list does not continue what is stored.

        Either the client dropped or changed what it had sent; or new messages alone under a session's name
        were not appended to it, which is reported once.
        """
        if turn.placement.rebase is not None:
            brought, said = len(turn.placement.new), len(turn.conversation.messages)
            self._jobs.start(self.tell(turn, client_changed_prefix(said, said - brought)))
        if turn.is_apart and has_only_new_messages((*turn.instructions, *turn.conversation.messages)):
            self._jobs.start(self._tell_once(turn, session_not_continued(len(turn.conversation.messages))))

    async def _tell_once(self, subject: Subject, event: Event) -> None:
        """Write the event under a fixed id, so that the store keeps the first alone."""
        await self._tell(subject, event_rows([event], self._clock(), lambda: event.type))

    async def tell(self, subject: Subject, *events: Event) -> None:
        """Store the events in this order; a store error is logged."""
        await self._tell(subject, event_rows(events, self._clock(), self._new_id))

    async def _tell(self, subject: Subject, rows: Sequence[EventRow]) -> None:
        try:
            await self._journal.add_events(subject.namespace, subject.session, rows)
        except StoreError as error:
            _log.warning("event_not_stored", error=type(error).__name__, session=subject.session)

    async def _store_before(
        self, subject: Subject, notes: CompactionNotes, restoring: Sequence[Event], at: float
    ) -> bool:
        """Store the checkpoint, the events after `restoring`, and the flush; True if the checkpoint is new.

        It is not new if an earlier attempt to compact the same span failed.
        """
        if notes.checkpoint is None:
            return False
        row = checkpoint_row(notes.checkpoint, at, self._new_id)
        is_new = await self._journal.add_checkpoint(subject.namespace, subject.session, row)
        events = [*(restoring if is_new else ()), *notes.before]
        rows = event_rows(events, at, self._new_id, row if is_new else None)
        await asyncio.gather(self._tell(subject, rows), self._remember(subject, notes.flush, at))
        return is_new

    async def _remember(self, subject: Subject, flush: str, at: float) -> None:
        """Store the flush note as a memory; a store error is logged."""
        if not flush:
            return
        note = MemoryRow(self._new_id(), "flush", sendable(flush).encode(), None, at)
        try:
            await self._journal.add_memory(subject.namespace, subject.session, note)
        except StoreError as error:
            _log.warning("flush_not_stored", error=type(error).__name__, session=subject.session)


def _summary(compaction: Compaction, ident: str, at: float) -> MemoryRow:
    """The summary as a searchable memory row, without its fence, which every summary has."""
    text = sendable(unfenced(compaction.summary))
    return MemoryRow(ident, "summary", text.encode(), compaction.id, at)
