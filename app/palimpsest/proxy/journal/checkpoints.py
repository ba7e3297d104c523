"""Periodic and completion checkpoints (A37, A38), and the checkpoint and events of a compaction.

Periodic checkpoints are made in the background.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import structlog

from palimpsest.core.history.message import Conversation
from palimpsest.core.runtime.checkpoint import (
    EXCHANGES,
    CheckpointKind,
    CheckpointPayload,
    FlushLimits,
    Gist,
    LastFlush,
    Pressure,
    checkpoint_of,
    completion_due,
    flush_due,
    flush_of,
    flushable,
    is_new,
    periodic_spans,
)
from palimpsest.core.runtime.events import (
    Effort,
    Event,
    checkpoint_event,
    conversation_snapshot,
    flush_event,
    memory_event,
    overflow_guard,
    state_delta_invalid,
)
from palimpsest.core.runtime.evidence import ArchivedMessage, span_hash
from palimpsest.core.runtime.flow import Steps, compaction_events, events_before_removal
from palimpsest.core.runtime.session_import import RecordedEvent
from palimpsest.core.runtime.snapshot import RuntimeSnapshot, UsageSection, loop_flushed
from palimpsest.core.summary.rolling.style import DELTA_INVALID
from palimpsest.core.summary.source import recall_id
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.view import cut_in, kept_in
from palimpsest.errors import BackgroundFailed, StoreError
from palimpsest.proxy.background import Background
from palimpsest.proxy.compaction_context import CompactionContext, in_force
from palimpsest.proxy.jobs import Jobs
from palimpsest.proxy.journal.daily_log import DailyLog
from palimpsest.proxy.journal.runtime import (
    Readings,
    RuntimeHistory,
    RuntimeInput,
    StoredPath,
    Usages,
    at_work,
    compacted,
    runtime_of,
)
from palimpsest.proxy.journal.transfer import exported_events
from palimpsest.proxy.journal_rows import KeptCheckpoint, NewId, checkpoint_row, event_rows
from palimpsest.proxy.sessions.recorder import Outcome
from palimpsest.proxy.turn import ForwardedView, Subject, Turn
from palimpsest.storage.journal import Journal

# A checkpoint before a compaction reads this many bytes of the newest messages: it takes a microsecond a
# byte, and a turn waits for it. Older messages are in periodic checkpoints.
READ_BYTES = 256 * 1024
FLUSH = FlushLimits()


@dataclass(frozen=True, slots=True)
class Writing:
    """What the journal works with: `clock` gives UTC seconds; without `log` there is no daily log."""

    journal: Journal
    jobs: Jobs
    background: Background
    clock: Callable[[], float]
    new_id: NewId
    log: DailyLog | None = None


@dataclass(frozen=True, slots=True)
class CompactionNotes:
    """What a compaction writes to the journal: `before` it is stored, and `beside` it in its transaction."""

    checkpoint: CheckpointPayload | None
    flush: str
    before: tuple[Event, ...]
    beside: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class NotesInput:
    """What the notes are made from: `at` in UTC seconds; `memory` is the id of the summary's memory row."""

    context: CompactionContext
    compaction: Compaction
    path: StoredPath
    past: RuntimeHistory
    used: UsageSection
    summaries: int
    at: float
    memory: str


