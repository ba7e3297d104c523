"""The runtime snapshot of a session, from what was known before and what came since (A35).

Pure: rows and times come in. Knows nothing of how they were read nor of what is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import msgspec

from app.core.history.conversation import Conversation
from app.core.runtime.carried import NOTHING, Carried, carried_by, carried_in, recovery_after
from app.core.runtime.checkpoint import CheckpointKind
from app.core.runtime.entry import exchanges_since
from app.core.runtime.events import Event, session_restored
from app.core.runtime.foreign import Stored, derived_loop
from app.core.runtime.restore import Restored
from app.core.runtime.snapshot import (
    FilesSection,
    LoopSection,
    QueuesSection,
    RecoverySection,
    RuntimeSnapshot,
    ToolingSection,
    UsageSection,
    VerificationSection,
    WorkerSection,
    new_snapshot,
)
from app.core.runtime.tallies import files_of, loop_compacted, tooling_of, transcript_of
from app.core.summary.sections import TITLES, block_sections
from app.core.text.fence import unfenced
from app.core.view.compaction import Compaction
from app.core.view.outcomes import View
from app.proxy.chronicle.rows import Kept
from app.proxy.chronicle.usages import added
from app.storage.contract import StoredCompaction
from app.storage.journal import StoredEvent

TOLD = (
    "session_restored",
    "compaction_completed",
    "compaction_failed",
    "overflow_recovery_started",
    "overflow_recovery_completed",
)
"""The types of events that a snapshot counts."""


@dataclass(frozen=True, slots=True)
class Past:
    """What is stored of a session so far: its newest checkpoints first, its events of `TOLD` oldest first.

    `restored` is the state of another form where no checkpoint is of this path (A40); `is_damaged`: a
    checkpoint could not be read.
    """

    checkpoints: Sequence[Kept]
    compactions: Sequence[StoredCompaction]
    events: Sequence[StoredEvent]
    restored: Restored | None = None
    is_damaged: bool = False

    def of(self, kind: CheckpointKind) -> list[Kept]:
        """The checkpoints of one kind."""
        return [kept for kept in self.checkpoints if kept.checkpoint.kind == kind]

    def on_path(self, talk: Conversation) -> tuple[RuntimeSnapshot | None, int]:
        """The state that is furthest along this conversation, and how many of its messages it has counted.

        Other branches have their own. One made beside the turns may be stored after one that knows more.
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
        """Which messages a state without a place here has counted nobody knows: all are counted again."""
        place = place_of(talk, state.transcript.head)
        if place is not None:
            return state, place + 1
        return msgspec.structs.replace(state, tooling=ToolingSection(), files=FilesSection()), 0

    @property
    def told(self) -> tuple[Event, ...]:
        """The event of a restoring, where a session is taken up from something else than it left."""
        found = self.restored
        if found is None or not (found.is_upgraded or self.is_damaged):
            return ()
        return (session_restored(found, found.event_id, self.carried),)

    def made(self, talk: Conversation) -> list[StoredCompaction]:
        """The compactions that count on this path, oldest first."""
        return [row for row in self.compactions if row.undone_at is None and _is_of(row.compaction, talk)]

    @property
    def usage(self) -> UsageSection:
        """The totals at the newest checkpoint, whatever branch it is of: the session pays for all."""
        states = (kept.checkpoint.runtime for kept in self.checkpoints)
        before = self.restored.snapshot.usage if self.restored else UsageSection()
        return next((state.usage for state in states if state is not None), before)

    @property
    def recovery(self) -> RecoverySection:
        """What the stored events tell of overflows."""
        stored = [Stored(row.event.type, row.event.payload, row.event.created_at) for row in self.events]
        return derived_loop(stored).recovery

    @property
    def carried(self) -> Carried:
        """What the session brought from elsewhere: as it was told, or as it is found now."""
        told = [row.event.payload for row in self.events if row.event.type == "session_restored"]
        if told or self.restored is None or not self.restored.is_upgraded:
            return carried_in(told[-1]) if told else NOTHING
        return carried_by(self.restored.snapshot, len(self.compactions), self.recovery)


@dataclass(frozen=True, slots=True)
class Moment:
    """What is true now: the conversation, how many answers of ours are in it, what the model sees of it.

    `used`: tokens since the newest checkpoint. `summaries`: those being written.
    """

    conversation: Conversation
    relayed: int
    view: View
    used: UsageSection
    summaries: int = 0


def runtime_of(moment: Moment, past: Past) -> RuntimeSnapshot:
    """The state now. Of messages that an earlier snapshot on this path has counted none is read again."""
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


def _loop(moment: Moment, past: Past, carried: LoopSection) -> LoopSection:
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


def place_of(talk: Conversation, head: str) -> int | None:
    """Where the message that `head` (hex) names stands in the conversation; None when it does not."""
    try:
        return talk.position(bytes.fromhex(head)) if head else None
    except ValueError:
        # A checkpoint that was imported names something else.
        return None
