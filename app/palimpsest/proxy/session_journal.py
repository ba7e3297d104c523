"""What is written of a session beside its messages, its state and checkpoints, and imports of sessions.

Checkpoints, events and memories are written, and the daily log. A failed write is logged and does not fail
the turn, except for the checkpoint before a compaction: it must be durable before anything is removed (A36).

A checkpoint is a place and a time. The state of a session, and what its checkpoints hold (A33 to A39), follow
from what is stored before a place in the session's order: its messages, compactions and events, and the
tokens of its answers. The instructions are those known now.

Of imports (A40, A41) `palimpsest.core.runtime` reads the records; this module stores them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256

import msgspec
import structlog

from palimpsest.core.history.append import has_only_new_messages
from palimpsest.core.history.message import Conversation, Message, conversation_of, seed_of
from palimpsest.core.recall.rounds.hidden import HiddenRounds
from palimpsest.core.runtime.checkpoint import (
    EXCHANGES,
    CheckpointKind,
    CheckpointPayload,
    checkpoint_of,
    completion_due,
    flush_due,
    flush_of,
    periodic_spans,
)
from palimpsest.core.runtime.events import Event, compaction_made, compaction_started, session_restored
from palimpsest.core.runtime.evidence import TYPES, ArchivedMessage
from palimpsest.core.runtime.restore import RecordedEvent, Restored, derived_state
from palimpsest.core.runtime.session_import import (
    COMPACTION,
    HIDDEN,
    ITEMS,
    MESSAGE,
    Imported,
    ImportedRecord,
    exported_compaction,
    imported_compaction,
    imported_of,
    record_of,
)
from palimpsest.core.runtime.snapshot import (
    BroughtState,
    RuntimeSnapshot,
    UsageSection,
    brought_in,
    runtime_of,
)
from palimpsest.core.text.fence import sendable, unfenced
from palimpsest.core.view.compaction import Compaction, context_id
from palimpsest.core.view.view import applicable, cut_in, view_of
from palimpsest.core.wire.json_text import encoded as encoded_json
from palimpsest.errors import BodyTooLarge, Conflict, NameTaken, StoreError
from palimpsest.proxy.access import UnprovenNamespaces
from palimpsest.proxy.archive import Archive, missing
from palimpsest.proxy.compaction_context import CompactionContext
from palimpsest.proxy.daily_log import DailyLog
from palimpsest.proxy.jobs import Jobs, logged, offload
from palimpsest.proxy.journal_rows import NewId, event_rows
from palimpsest.proxy.model_facts import ModelTokens
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.proxy.sessions.recorder import stored_message
from palimpsest.proxy.sessions.resolver import preamble_digest
from palimpsest.proxy.sessions.tombstones import Tombstones
from palimpsest.proxy.turn import Outcome, ReadBranch, Subject, Turn, weight_of
from palimpsest.settings.serving import Limits
from palimpsest.storage.exchange_log import NEWEST
from palimpsest.storage.exchange_units import OpenExchange
from palimpsest.storage.history import SessionRow
from palimpsest.storage.journal import CheckpointRow, DatedCompaction, EventRow, JournalEntries, MemoryRow
from palimpsest.storage.store import Store

# Content of a checkpoint that is computed from at most so many bytes of the newest messages: it takes a
# microsecond a byte.
READ_BYTES = 256 * 1024
# No session has more events of the counted types, nor more checkpoints at completions that matter.
_EVENTS_READ = 10_000
CHECKPOINTS_READ = 500
_COUNTED = ("session_restored", "flush", "overflow_recovery_started", "overflow_recovery_completed")


@dataclass(frozen=True, slots=True)
class RuntimeReader:
    """Computes states and checkpoints of sessions; nothing of them is stored."""

    store: Store
    archive: Archive
    tokens: ModelTokens
    clock: Callable[[], float] = time.time

    async def branch(self, namespace: str, row: SessionRow, point: bytes) -> ReadBranch | None:
        """The session's messages up to `point`, a chain; None when it has none there."""
        found = await self.archive.branch(await self.archive.up_to(namespace, row, point), ())
        return found if found.rows else None

    async def state(
        self, branch: ReadBranch, at: float, before: int = NEWEST
    ) -> tuple[RuntimeSnapshot, Compaction | None]:
        """The state at the end of `branch`, with the compaction in force, as it was `at` (UTC seconds).

        What the session got as number `before` of its order, or later, does not count.
        """
        where = branch.namespace, branch.session
        stored, events, tokens = await asyncio.gather(
            self.store.compactions.of_session(*where),
            self.store.journal.events(*where, 0, _EVENTS_READ, _COUNTED),
            self.store.exchange_log.tokens_until(*where, at),
        )
        made = [
            each
            for each in stored
            if each.arrival < before and (each.undone_at is None or each.undone_at > at)
        ]
        earlier = [each for each in events if each.seq < before]
        restored = next((each for each in reversed(earlier) if each.type == "session_restored"), None)
        start = restored.seq if restored else 0
        since = derived_state([recorded(each) for each in earlier if each.seq > start])
        used = UsageSection(
            input_tokens=tokens[0], output_tokens=tokens[1], cached_tokens=tokens[2], requests=tokens[3]
        )
        talk = branch.conversation

        def computed() -> tuple[RuntimeSnapshot, Compaction | None]:
            force = applicable([each.compaction for each in made], talk)
            own = [
                (each.compaction, each.created_at)
                for each in made
                if each.arrival > start and is_of(each.compaction, talk)
            ]
            view = view_of(talk, force, self.tokens.counter_of(branch.model).count_text)
            relayed = sum(row.relayed for row in branch.rows)
            brought = brought_in(restored.payload) if restored else BroughtState()
            return runtime_of(
                talk, view, relayed, own, msgspec.structs.replace(since, usage=used), brought
            ), force

        return await asyncio.to_thread(computed)

    async def checkpoint(self, namespace: str, row: SessionRow, kept: CheckpointRow) -> CheckpointPayload:
        """The content of a checkpoint of the session; NotFound when its messages are gone."""
        branch = await self.branch(namespace, row, kept.point)
        if branch is None:
            raise missing()
        runtime, force = await self.state(branch, kept.created_at, kept.arrival)
        entries, talk = entries_of(branch), branch.conversation
        match kept.kind:
            case "pre_compaction":
                # The newest messages are always included: the checkpoint shows the current work, not only
                # what is folded.
                start = newest_from(entries, cut_in(force, talk))
            case "periodic":
                spans = periodic_spans(talk.messages)
                start = spans[-1].start if spans else 0
            case "completion":
                rows = await self.store.journal.checkpoints(namespace, row.id, CHECKPOINTS_READ, kept.arrival)
                start = since_completion(rows, talk)
        return await asyncio.to_thread(checkpoint_of, kept.kind, entries[start:], kept.created_at, runtime)

    async def exported(self, branch: ReadBranch) -> list[RecordedEvent]:
        """The branch as events for an import; empty without messages.

        Its instructions, messages and compactions, and last a checkpoint of now.
        """
        entries, talk, now = entries_of(branch), branch.conversation, self.clock()
        if not entries:
            return []
        runtime, _ = await self.state(branch, now)
        newest = entries[newest_from(entries, 0) :]
        checkpoint = await asyncio.to_thread(checkpoint_of, "completion", newest, now, runtime)
        said = [("", message, entries[0].at) for message in talk.preamble]
        said += [(entry.id, entry.message, entry.at) for entry in entries]
        events = []
        for ident, message, at in said:
            # As stored, byte for byte: a chat message, or the items of an answer.
            key = ITEMS if message.raw.startswith(b"[") else "message"
            payload = b'{"%s":%s}' % (key.encode(), message.raw)
            events.append(RecordedEvent(ident, TYPES.get(message.role, MESSAGE), payload, at))
        for row in await self.store.compactions.of_session(branch.namespace, branch.session):
            if row.undone_at is None and is_of(row.compaction, talk):
                record = exported_compaction(row.compaction, talk)
                if record is not None:
                    events.append(RecordedEvent(row.compaction.id, COMPACTION, record, row.created_at))
        payload, at = msgspec.json.encode(checkpoint), checkpoint.created_at / 1_000
        return [*events, RecordedEvent(checkpoint.span_hash[:32], "checkpoint", payload, at)]

    async def shown(self, namespace: str, session: str, events: Sequence[EventRow]) -> list[EventRow]:
        """The events, with the states of those that name the point of one (A34)."""
        found: list[EventRow] = []
        branch: ReadBranch | None = None
        # Newest first: the points of earlier ones are mostly on the path of later ones.
        for each in reversed(events):
            point = b""
            if each.type == "conversation_snapshot":
                # Imported ones hold their state.
                with suppress(ValueError, RecursionError):
                    point = bytes.fromhex(_POINTS.decode(each.payload).point)
            if point and branch and point in (talk := branch.conversation).names:
                end = talk.names.index(point) + 1
                part = Conversation(talk.preamble, talk.messages[:end], talk.chains[:end], talk.names[:end])
                branch = replace(branch, conversation=part, rows=branch.rows[:end])
            elif point:
                row = await self.archive.session(namespace, session)
                branch = await self.branch(namespace, row, point)
            if point and branch is not None:
                state, _ = await self.state(branch, each.created_at, each.seq)
                found.append(replace(each, payload=msgspec.json.encode(state)))
            else:
                found.append(each)
        return found[::-1]


