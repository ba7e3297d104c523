"""What is written of a session beside its messages: checkpoints, events, memories, the daily log.

A failed write is logged and does not fail the turn, except for the checkpoint before a compaction: it must be
durable before anything is removed (A36). A checkpoint is a place and a time; what it holds is computed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256

import structlog

from palimpsest.core.history.append import has_only_new_messages
from palimpsest.core.history.message import Message
from palimpsest.core.runtime.checkpoint import (
    EXCHANGES,
    CheckpointKind,
    completion_due,
    flush_due,
    flush_of,
    periodic_spans,
)
from palimpsest.core.runtime.events import Event, compaction_made, compaction_started
from palimpsest.core.runtime.restore import derived_state
from palimpsest.core.text.fence import sendable, unfenced
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.view import cut_in
from palimpsest.proxy.compaction_context import CompactionContext
from palimpsest.proxy.jobs import Jobs, logged
from palimpsest.proxy.journal.daily_log import DailyLog
from palimpsest.proxy.journal.runtime import CHECKPOINTS_READ, READ_BYTES, recorded, since_completion
from palimpsest.proxy.journal_rows import NewId, event_rows
from palimpsest.proxy.turn import Outcome, Subject, Turn
from palimpsest.storage.compactions import JournalEntries
from palimpsest.storage.journal import CheckpointRow, EventRow, MemoryRow
from palimpsest.storage.store import Store

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
        unfolded, tokens = await context.done(_unfolded)
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


def _unfolded(context: CompactionContext) -> tuple[list[Message], int]:
    """The messages that no summary covers, newest first, and the tokens of the whole path."""
    talk, size, found = context.conversation, 0, []
    for place in range(len(talk.messages) - 1, cut_in(context.current, talk) - 1, -1):
        message = talk.messages[place]
        if not message.is_instruction and talk.chains[place] not in context.pins and size < READ_BYTES:
            found.append(message)
        size += len(message.raw)
    return found, sum(message.tokens for message in talk.messages)
