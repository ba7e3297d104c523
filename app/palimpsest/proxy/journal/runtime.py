"""The runtime snapshot of a session, from the last stored state and what came since (A35).

Tokens used since the last checkpoint are held in memory: the next checkpoint stores them, and a crash loses
them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import reduce
from weakref import WeakValueDictionary

import msgspec

from palimpsest.core.history.message import Conversation, Message
from palimpsest.core.runtime.checkpoint import CheckpointKind
from palimpsest.core.runtime.events import Event, session_restored
from palimpsest.core.runtime.evidence import ArchivedMessage, exchanges_since
from palimpsest.core.runtime.restore import RESTORABLE, STATES, Restored, StoredRecord, derived_loop, restored
from palimpsest.core.runtime.snapshot import (
    NOTHING,
    CarriedCounters,
    FilesSection,
    LoopSection,
    QueuesSection,
    RecoverySection,
    RuntimeSnapshot,
    ToolingSection,
    UsageSection,
    VerificationSection,
    WorkerSection,
    carried_counters,
    carried_counters_in,
    files_of,
    loop_compacted,
    new_snapshot,
    recovery_after,
    tooling_of,
    transcript_of,
    usage_after,
)
from palimpsest.core.summary.sections import TITLES, block_sections
from palimpsest.core.text.fence import unfenced
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.outcomes import View
from palimpsest.core.view.view import view_of
from palimpsest.core.wire.chat_answers import Usage
from palimpsest.proxy.journal_rows import KeptCheckpoint, kept_of
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.proxy.token_counts import ModelTokens
from palimpsest.proxy.turn import Subject
from palimpsest.storage.compactions import StoredCompaction
from palimpsest.storage.journal import StoredCheckpoint, StoredEvent
from palimpsest.storage.store import Store

# Checkpoints read to find the last state: the newest one on a path is rarely further back.
CHECKPOINTS_READ = 32
# No session has more events of the counted types.
_EVENTS_READ = 10_000
_EVENTS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class StoredPath:
    """The stored messages of a path from index `start` on, oldest first; empty for an unknown path.

    `relayed`: the number of relayed answers on the path.
    """

    entries: tuple[ArchivedMessage, ...]
    relayed: int
    start: int = 0

    def after(self, place: int, most_bytes: int) -> Sequence[ArchivedMessage]:
        """The newest entries, back to the path's index `place` or `most_bytes`; at least one."""
        messages = [entry.message for entry in self.entries]
        return self.entries[newest(messages, place - self.start, most_bytes) :]


def newest(messages: Sequence[Message], place: int, most_bytes: int) -> int:
    """The index at which the newest messages begin: back to `place` or `most_bytes`; at least one."""
    start, size = len(messages), 0
    while start > 0 and (size == 0 or (start > place and size < most_bytes)):
        start -= 1
        size += len(messages[start].raw)
    return start