def compaction_notes(material: NotesInput) -> CompactionNotes:
    """The notes of a compaction; the path must not be empty."""
    context, compaction, at = material.context, material.compaction, material.at
    talk = context.conversation
    moment = RuntimeInput(
        talk,
        material.path.relayed,
        context.under(context.current).view,
        material.used,
        material.summaries,
    )
    runtime = at_work(runtime_of(moment, material.past), compaction, at)
    checkpoint, flush, flushed = None, "", None
    if compaction.kind == "message_removal":
        # The newest messages are always included: the checkpoint shows the current work, not only what is
        # folded.
        entries = material.path.after(cut_in(context.current, talk), READ_BYTES)
        flush, flushed, runtime = _flushed(material, runtime)
        checkpoint = checkpoint_of("pre_compaction", entries, at, runtime)
    steps = Steps(
        checkpoint=checkpoint_event(checkpoint) if checkpoint else None,
        flush=flushed,
        guard=_guard(compaction),
        memory=memory_event(compaction.id, material.memory) if checkpoint else None,
    )
    flow = compaction_events(compaction, context.current, steps, _effort(context, compaction))
    before = events_before_removal(flow) if checkpoint else ()
    after = compacted(runtime, talk, context.under(compaction).view, compaction, at)
    beside = (*flow[len(before) :], *_noted(compaction), conversation_snapshot(after))
    return CompactionNotes(checkpoint, flush, before, beside)


def _flushed(material: NotesInput, runtime: RuntimeSnapshot) -> tuple[str, Event | None, RuntimeSnapshot]:
    """The flush note, its event and the state after it; "" and None when none is due."""
    context, at = material.context, material.at
    talk, budget = context.conversation, context.budget
    entries = flushable(material.path.after(cut_in(context.current, talk), READ_BYTES), context.pins)
    pressure = Pressure(
        at=at,
        slack_tokens=budget.window_tokens - budget.output_tokens - context.under(context.current).tokens,
        path_tokens=sum(message.tokens for message in talk.messages),
    )
    mark = runtime.loop.last_flush
    last = LastFlush(mark.at / 1_000, mark.path_tokens) if mark else None
    if not flush_due(len(entries), pressure, last, FLUSH):
        return "", None, runtime
    note = flush_of(entries, FLUSH, context.count_text)
    if not note:
        return "", None, runtime
    sizes = (context.count_text(note), pressure.slack_tokens, pressure.path_tokens)
    event = flush_event(note, *map(budget.for_model, sizes))
    loop = loop_flushed(runtime.loop, pressure.path_tokens, at)
    return note, event, msgspec.structs.replace(runtime, loop=loop)


class _Details(msgspec.Struct, frozen=True):
    """The fields read from a compaction's `details`."""

    notes: tuple[str, ...] = ()
    passes: int | None = None
    run_id: str = ""
    strips_reasoning: bool = False
    guard_tokens: tuple[int, int, int] | None = None


def _effort(context: CompactionContext, compaction: Compaction) -> Effort:
    details = _details(compaction)
    talk, current = context.conversation, context.current
    kept = set(kept_in(compaction, talk))
    folded = range(cut_in(current, talk), cut_in(compaction, talk))
    by_model = int(compaction.author == "model")
    return Effort(
        watermark_from=current.watermark if current else b"",
        turns=sum(talk.messages[i].role == "user" for i in folded if i not in kept),
        passes=by_model if details.passes is None else details.passes,
        run_id=details.run_id,
        strips_reasoning=details.strips_reasoning,
        window_tokens=context.budget.window.tokens,
    )


def _guard(compaction: Compaction) -> Event | None:
    """The event of a summary shortened to fit: its tokens before and after, and the ceiling (A27)."""
    guard = _details(compaction).guard_tokens
    return overflow_guard(compaction.id, *guard) if guard else None


def _noted(compaction: Compaction) -> tuple[Event, ...]:
    """The events from the style's notes on its summary (B09)."""
    is_invalid = DELTA_INVALID in _details(compaction).notes
    return (state_delta_invalid(compaction.id, ("unreadable",)),) if is_invalid else ()


def _details(compaction: Compaction) -> _Details:
    try:
        return msgspec.json.decode(compaction.details, type=_Details)
    except ValueError:
        # Details are for people and may have any form.
        return _Details()


# Of a long history seen for the first time only the newest spans get checkpoints.
SPANS_AT_ONCE = 4
# Waiting checkpoints, each of which holds its request; beyond this the session's next one catches up.
MOST_WAITING = 16
_log = structlog.get_logger("palimpsest.checkpoints")


