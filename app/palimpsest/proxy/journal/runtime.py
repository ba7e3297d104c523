"""Computes the state of a session, and the content of its checkpoints, when they are asked for (A33 to A39).

They follow from what is stored before a place in the session's order: its messages, compactions and events,
and the tokens of its answers. The instructions are those known now.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from palimpsest.core.history.message import Conversation
from palimpsest.core.runtime.checkpoint import CheckpointPayload, checkpoint_of, periodic_spans
from palimpsest.core.runtime.evidence import TYPES, ArchivedMessage
from palimpsest.core.runtime.restore import RecordedEvent, derived_state
from palimpsest.core.runtime.session_import import COMPACTION, ITEMS, MESSAGE, exported_compaction
from palimpsest.core.runtime.snapshot import (
    BroughtState,
    RuntimeSnapshot,
    UsageSection,
    brought_in,
    runtime_of,
)
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.view import applicable, cut_in, view_of
from palimpsest.proxy.archive import Archive, missing
from palimpsest.proxy.model_facts import ModelTokens
from palimpsest.proxy.turn import ReadBranch
from palimpsest.storage.exchange_log import NEWEST
from palimpsest.storage.history import SessionRow
from palimpsest.storage.journal import CheckpointRow, EventRow
from palimpsest.storage.store import Store

# Content of a checkpoint that is computed from at most so many bytes of the newest messages: it takes a
# microsecond a byte.
READ_BYTES = 256 * 1024
# No session has more events of the counted types, nor more checkpoints at completions that matter.
_EVENTS_READ = 10_000
CHECKPOINTS_READ = 500
_COUNTED = ("session_restored", "flush", "overflow_recovery_started", "overflow_recovery_completed")
_SNAPSHOT = "conversation_snapshot"


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
            if point := _point_in(each):
                part = _up_to(branch, point) if branch else None
                branch = part or await self.branch(
                    namespace, await self.archive.session(namespace, session), point
                )
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


def _point_in(event: EventRow) -> bytes:
    """The point that a snapshot's event names; b"" for any other event. Imported ones hold their state."""
    if event.type != _SNAPSHOT:
        return b""
    try:
        return bytes.fromhex(_POINTS.decode(event.payload).point)
    except (ValueError, RecursionError):
        return b""


def _up_to(branch: ReadBranch, point: bytes) -> ReadBranch | None:
    """The branch up to a point on its path."""
    talk = branch.conversation
    if point not in talk.names:
        return None
    end = talk.names.index(point) + 1
    part = Conversation(talk.preamble, talk.messages[:end], talk.chains[:end], talk.names[:end])
    return replace(branch, conversation=part, rows=branch.rows[:end])


def is_of(compaction: Compaction, talk: Conversation) -> bool:
    """True when the messages that it folds or masks are on this path."""
    named = [compaction.watermark] if compaction.watermark else [mask.chain for mask in compaction.masks]
    return all(talk.position(chain) is not None for chain in named)