def recorded(event: EventRow) -> RecordedEvent:
    """A stored event, for counting."""
    return RecordedEvent(event.id, event.type, event.payload, event.created_at)


def entries_of(branch: ReadBranch) -> list[ArchivedMessage]:
    """The messages of the branch with their places and times."""
    return [
        ArchivedMessage(row.chain, message, row.arrival, row.created_at)
        for row, message in zip(branch.rows, branch.conversation.messages, strict=True)
    ]


def newest_from(entries: Sequence[ArchivedMessage], place: int) -> int:
    """The index at which the newest entries begin: back to `place` or `READ_BYTES`; at least one."""
    start, size = len(entries), 0
    while start > 0 and (size == 0 or (start > place and size < READ_BYTES)):
        start -= 1
        size += len(entries[start].message.raw)
    return start


def since_completion(rows: Sequence[CheckpointRow], talk: Conversation) -> int:
    """The index in `talk` after the newest of these checkpoints at a completion; 0 without one."""
    ends = {row.point for row in rows if row.kind == "completion"}
    pairs = list(zip(talk.names, talk.chains, strict=True))
    return next(
        (place + 1 for place in range(len(pairs) - 1, -1, -1) if not ends.isdisjoint(pairs[place])), 0
    )


class _Point(msgspec.Struct, forbid_unknown_fields=True):
    """What is stored of a snapshot's event: the chain, in hexadecimal, of the message at which it was."""

    point: str