class Readings:
    """Reads what the runtime snapshot of a session is made from."""

    def __init__(self, store: Store, reader: MessageReader, tokens: ModelTokens) -> None:
        self._store = store
        self._reader = reader
        self._tokens = tokens

    async def path(self, subject: Subject, talk: Conversation, start: int = 0) -> StoredPath:
        """The stored path of `talk` in the subject's session, from index `start` on if that is stored."""
        at = subject.namespace, subject.session
        since = talk.chains[start] if 0 < start < len(talk.chains) else b""
        rows, known = await asyncio.gather(
            self._store.history.messages(*at, talk.head, since),
            self._store.history.known(at[0], [talk.head], at[1]),
        )
        messages = await self._reader.read_stored([row.body for row in rows], subject.model)
        entries = tuple(
            ArchivedMessage(row.chain, message, row.arrival, row.created_at)
            for row, message in zip(rows, messages, strict=True)
        )
        is_found = bool(rows and since) and rows[0].chain == since
        return StoredPath(entries, known[0].answers if known else 0, start if is_found else 0)

    async def past(self, subject: Subject, talk: Conversation | None = None) -> RuntimeHistory:
        """What is stored of the subject's session beside its messages, for its own conversation or `talk`.

        States of other formats are read only if no checkpoint is on that path.
        """
        at = subject.namespace, subject.session
        checkpoints, compactions, events = await asyncio.gather(
            self._store.journal.checkpoints(*at, CHECKPOINTS_READ),
            self._store.compactions.of_session(*at),
            self._store.journal.events(*at, 0, _EVENTS_READ, COUNTED_EVENTS),
        )
        kept, talk = kept_of(checkpoints), talk or subject.conversation
        past = RuntimeHistory(kept, compactions, events, is_damaged=len(kept) < len(checkpoints))
        if past.on_path(talk)[0] is not None:
            return past
        return replace(past, restored=await self._restored(subject, talk, past, checkpoints))

    async def _restored(
        self,
        subject: Subject,
        talk: Conversation,
        past: RuntimeHistory,
        checkpoints: Sequence[StoredCheckpoint],
    ) -> Restored | None:
        """The restored state; further events are read only if a state of ours is missing or has no usage."""
        found = None
        for types in (STATES, RESTORABLE):
            events = await self._events_of(subject, types)
            if events or checkpoints:
                found = await asyncio.to_thread(restored_on, talk, past, checkpoints, events)
            if found is not None and not found.is_upgraded and not found.snapshot.usage.is_zero:
                break
        return found

    async def _events_of(self, subject: Subject, types: Sequence[str]) -> Sequence[StoredEvent]:
        """The session's events of these types, oldest first."""
        found: list[StoredEvent] = []
        after = 0
        while len(found) < _EVENTS_READ:
            page = await self._store.journal.events(
                subject.namespace, subject.session, after, _EVENTS_AT_ONCE, types
            )
            found.extend(page)
            if len(page) < _EVENTS_AT_ONCE:
                break
            after = page[-1].seq
        return found

    def view(self, talk: Conversation, compaction: Compaction | None, model: str) -> View:
        """What the model sees of `talk` with `compaction` in force."""
        return view_of(talk, compaction, self._tokens.counter_of(model).count_text)


# Sessions remembered; the least recently answered are forgotten first.
SESSIONS = 20_000


def added(one: UsageSection, other: UsageSection) -> UsageSection:
    """The sum of both."""
    return UsageSection(
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cached_tokens=one.cached_tokens + other.cached_tokens,
        requests=one.requests + other.requests,
    )


@dataclass(slots=True)
class Taken:
    """Tokens taken for a checkpoint. The caller sets `is_stored` once it is stored."""

    usage: UsageSection
    is_stored: bool = False