@dataclass(frozen=True, slots=True)
class _SessionState:
    """A session's subject, conversation, stored path and history beside the messages."""

    subject: Subject
    talk: Conversation
    path: StoredPath
    past: RuntimeHistory


class Checkpoints:
    """Makes periodic and completion checkpoints, and exports."""

    def __init__(self, writing: Writing, readings: Readings, usages: Usages) -> None:
        self._journal = writing.journal
        self._background = writing.background
        self._readings = readings
        self._usages = usages
        self._clock = writing.clock
        self._new_id = writing.new_id
        # One at a time: background work must not starve the turns.
        self._turn = asyncio.Semaphore(1)
        self._waiting = 0

    async def periodic(self, turn: Turn, shown: ForwardedView, outcome: Outcome) -> Sequence[Gist]:
        """Make the checkpoints of all spans that are due; a store error is logged.

        The newest one holds the state of the session. A retried answer to the same request is no new span.
        Returns the gists of the new checkpoints, oldest first.
        """
        whole = turn.conversation.extended(outcome.answers[:1])
        if self._waiting >= MOST_WAITING:
            _log.info("checkpoint_put_off", session=turn.session)
            return ()
        self._waiting += 1
        try:
            async with self._turn:
                session = await self._session_state(turn, whole, "periodic")
                return await self._made(turn, session, shown.view.compaction)
        except (StoreError, BackgroundFailed) as error:
            _log.warning("checkpoint_not_stored", error=type(error).__name__, session=turn.session)
            return ()
        finally:
            self._waiting -= 1

    async def _made(self, turn: Turn, session: _SessionState, force: Compaction | None) -> Sequence[Gist]:
        made: list[Gist] = []
        due = periodic_spans(_since(session, "periodic"))[-SPANS_AT_ONCE:]
        known = {_apart(kept.checkpoint) for kept in session.past.of("periodic")}
        for place, span in enumerate(due, 1):
            weight = sum([len(entry.message.raw) for entry in span])
            at = self._clock()
            checkpoint = await self._background.run(weight, checkpoint_of, "periodic", span, at)
            if _apart(checkpoint) in known:
                continue
            is_last = place == len(due)
            kept = self._with_state(session, checkpoint, force) if is_last else self._kept(turn, checkpoint)
            if await kept is not None:
                made.append(checkpoint.summary)
        return made

    async def completed(self, subject: Subject, marker: str = "") -> str | None:
        """The id of the completion checkpoint, made now or existing; None when none is due.

        `marker` is the text given with the completion.
        """
        session = await self._session_state(subject, subject.conversation, "completion")
        entries = _since(session, "completion")
        if not await asyncio.to_thread(completion_due, entries, marker):
            return None
        checkpoint = await asyncio.to_thread(checkpoint_of, "completion", entries, self._clock())
        lasting = [*session.past.of("periodic"), *session.past.of("completion")]
        if not is_new(checkpoint, {kept.checkpoint.span_hash for kept in lasting}):
            same = (kept.id for kept in lasting if kept.checkpoint.span_hash == checkpoint.span_hash)
            return next(same, None)
        return await self._with_state(session, checkpoint, in_force(session.past.compactions, session.talk))

    async def exported(self, subject: Subject) -> Sequence[RecordedEvent]:
        """The session's events for an import, with a current checkpoint that is not stored.

        Empty without messages.
        """
        session = await self._session_state(subject, subject.conversation)
        if not session.path.entries:
            return ()
        # As much as a checkpoint before a compaction reads.
        newest, made = session.path.after(0, READ_BYTES), session.past.made(session.talk)
        async with self._usages.taken(subject.namespace, subject.session) as taken:
            force = in_force(session.past.compactions, session.talk)
            state = await asyncio.to_thread(self._state, session, session.past, force, taken.usage)
        checkpoint = await asyncio.to_thread(checkpoint_of, "completion", newest, self._clock(), state)
        return tuple(exported_events(session.talk, session.path.entries, made, checkpoint))

    def _state(
        self, session: _SessionState, past: RuntimeHistory, compaction: Compaction | None, used: UsageSection
    ) -> RuntimeSnapshot:
        """The session's runtime snapshot; slow for long conversations."""
        view = self._readings.view(session.talk, compaction, session.subject.model)
        return runtime_of(RuntimeInput(session.talk, session.path.relayed, view, used), past)

    async def _session_state(
        self, subject: Subject, talk: Conversation, kind: CheckpointKind | None = None
    ) -> _SessionState:
        """The state, with the path from the newest checkpoint of `kind` on; the whole path without one."""
        past = await self._readings.past(subject, talk)
        start = _end_in(talk, past.of(kind)) if kind else 0
        return _SessionState(subject, talk, await self._readings.path(subject, talk, start), past)

    async def _with_state(
        self, session: _SessionState, checkpoint: CheckpointPayload, compaction: Compaction | None
    ) -> str | None:
        """As `_kept`, with the session's runtime snapshot in the checkpoint."""
        subject = session.subject
        async with self._usages.taken(subject.namespace, subject.session) as taken:
            past = await self._readings.past(subject, session.talk)
            state = await asyncio.to_thread(self._state, session, past, compaction, taken.usage)
            whole = msgspec.structs.replace(checkpoint, runtime=state)
            kept = await self._kept(subject, whole, past.restore_events)
            taken.is_stored = kept is not None
            return kept

    async def _kept(
        self, subject: Subject, checkpoint: CheckpointPayload, before: Sequence[Event] = ()
    ) -> str | None:
        """Store the checkpoint, and its event after those in `before`; the id of its row.

        None when its span has one already.
        """
        at = self._clock()
        row = checkpoint_row(checkpoint, at, self._new_id)
        namespace, session = subject.namespace, subject.session
        if not await self._journal.add_checkpoint(namespace, session, row):
            return None
        events = event_rows([*before, checkpoint_event(checkpoint)], at, self._new_id, row)
        try:
            await self._journal.add_events(namespace, session, events)
        except StoreError as error:
            # The checkpoint itself is stored: no error for the caller.
            _log.warning("event_not_stored", error=type(error).__name__, session=session)
        return row.id


