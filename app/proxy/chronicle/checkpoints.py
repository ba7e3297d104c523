"""Checkpoints on the way: every twelve exchanges (A37) and at completion (A38).

Made beside the turns. Knows nothing of compactions being made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import structlog

from app.core.history.chain import chain_of
from app.core.history.conversation import Conversation
from app.core.runtime.checkpoint import (
    EXCHANGES,
    Checkpoint,
    CheckpointKind,
    checkpoint_of,
    completion_due,
    is_new,
    periodic_spans,
)
from app.core.runtime.entry import Entry
from app.core.runtime.events import Event, checkpoint_event
from app.core.runtime.evidence import span_hash
from app.core.runtime.gist import Gist
from app.core.runtime.records import RecordedEvent
from app.core.runtime.snapshot import RuntimeSnapshot, UsageSection
from app.core.summary.source import recall_id
from app.core.view.compaction import Compaction
from app.errors import StoreError
from app.proxy.chronicle.draft import READ_BYTES
from app.proxy.chronicle.exporting import exported_events
from app.proxy.chronicle.readings import Readings, StoredPath, in_force
from app.proxy.chronicle.rows import Kept, NewId, checkpoint_row, event_rows
from app.proxy.chronicle.runtime import Moment, Past, runtime_of
from app.proxy.chronicle.usages import Usages
from app.proxy.sessions.recorder import Outcome
from app.proxy.subject import Subject
from app.proxy.turn import Shown, Turn
from app.storage.contract import Store

# Of a long history that is met for the first time only the newest spans get checkpoints.
SPANS_AT_ONCE = 4
# Each holds its request until its turn comes; beyond so many the session's next one makes up for it.
MOST_WAITING = 16
_log = structlog.get_logger("palimpsest.checkpoints")


@dataclass(frozen=True, slots=True)
class _Standing:
    """A session as it stands: whose it is, its conversation, its stored path and its past."""

    subject: Subject
    talk: Conversation
    path: StoredPath
    past: Past


class Checkpoints:
    """One for the application."""

    def __init__(
        self, store: Store, readings: Readings, usages: Usages, clock: Callable[[], float], new_id: NewId
    ) -> None:
        self._store = store
        self._readings = readings
        self._usages = usages
        self._clock = clock
        self._new_id = new_id
        # One at a time: they are work beside the turns, and must not crowd them out together.
        self._turn = asyncio.Semaphore(1)
        self._waiting = 0

    async def periodic(self, turn: Turn, shown: Shown, outcome: Outcome) -> Sequence[Gist]:
        """Every span that is due has its checkpoint; that one could not be stored is logged.

        The newest one holds the state of the session. Another answer to the same request makes no
        other span. What the spans came to that have just got theirs, oldest first.
        """
        talk, answer = turn.conversation, outcome.answers[0]
        head = chain_of(talk.head, answer.canonical)
        whole = Conversation(talk.preamble, (*talk.messages, answer), (*talk.chains, head))
        if self._waiting >= MOST_WAITING:
            _log.info("checkpoint_put_off", session=turn.session)
            return ()
        self._waiting += 1
        try:
            async with self._turn:
                stands = await self._standing(turn, whole, "periodic")
                return await self._made(turn, stands, shown.view.compaction)
        except StoreError as error:
            _log.warning("checkpoint_not_stored", error=type(error).__name__, session=turn.session)
            return ()
        finally:
            self._waiting -= 1

    async def _made(self, turn: Turn, stands: _Standing, force: Compaction | None) -> Sequence[Gist]:
        made: list[Gist] = []
        due = periodic_spans(_since(stands, "periodic"))[-SPANS_AT_ONCE:]
        known = {_apart(kept.checkpoint) for kept in stands.past.of("periodic")}
        for place, span in enumerate(due, 1):
            checkpoint = await asyncio.to_thread(checkpoint_of, "periodic", span, self._clock())
            if _apart(checkpoint) in known:
                continue
            is_last = place == len(due)
            kept = self._with_state(stands, checkpoint, force) if is_last else self._kept(turn, checkpoint)
            if await kept is not None:
                made.append(checkpoint.summary)
        return made

    async def completed(self, subject: Subject, marker: str = "") -> str | None:
        """The id of the checkpoint of what was completed, made now or there already.

        None when it is not worth one. `marker` is what whoever completes it says.
        """
        stands = await self._standing(subject, subject.conversation, "completion")
        entries = _since(stands, "completion")
        if not await asyncio.to_thread(completion_due, entries, marker):
            return None
        checkpoint = await asyncio.to_thread(checkpoint_of, "completion", entries, self._clock())
        lasting = [*stands.past.of("periodic"), *stands.past.of("completion")]
        if not is_new(checkpoint, {kept.checkpoint.span_hash for kept in lasting}):
            same = (kept.id for kept in lasting if kept.checkpoint.span_hash == checkpoint.span_hash)
            return next(same, None)
        return await self._with_state(stands, checkpoint, in_force(stands.talk, stands.past))

    async def exported(self, subject: Subject) -> Sequence[RecordedEvent]:
        """The session as an import takes it, with a checkpoint of now that is not stored.

        Empty without messages.
        """
        stands = await self._standing(subject, subject.conversation)
        if not stands.path.entries:
            return ()
        # A checkpoint before a compaction reads no more of a conversation either.
        newest, made = stands.path.after(0, READ_BYTES), stands.past.made(stands.talk)
        async with self._usages.taken(subject.namespace, subject.session) as taken:
            force = in_force(stands.talk, stands.past)
            state = await asyncio.to_thread(self._state, stands, stands.past, force, taken.usage)
        checkpoint = await asyncio.to_thread(checkpoint_of, "completion", newest, self._clock(), state)
        return tuple(exported_events(stands.talk, stands.path.entries, made, checkpoint))

    def _state(
        self, stands: _Standing, past: Past, compaction: Compaction | None, used: UsageSection
    ) -> RuntimeSnapshot:
        """The session's state; slow for long conversations."""
        view = self._readings.view(stands.talk, compaction, stands.subject.model)
        return runtime_of(Moment(stands.talk, stands.path.relayed, view, used), past)

    async def _standing(
        self, subject: Subject, talk: Conversation, kind: CheckpointKind | None = None
    ) -> _Standing:
        """With the path from the newest checkpoint of `kind` on it on; without one, all of it."""
        past = await self._readings.past(subject, talk)
        start = _end_in(talk, past.of(kind)) if kind else 0
        return _Standing(subject, talk, await self._readings.path(subject, talk, start), past)

    async def _with_state(
        self, stands: _Standing, checkpoint: Checkpoint, compaction: Compaction | None
    ) -> str | None:
        """As `_kept`, the session's state in it."""
        subject = stands.subject
        async with self._usages.taken(subject.namespace, subject.session) as taken:
            past = await self._readings.past(subject, stands.talk)
            state = await asyncio.to_thread(self._state, stands, past, compaction, taken.usage)
            whole = msgspec.structs.replace(checkpoint, runtime=state)
            kept = await self._kept(subject, whole, past.told)
            taken.is_stored = kept is not None
            return kept

    async def _kept(
        self, subject: Subject, checkpoint: Checkpoint, before: Sequence[Event] = ()
    ) -> str | None:
        """The id under which it is stored, its event told behind `before`.

        None when its span had one already.
        """
        at = self._clock()
        row = checkpoint_row(checkpoint, at, self._new_id)
        namespace, session = subject.namespace, subject.session
        if not await self._store.add_checkpoint(namespace, session, row):
            return None
        events = event_rows([*before, checkpoint_event(checkpoint)], at, self._new_id)
        try:
            await self._store.add_events(namespace, session, events)
        except StoreError as error:
            # The checkpoint is there; who asked for it is not told otherwise.
            _log.warning("event_not_stored", error=type(error).__name__, session=session)
        return row.id


