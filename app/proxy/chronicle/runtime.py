"""The runtime snapshot of a session, from what was known before and what came since (A35).

Pure: rows and times come in. Knows nothing of how they were read nor of what is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import msgspec

from app.core.history.conversation import Conversation
from app.core.runtime.checkpoint import CheckpointKind
from app.core.runtime.entry import Entry, exchange_ends
from app.core.runtime.foreign import Stored, derived_loop
from app.core.runtime.snapshot import (
    LoopSection,
    QueuesSection,
    RecoverySection,
    RuntimeSnapshot,
    UsageSection,
    VerificationSection,
    WorkerSection,
    new_snapshot,
)
from app.core.runtime.tallies import files_of, loop_compacted, tooling_of, transcript_of
from app.core.summary.fence import unfenced
from app.core.summary.sections import TITLES, block_sections
from app.core.view.compaction import Compaction
from app.core.view.outcomes import View
from app.proxy.chronicle.rows import Kept
from app.proxy.chronicle.usages import added
from app.storage.contract import StoredCompaction
from app.storage.journal import StoredEvent

TOLD = (
    "compaction_completed",
    "compaction_failed",
    "overflow_recovery_started",
    "overflow_recovery_completed",
)
"""The types of events that a snapshot counts."""


@dataclass(frozen=True, slots=True)
class Past:
    """What is stored of a session so far: its newest checkpoints first, its events of `TOLD` oldest first."""

    checkpoints: Sequence[Kept]
    compactions: Sequence[StoredCompaction]
    events: Sequence[StoredEvent]

    def of(self, kind: CheckpointKind) -> list[Kept]:
        """The checkpoints of one kind."""
        return [kept for kept in self.checkpoints if kept.checkpoint.kind == kind]

    def on_path(self, talk: Conversation) -> tuple[RuntimeSnapshot | None, int]:
        """The state that is furthest along this conversation, and how many of its messages it has counted.

        Other branches have their own. One made beside the turns may be stored after one that knows more.
        """
        best, counted = None, 0
        for state in (kept.checkpoint.runtime for kept in self.checkpoints):
            place = _place(talk, state.transcript.head) if state else None
            if place is not None and place >= counted:
                best, counted = state, place + 1
        return best, counted

    def made(self, talk: Conversation) -> list[StoredCompaction]:
        """The compactions that count on this path, oldest first."""
        return [row for row in self.compactions if row.undone_at is None and _is_of(row.compaction, talk)]

    @property
    def usage(self) -> UsageSection:
        """The totals at the newest checkpoint, whatever branch it is of: the session pays for all."""
        states = (kept.checkpoint.runtime for kept in self.checkpoints)
        return next((state.usage for state in states if state is not None), UsageSection())


@dataclass(frozen=True, slots=True)
class Moment:
    """What is true now: the conversation, its stored path, what the model sees of it.

    `used`: tokens since the newest checkpoint. `summaries`: those being written.
    """

    conversation: Conversation
    entries: Sequence[Entry]
    relayed: int
    view: View
    used: UsageSection
    summaries: int = 0


def runtime_of(moment: Moment, past: Past) -> RuntimeSnapshot:
    """The state now. Of messages that an earlier snapshot on this path has counted none is read again."""
    talk = moment.conversation
    earlier, counted = past.on_path(talk)
    fresh, made = talk.messages[counted:], past.made(talk)
    return msgspec.structs.replace(
        new_snapshot(transcript_of(talk, moment.view)),
        tooling=tooling_of(fresh, earlier.tooling if earlier else None),
        files=files_of(fresh, earlier.files if earlier else None),
        loop=_loop(moment, made, earlier),
        recovery=_recovery(past),
        queues=QueuesSection(pending={"summary": moment.summaries} if moment.summaries else {}),
        worker=WorkerSection(
            watermark=moment.view.compaction.watermark.hex() if moment.view.compaction else "",
            failures=_failures(past),
        ),
        verification=reduce(_audited, [row.compaction for row in made], VerificationSection()),
        usage=added(past.usage, moment.used),
    )


def at_work(runtime: RuntimeSnapshot, compaction: Compaction, at: float) -> RuntimeSnapshot:
    """The state while `compaction` is being made, from `at` (UTC seconds) on."""
    worker = msgspec.structs.replace(
        runtime.worker, state="running", watermark=compaction.watermark.hex(), started_at=round(at * 1_000)
    )
    return msgspec.structs.replace(runtime, worker=worker)


def compacted(
    runtime: RuntimeSnapshot, talk: Conversation, view: View, compaction: Compaction, at: float
) -> RuntimeSnapshot:
    """The state once `compaction`, made `at` (UTC seconds), is in force and gives `view`."""
    return msgspec.structs.replace(
        runtime,
        transcript=transcript_of(talk, view),
        loop=loop_compacted(runtime.loop, compaction, at),
        worker=WorkerSection(watermark=compaction.watermark.hex()),
        verification=_audited(runtime.verification, compaction),
    )


def _loop(moment: Moment, made: Sequence[StoredCompaction], earlier: RuntimeSnapshot | None) -> LoopSection:
    loop = LoopSection(
        turns=moment.relayed,
        exchanges=len(exchange_ends(moment.entries)),
        last_flush=earlier.loop.last_flush if earlier else None,
    )
    for row in made:
        loop = loop_compacted(loop, row.compaction, row.created_at)
    return loop


def _recovery(past: Past) -> RecoverySection:
    stored = [Stored(row.event.type, row.event.payload, row.event.created_at) for row in past.events]
    return derived_loop(stored).recovery


def _failures(past: Past) -> int:
    """Compactions that came to nothing since the last one that did not."""
    ends = [row.event.type for row in past.events if row.event.type.startswith("compaction_")]
    return next((i for i, type_ in enumerate(reversed(ends)) if type_ != "compaction_failed"), len(ends))


def _audited(verification: VerificationSection, compaction: Compaction) -> VerificationSection:
    if compaction.kind != "message_removal":
        return verification
    body = unfenced(compaction.summary)
    # Other styles than the handoff have sections of their own: those that are there are those wanted.
    others = sum(line.startswith("#") for line in body.splitlines())
    found = block_sections(body).found
    return VerificationSection(
        audits=verification.audits + 1,
        sections_present=found or others,
        sections_wanted=len(TITLES) if found else others,
    )


def _is_of(compaction: Compaction, talk: Conversation) -> bool:
    """True when what it folds or masks is on this path."""
    named = [compaction.watermark] if compaction.watermark else [mask.chain for mask in compaction.masks]
    return all(talk.position(chain) is not None for chain in named)


def _place(talk: Conversation, head: str) -> int | None:
    try:
        return talk.position(bytes.fromhex(head)) if head else None
    except ValueError:
        # A checkpoint that was imported names something else.
        return None