class Usages:
    """Tokens used by sessions since their last checkpoints."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, str], UsageSection] = OrderedDict()
        # A lock exists while it is held or waited for.
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    def count(self, namespace: str, session: str, usage: Usage) -> None:
        """Add one answer; one without reported usage does not count."""
        if usage.prompt_tokens is None and usage.completion_tokens is None:
            return
        key = namespace, session
        held = self._held.pop(key, UsageSection())
        self._held[key] = usage_after(
            held, usage.prompt_tokens or 0, usage.completion_tokens or 0, usage.cached_tokens or 0
        )
        if len(self._held) > SESSIONS:
            self._held.popitem(last=False)

    def erased(self, namespace: str, session: str) -> None:
        """Forget an erased session."""
        self._held.pop((namespace, session), None)

    @asynccontextmanager
    async def taken(self, namespace: str, session: str) -> AsyncIterator[Taken]:
        """Take what was counted since the last time; it is put back unless the block sets `is_stored`.

        Exclusive for a session, so that the block can read the stored totals, add what it took and store the
        sum without a lost update.
        """
        key = namespace, session
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            taken = Taken(self._held.pop(key, UsageSection()))
            try:
                yield taken
            finally:
                if taken.usage.requests and not taken.is_stored:
                    self._held[key] = added(self._held.get(key, UsageSection()), taken.usage)


def restored_on(
    talk: Conversation,
    past: RuntimeHistory,
    checkpoints: Sequence[StoredCheckpoint],
    events: Sequence[StoredEvent],
) -> Restored | None:
    """The state restored for this path from everything stored of its session; None without one.

    A state of ours counts if it is of this path; another system's if the session has no state of ours on any
    path. A state derived from events counts if it holds more than what is stored besides them.
    """
    of_session = any(kept.checkpoint.runtime is not None for kept in past.checkpoints)

    def belongs(snapshot: RuntimeSnapshot) -> bool:
        head = snapshot.transcript.head
        return place_of(talk, head) is not None if head else not of_session

    found = restored(_in_order(checkpoints, events), belongs)
    if found is None or found.form != "events_derived":
        return found
    brought = carried_counters(found.snapshot, len(past.compactions), past.recovery)
    is_news = brought.is_something or not found.snapshot.usage.is_zero
    return found if is_news and not of_session else None


def _in_order(checkpoints: Sequence[StoredCheckpoint], events: Sequence[StoredEvent]) -> list[StoredRecord]:
    """Both as one list, oldest first: their numbers come from the same counter."""
    places = [
        (row.arrival, StoredRecord("checkpoint", row.checkpoint.payload, row.checkpoint.created_at))
        for row in checkpoints
    ]
    places += [
        (row.seq, StoredRecord(row.event.type, row.event.payload, row.event.created_at, row.event.id))
        for row in events
    ]
    return [stored for _, stored in sorted(places, key=lambda placed: placed[0])]


COUNTED_EVENTS = (
    "session_restored",
    "compaction_completed",
    "compaction_failed",
    "overflow_recovery_started",
    "overflow_recovery_completed",
)
"""The event types that a snapshot counts."""


@dataclass(frozen=True, slots=True)
class RuntimeHistory:
    """What is stored of a session beside its messages.

    `checkpoints` are newest first, `compactions` and `events` (of COUNTED_EVENTS) oldest first.
    `restored`: a state of another format, if no checkpoint is of this path (A40). `is_damaged`: a checkpoint
    could not be read.
    """

    checkpoints: Sequence[KeptCheckpoint]
    compactions: Sequence[StoredCompaction]
    events: Sequence[StoredEvent]
    restored: Restored | None = None
    is_damaged: bool = False

    def of(self, kind: CheckpointKind) -> list[KeptCheckpoint]:
        """The checkpoints of one kind."""
        return [kept for kept in self.checkpoints if kept.checkpoint.kind == kind]

    def on_path(self, talk: Conversation) -> tuple[RuntimeSnapshot | None, int]:
        """The state furthest along this conversation, and how many of its messages it has counted.

        States of other branches do not count. The newest is not always the furthest: periodic checkpoints are
        made in the background.
        """
        best, counted = None, 0
        for state in (kept.checkpoint.runtime for kept in self.checkpoints):
            place = place_of(talk, state.transcript.head) if state else None
            if place is not None and place >= counted:
                best, counted = state, place + 1
        if best is None and self.restored is not None:
            return self._taken_up(talk, self.restored.snapshot)
        return best, counted

    def _taken_up(self, talk: Conversation, state: RuntimeSnapshot) -> tuple[RuntimeSnapshot, int]:
        """The restored state; if its head is not in `talk`, all messages are counted again."""
        place = place_of(talk, state.transcript.head)
        if place is not None:
            return state, place + 1
        return msgspec.structs.replace(state, tooling=ToolingSection(), files=FilesSection()), 0

    @property
    def restore_events(self) -> tuple[Event, ...]:
        """The event of a restore, if the state is from another format or a checkpoint is damaged."""
        found = self.restored
        if found is None or not (found.is_upgraded or self.is_damaged):
            return ()
        return (session_restored(found, found.event_id, self.carried),)

    def made(self, talk: Conversation) -> list[StoredCompaction]:
        """The compactions of this path that were not undone, oldest first."""
        return [row for row in self.compactions if row.undone_at is None and _is_of(row.compaction, talk)]

    @property
    def usage(self) -> UsageSection:
        """The totals at the newest checkpoint of any branch: they are the session's."""
        states = (kept.checkpoint.runtime for kept in self.checkpoints)
        before = self.restored.snapshot.usage if self.restored else UsageSection()
        return next((state.usage for state in states if state is not None), before)

    @property
    def recovery(self) -> RecoverySection:
        """The overflow recoveries in the stored events."""
        stored = [
            StoredRecord(row.event.type, row.event.payload, row.event.created_at) for row in self.events
        ]
        return derived_loop(stored).recovery

    @property
    def carried(self) -> CarriedCounters:
        """The state brought from another system: as its restore event says, or as restored now."""
        brought = [row.event.payload for row in self.events if row.event.type == "session_restored"]
        if brought or self.restored is None or not self.restored.is_upgraded:
            return carried_counters_in(brought[-1]) if brought else NOTHING
        return carried_counters(self.restored.snapshot, len(self.compactions), self.recovery)