_POINTS = msgspec.json.Decoder(_Point)


def is_of(compaction: Compaction, talk: Conversation) -> bool:
    """True when the messages that it folds or masks are on this path."""
    named = [compaction.watermark] if compaction.watermark else [mask.chain for mask in compaction.masks]
    return all(talk.position(chain) is not None for chain in named)


# Called with the messages of a span of a turn's conversation that has a new checkpoint.
Remembers = Callable[[Turn, Sequence[Message]], Awaitable[None]]
# Of a long history seen for the first time only the newest spans get checkpoints.
_SPANS_AT_ONCE = 4
# The newest flush of a session is among its newest events of that type.
_FLUSHES_READ = 1_000
_log = structlog.get_logger("palimpsest.journal")


@dataclass(frozen=True, slots=True)
class SessionJournal:
    """Writes checkpoints, events and memories, and the daily log; `clock` gives UTC seconds."""

    store: Store
    jobs: Jobs
    clock: Callable[[], float]
    new_id: NewId
    daily_log: DailyLog | None

    async def before(
        self, context: CompactionContext, compaction: Compaction
    ) -> tuple[JournalEntries, float]:
        """Store what must be durable before the compaction.

        When messages are removed: a checkpoint (A36), and a flush if little room is left (A43). StoreError
        when it cannot be stored: then the compaction must not be stored. The rest is returned for its
        transaction (B13), with the time (UTC seconds).
        """
        turn, at, talk, current = context.turn, self.clock(), context.conversation, context.current
        point, removes = turn.conversation.head, compaction.kind == "message_removal"
        started = compaction_started(compaction)
        made = compaction_made(
            compaction, current, talk, memory := self.new_id(), context.budget.window.tokens
        )
        summary = sendable(unfenced(compaction.summary)).encode()
        if removes:
            flush, note = await self._flush(context, at)
            once = point + (current.id if current else "").encode()
            checkpoint, event = _checkpoint("pre_compaction", point, once, at)
            beside = [event, *event_rows([*flush, started], at, self.new_id)]
            notes = [MemoryRow(self.new_id(), "flush", note, None, at)] if note else []
            await self.store.journal.add_checkpoint(turn.namespace, turn.session, checkpoint, beside, notes)
        else:
            made = [started, *made]
        snapshot = Event("conversation_snapshot", {"point": point.hex()})
        also = JournalEntries(
            [MemoryRow(memory, "summary", summary, compaction.id, at)] if removes else [],
            event_rows([*made, snapshot], at, self.new_id),
        )
        return also, at

    async def _flush(self, context: CompactionContext, at: float) -> tuple[Sequence[Event], bytes]:
        """The event of a flush, and its note (A43); nothing when none is due."""
        budget = context.budget
        shown = await context.done(CompactionContext.under, context.current)
        slack = budget.window_tokens - budget.output_tokens - shown.tokens
        talk, unfolded = context.conversation, list[Message]()

        def read() -> int:
            """The messages that no summary covers, newest first, and the tokens of the whole path."""
            size = 0
            for place in range(len(talk.messages) - 1, cut_in(context.current, talk) - 1, -1):
                message, is_pinned = talk.messages[place], talk.chains[place] in context.pins
                if not message.is_instruction and not is_pinned and size < READ_BYTES:
                    unfolded.append(message)
                size += len(message.raw)
            return sum(message.tokens for message in talk.messages)

        tokens = await offload(weight_of(context.turn), read)
        # As the event states it.
        path_tokens = budget.for_model(tokens)
        if not flush_due(slack, len(unfolded), at, path_tokens, None):
            return (), b""
        where = context.turn.namespace, context.turn.session
        told = await self.store.journal.events(*where, 0, _FLUSHES_READ, ["flush"])
        last = derived_state([recorded(each) for each in told]).loop.last_flush
        before = (last.at / 1_000, last.path_tokens) if last else None
        if not flush_due(slack, len(unfolded), at, path_tokens, before):
            return (), b""
        note = await asyncio.to_thread(flush_of, unfolded[::-1], context.count_text)
        sizes = {
            "tokens": budget.for_model(context.count_text(note)),
            "slackTokens": budget.for_model(slack),
            "pathTokens": path_tokens,
        }
        return [Event("flush", {"text": note, **sizes})] if note else (), sendable(note).encode()

    def adopted(self, subject: Subject, compaction: Compaction, at: float) -> None:
        """The compaction is in force: write its summary to the daily log (A30), in the background."""
        if self.daily_log is not None and compaction.kind == "message_removal":
            self.jobs.start(self.daily_log.write(subject.namespace, subject.session, compaction, at))

    def answered(self, turn: Turn, outcome: Outcome, remembers: Remembers) -> None:
        """An answer is stored: if due, store a periodic checkpoint in the background (A37).

        A path has no more exchanges than answers: a span is looked for at every twelfth answer on it.
        """
        is_one = outcome.state == "done" and len(outcome.answers) == 1
        if is_one and (turn.placement.answers + 1) % EXCHANGES == 0:
            self.jobs.start(self._periodic(turn, outcome.answers[0], remembers))

    async def _periodic(self, turn: Turn, answer: Message, remembers: Remembers) -> None:
        where, talk = (turn.namespace, turn.session), turn.conversation.extended([answer])
        with logged(_log, "checkpoint_not_stored", session=turn.session):
            path = [each.chain for each in await self.store.history.path(*where, talk.head)]
            rows = await self.store.journal.checkpoints(*where, CHECKPOINTS_READ)
            known = {row.point for row in rows if row.kind == "periodic"}
            for span in periodic_spans(talk.messages)[-_SPANS_AT_ONCE:]:
                if len(path) != len(talk.messages) or path[span.stop - 1] in known:
                    continue
                # A retried answer to the same question makes no new span.
                question = path[span.stop - 2]
                row, event = _checkpoint("periodic", path[span.stop - 1], question, self.clock())
                if await self.store.journal.add_checkpoint(*where, row, [event]):
                    await remembers(turn, talk.messages[span.start : span.stop])

    async def completed(self, subject: Subject, marker: str = "") -> str | None:
        """The session was declared complete (A38): store a checkpoint; its id.

        None when nothing was decided or produced since the last one. `marker` is the text given with it.
        StoreError.
        """
        where, talk = (subject.namespace, subject.session), subject.conversation
        rows = await self.store.journal.checkpoints(*where, CHECKPOINTS_READ)
        start = since_completion(rows, talk)
        if not await asyncio.to_thread(completion_due, talk.messages[start:], marker):
            return None
        row, event = _checkpoint("completion", talk.head, talk.head, self.clock())
        await self.store.journal.add_checkpoint(*where, row, [event])
        return row.id

    async def failed(self, subject: Subject, reason: str, trigger: str, watermark: bytes = b"") -> None:
        """A compaction failed, and history is unchanged; `reason` is a stable word without content."""
        payload = {"reason": reason, "trigger": trigger, "watermark": watermark.hex()}
        await self.tell(subject, Event("compaction_failed", payload))

    def placed(self, turn: Turn) -> None:
        """Write, in the background, an event if the client's list does not continue what is stored.

        Either the client dropped or changed what it had sent; or new messages alone under a session's name
        were not appended to it, which is reported once.
        """
        if turn.placement.rebase is not None:
            said = len(turn.conversation.messages)
            changed = {"messages": said, "kept": said - len(turn.placement.new)}
            self.jobs.start(self.tell(turn, Event("client_changed_prefix", changed)))
        if turn.is_apart and has_only_new_messages((*turn.instructions, *turn.conversation.messages)):
            # Under a fixed id, so that the store keeps the first alone.
            event = Event("session_not_continued", {"messages": len(turn.conversation.messages)})
            self.jobs.start(self.tell(turn, event, new_id=lambda: event.type))

    async def tell(self, subject: Subject, event: Event, new_id: NewId | None = None) -> None:
        """Store the event; a store error is logged."""
        rows = event_rows([event], self.clock(), new_id or self.new_id)
        with logged(_log, "event_not_stored", session=subject.session):
            await self.store.journal.add_events(subject.namespace, subject.session, rows)


def _checkpoint(kind: CheckpointKind, point: bytes, once: bytes, at: float) -> tuple[CheckpointRow, EventRow]:
    """The checkpoint at `point`, and its event; there is one alone of this kind for each `once`."""
    ident = sha256(kind.encode() + once).hexdigest()[:32]
    (event,) = event_rows([Event("checkpoint", {"checkpointId": ident, "kind": kind})], at, lambda: ident)
    return CheckpointRow(ident, kind, point, at), event


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
        brought = await asyncio.to_thread(_brought_by, imported.restored, talk, len(made))
        restored = session_restored(imported.restored, len(talk.messages), brought)
        snapshot = Event("conversation_snapshot", {"point": talk.head.hex()})
        # The imported events, then that of the restore, and a snapshot.
        events = [
            EventRow(each.id or self.new_id(), each.type, each.payload, each.at) for each in imported.events
        ]
        events += await asyncio.to_thread(event_rows, [restored, snapshot], now, self.new_id)
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