def periodic_due(turn: Turn, outcome: Outcome) -> bool:
    """True when it is time to look: a multiple of twelve answers lead to this one, it included.

    There are no more exchanges than answers on a path, so that a span that is due is found soon.
    """
    is_one = outcome.state == "done" and len(outcome.answers) == 1
    return is_one and (turn.placement.answers + 1) % EXCHANGES == 0


def _end_in(talk: Conversation, made: Sequence[Kept]) -> int:
    """The index of the newest message at which one of these checkpoints ends; 0 when none is found.

    Where the client's list was assembled anew its older messages bear other names: then none is.
    """
    ends = {kept.checkpoint.span.to_id for kept in made}
    places = range(len(talk.chains) - 1, 0, -1) if ends else ()
    return next((place for place in places if recall_id(talk.chains[place]) in ends), 0)


def _since(stands: _Standing, kind: CheckpointKind) -> Sequence[Entry]:
    """The path's entries after the newest checkpoint of this kind on it."""
    entries = stands.path.entries
    places = {entry.id: place for place, entry in enumerate(entries)}
    ends = (places.get(kept.checkpoint.span.to_id) for kept in stands.past.of(kind))
    return entries[max((end + 1 for end in ends if end is not None), default=0) :]


def _apart(checkpoint: Checkpoint) -> tuple[str, str]:
    """What tells a span from others, its last message apart: the request may have been answered twice."""
    cited = [span for span in checkpoint.evidence if span.id != checkpoint.span.to_id]
    return checkpoint.span.from_id, span_hash(cited)