@dataclass(frozen=True, slots=True)
class RuntimeInput:
    """The present: the conversation, the number of relayed answers in it, the view that the model gets.

    `used`: tokens since the newest checkpoint. `summaries`: the number being written.
    """

    conversation: Conversation
    relayed: int
    view: View
    used: UsageSection
    summaries: int = 0


def runtime_of(moment: RuntimeInput, past: RuntimeHistory) -> RuntimeSnapshot:
    """The snapshot now. Messages counted by an earlier snapshot of this path are not read again."""
    talk = moment.conversation
    earlier, counted = past.on_path(talk)
    fresh, made, carried = talk.messages[counted:], past.made(talk), past.carried
    return msgspec.structs.replace(
        new_snapshot(transcript_of(talk, moment.view)),
        tooling=tooling_of(fresh, earlier.tooling if earlier else None),
        files=files_of(fresh, earlier.files if earlier else None),
        loop=_loop(moment, past, carried.loop),
        recovery=recovery_after(carried.recovery, past.recovery),
        queues=QueuesSection(pending={"summary": moment.summaries} if moment.summaries else {}),
        worker=WorkerSection(
            watermark=moment.view.compaction.watermark.hex() if moment.view.compaction else "",
            failures=_failures(past),
        ),
        verification=reduce(_audited, [row.compaction for row in made], carried.verification),
        usage=added(past.usage, moment.used),
    )


def at_work(runtime: RuntimeSnapshot, compaction: Compaction, at: float) -> RuntimeSnapshot:
    """The snapshot while `compaction` is being made, since `at` (UTC seconds)."""
    worker = msgspec.structs.replace(
        runtime.worker, state="running", watermark=compaction.watermark.hex(), started_at=round(at * 1_000)
    )
    return msgspec.structs.replace(runtime, worker=worker)


def compacted(
    runtime: RuntimeSnapshot, talk: Conversation, view: View, compaction: Compaction, at: float
) -> RuntimeSnapshot:
    """The snapshot with `compaction`, made `at` (UTC seconds), in force; `view` is the view under it."""
    return msgspec.structs.replace(
        runtime,
        transcript=transcript_of(talk, view),
        loop=loop_compacted(runtime.loop, compaction, at),
        worker=WorkerSection(watermark=compaction.watermark.hex()),
        verification=_audited(runtime.verification, compaction),
    )


def _loop(moment: RuntimeInput, past: RuntimeHistory, carried: LoopSection) -> LoopSection:
    talk = moment.conversation
    earlier, counted = past.on_path(talk)
    before = earlier.loop.exchanges if earlier and counted else 0
    loop = msgspec.structs.replace(
        carried,
        turns=carried.turns + moment.relayed,
        exchanges=before + exchanges_since(talk.messages, counted),
        last_flush=earlier.loop.last_flush if earlier else None,
    )
    for row in past.made(talk):
        loop = loop_compacted(loop, row.compaction, row.created_at)
    return loop


def _failures(past: RuntimeHistory) -> int:
    """Compactions that failed since the last one that succeeded."""
    ends = [row.event.type for row in past.events if row.event.type.startswith("compaction_")]
    return next((i for i, type_ in enumerate(reversed(ends)) if type_ != "compaction_failed"), len(ends))


def _audited(verification: VerificationSection, compaction: Compaction) -> VerificationSection:
    if compaction.kind != "message_removal":
        return verification
    body = unfenced(compaction.summary)
    # Other styles have sections of their own: those present are those wanted.
    others = sum(line.startswith("#") for line in body.splitlines())
    found = block_sections(body).found
    return VerificationSection(
        audits=verification.audits + 1,
        sections_present=found or others,
        sections_wanted=len(TITLES) if found else others,
    )


def _is_of(compaction: Compaction, talk: Conversation) -> bool:
    """True when the messages that it folds or masks are on this path."""
    named = [compaction.watermark] if compaction.watermark else [mask.chain for mask in compaction.masks]
    return all(talk.position(chain) is not None for chain in named)


def place_of(talk: Conversation, head: str) -> int | None:
    """The index of the message with the chain digest `head` (hex); None when it is not in `talk`."""
    try:
        return talk.position(bytes.fromhex(head)) if head else None
    except ValueError:
        # An imported checkpoint may hold another kind of id.
        return None