def periodic_due(turn: Turn, outcome: Outcome) -> bool:
    """True when a span may be due: this answer makes the answers on its path a multiple of twelve.

    A path has no more exchanges than answers, so that a due span is found soon.
    """
    is_one = outcome.state == "done" and len(outcome.answers) == 1
    return is_one and (turn.placement.answers + 1) % EXCHANGES == 0


def _end_in(talk: Conversation, made: Sequence[KeptCheckpoint]) -> int:
    """The index of the newest message at which one of these checkpoints ends; 0 when there is none.

    None is found where a rebase gave the older messages other ids.
    """
    ends = {kept.checkpoint.span.to_id for kept in made}
    places = range(len(talk.chains) - 1, 0, -1) if ends else ()
    return next((place for place in places if recall_id(talk.chains[place]) in ends), 0)


def _since(session: _SessionState, kind: CheckpointKind) -> Sequence[ArchivedMessage]:
    """The path's entries after the newest checkpoint of this kind on it."""
    entries = session.path.entries
    places = {entry.id: place for place, entry in enumerate(entries)}
    ends = (places.get(kept.checkpoint.span.to_id) for kept in session.past.of(kind))
    return entries[max((end + 1 for end in ends if end is not None), default=0) :]


def _apart(checkpoint: CheckpointPayload) -> tuple[str, str]:
    """Identifies a span without its last message, of which there may be several: a request may be retried."""
    cited = [span for span in checkpoint.evidence if span.id != checkpoint.span.to_id]
    return checkpoint.span.from_id, span_hash(cited)
