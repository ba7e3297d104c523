"""What a session leaves behind beside its messages: checkpoints, events, memories, the daily log.

One for the application. A write that fails costs no turn and is logged; only the checkpoint before a
compaction must be durable before anything is removed (A36). Knows nothing of how compactions are
decided nor of how answers travel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from app.core.history.append import brings_only_news
from app.core.runtime.events import (
    Event,
    client_changed_prefix,
    compaction_failed,
    overflow_recovery_completed,
    overflow_recovery_failed,
    overflow_recovery_started,
    session_not_continued,
)
from app.core.runtime.gist import Gist
from app.core.runtime.records import RecordedEvent
from app.core.text.fence import sendable, unfenced
from app.core.view.compaction import Compaction
from app.core.view.view import cut_in
from app.errors import Conflict, StoreError
from app.proxy.chronicle.checkpoints import Checkpoints, periodic_due
from app.proxy.chronicle.daily_log import DailyLog
from app.proxy.chronicle.draft import READ_BYTES, Draft, Material, draft_of
from app.proxy.chronicle.readings import Readings, newest
from app.proxy.chronicle.rows import NewId, checkpoint_row, event_rows
from app.proxy.chronicle.usages import Usages
from app.proxy.compacting.scene import Scene
from app.proxy.jobs import Jobs
from app.proxy.sessions.recorder import Outcome
from app.proxy.subject import Subject
from app.proxy.turn import Shown, Turn
from app.storage.contract import Store
from app.storage.journal import Also, Memory

# Takes what a span of a turn's conversation came to.
Remembers = Callable[[Turn, Gist], Awaitable[None]]
_log = structlog.get_logger("palimpsest.chronicle")


@dataclass(frozen=True, slots=True)
class Writing:
    """Where and how the chronicle writes: `clock` gives UTC seconds, without a `log` none is kept."""

    store: Store
    jobs: Jobs
    clock: Callable[[], float]
    new_id: NewId
    log: DailyLog | None = None


@dataclass(frozen=True, slots=True)
class Chapter:
    """One compaction that may be stored now, `at` (UTC seconds), together with `also` (B13)."""

    subject: Subject
    compaction: Compaction
    also: Also
    at: float


class Chronicle:
    """See the module docstring."""

    def __init__(self, writing: Writing, readings: Readings) -> None:
        self._store = writing.store
        self._jobs = writing.jobs
        self._clock = writing.clock
        self._new_id = writing.new_id
        self._daily_log = writing.log
        self._readings = readings
        self._usages = Usages()
        self._checkpoints = Checkpoints(writing.store, readings, self._usages, writing.clock, writing.new_id)

    async def before(self, scene: Scene, compaction: Compaction, *, summaries: int = 0) -> Chapter:
        """What must be durable before the compaction is; the rest is in the chapter, for its transaction.

        When messages are removed: a checkpoint with the session's state (A36), and a flush where
        room is short (A43). StoreError when the checkpoint cannot be stored, Conflict when the session
        was erased: then the compaction must not be made. `summaries`: those being written now.
        """
        turn = scene.turn
        talk = scene.conversation
        # One that is folded already among them, so that there is always one.
        start = newest(talk.messages, cut_in(scene.current, talk) - 1, READ_BYTES)
        path = await self._readings.path(turn, talk, start)
        if not path.entries:
            raise Conflict("The session was erased while it was being compacted.")
        at, memory = self._clock(), self._new_id()
        async with self._usages.taken(turn.namespace, turn.session) as taken:
            past = await self._readings.past(turn)
            material = Material(scene, compaction, path, past, taken.usage, summaries, at, memory)
            draft = await asyncio.to_thread(draft_of, material)
            taken.is_stored = await self._store_before(turn, draft, past.told, at)
        also = Also(
            [_summary(compaction, memory, at)] if draft.checkpoint else [],
            await asyncio.to_thread(event_rows, draft.beside, at, self._new_id),
        )
        return Chapter(turn, compaction, also, at)

    def erased(self, namespace: str, session: str) -> None:
        """The session was erased: nothing is counted of it."""
        self._usages.erased(namespace, session)

    def adopted(self, chapter: Chapter) -> None:
        """The chapter's compaction is in force: its summary goes into the daily log (A30), soon."""
        if self._daily_log is not None and chapter.compaction.kind == "message_removal":
            subject = chapter.subject
            self._jobs.start(
                self._daily_log.write(subject.namespace, subject.session, chapter.compaction, chapter.at)
            )

    def answered(self, turn: Turn, shown: Shown, outcome: Outcome, remembers: Remembers) -> None:
        """An answer is stored: its tokens count, and every so often a checkpoint is made, soon (A37).

        What it came to is remembered (B16).
        """
        self._usages.count(turn.namespace, turn.session, outcome.usage)
        if periodic_due(turn, outcome):
            self._jobs.start(self._checked(turn, shown, outcome, remembers))

    async def _checked(self, turn: Turn, shown: Shown, outcome: Outcome, remembers: Remembers) -> None:
        for gist in await self._checkpoints.periodic(turn, shown, outcome):
            await remembers(turn, gist)

    async def completed(self, subject: Subject, marker: str = "") -> str | None:
        """Somebody says that the session is complete (A38): the id of its checkpoint.

        None when nothing was decided or produced. `marker` is what they say of it. StoreError.
        """
        return await self._checkpoints.completed(subject, marker)

    async def exported(self, subject: Subject) -> Sequence[RecordedEvent]:
        """The session as events that an import takes; empty without messages. StoreError."""
        return await self._checkpoints.exported(subject)

    async def failed(self, subject: Subject, reason: str, trigger: str, watermark: bytes = b"") -> None:
        """No compaction came of it; `reason` is a stable word. History stays as it is."""
        await self.tell(subject, compaction_failed(reason, trigger, watermark))

    async def recovery_started(self, subject: Subject, attempt: int, most: int, tokens: int) -> None:
        """The upstream refused `tokens` as too long; the attempts count from 1 to `most` (A29)."""
        await self.tell(subject, overflow_recovery_started(attempt, most, tokens))

    async def recovery_completed(
        self, subject: Subject, attempts: int, compaction_id: str, tokens: int
    ) -> None:
        """The upstream took `tokens` after so many attempts."""
        await self.tell(subject, overflow_recovery_completed(attempts, compaction_id, tokens))

    async def recovery_failed(self, subject: Subject, attempts: int, code: str) -> None:
        """The client was told; `code` is the error's."""
        await self.tell(subject, overflow_recovery_failed(attempts, code))

    def placed(self, turn: Turn) -> None:
        """What is unusual of how its list goes on from what is stored is told, soon.

        The client dropped or changed what it had sent; or new messages alone under a session's name were
        not appended to it, which is told once.
        """
        if turn.placement.rebase is not None:
            brought, said = len(turn.placement.new), len(turn.conversation.messages)
            self._jobs.start(self.tell(turn, client_changed_prefix(said, said - brought)))
        if turn.is_apart and brings_only_news((*turn.instructions, *turn.conversation.messages)):
            self._jobs.start(self._tell_once(turn, session_not_continued(len(turn.conversation.messages))))

    async def _tell_once(self, subject: Subject, event: Event) -> None:
        """Under an id that is always the same: the store keeps the first."""
        try:
            rows = event_rows([event], self._clock(), lambda: event.type)
            await self._store.add_events(subject.namespace, subject.session, rows)
        except StoreError as error:
            _log.warning("event_not_stored", error=type(error).__name__, session=subject.session)

    async def tell(self, subject: Subject, *events: Event) -> None:
        """The events are stored, in this order; that they could not be is logged, not raised."""
        try:
            rows = event_rows(events, self._clock(), self._new_id)
            await self._store.add_events(subject.namespace, subject.session, rows)
        except StoreError as error:
            _log.warning("event_not_stored", error=type(error).__name__, session=subject.session)

    async def _store_before(
        self, subject: Subject, draft: Draft, restoring: Sequence[Event], at: float
    ) -> bool:
        """True when the draft's checkpoint is new; its events are told behind `restoring`.

        It is not where the same span has one: an attempt to compact it came to nothing before.
        """
        if draft.checkpoint is None:
            return False
        is_new = await self._store.add_checkpoint(
            subject.namespace, subject.session, checkpoint_row(draft.checkpoint, at, self._new_id)
        )
        events = (*(restoring if is_new else ()), *draft.before)
        await asyncio.gather(self.tell(subject, *events), self._remember(subject, draft.flush, at))
        return is_new

    async def _remember(self, subject: Subject, flush: str, at: float) -> None:
        """The flush is in memory; that it could not be is logged."""
        if not flush:
            return
        note = Memory(self._new_id(), "flush", sendable(flush).encode(), None, at)
        try:
            await self._store.add_memory(subject.namespace, subject.session, note)
        except StoreError as error:
            _log.warning("flush_not_stored", error=type(error).__name__, session=subject.session)


def _summary(compaction: Compaction, ident: str, at: float) -> Memory:
    """The summary as it is found again: without its fence, which every summary has."""
    text = sendable(unfenced(compaction.summary))
    return Memory(ident, "summary", text.encode(), compaction.id, at)
