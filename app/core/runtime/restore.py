"""What a session is restored from: one table of decoders in order of precedence, used by import too (A40).

A payload that cannot be read, or is not of the form, falls to the next. Whatever it was, what comes
out is a `session_runtime_v2`, so that the next checkpoint is one (A41). Pure: rows come in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from app.core.runtime.checkpoint import Checkpoint
from app.core.runtime.foreign import (
    MESSAGE_ROLES,
    USAGE_TYPES,
    Stored,
    counted_usage,
    derived_loop,
    messages_in,
)
from app.core.runtime.snapshot import SCHEMA as SNAPSHOT
from app.core.runtime.snapshot import (
    RuntimeSnapshot,
    TranscriptSection,
    UsageSection,
    new_snapshot,
    snapshot_of,
)

RestoredForm = Literal[
    "checkpoint_v2", "snapshot_v2", "checkpoint_legacy", "snapshot_legacy", "events_derived"
]

CHECKPOINT_TYPES = frozenset({"checkpoint", "conversation_checkpoint", "session_checkpoint"})
SNAPSHOT_TYPES = frozenset({"conversation_snapshot"})
# Types of events that may hold a state, and all that a state may be read from or counted from.
STATES = tuple(sorted(CHECKPOINT_TYPES | SNAPSHOT_TYPES))
RESTORABLE = (
    *sorted(CHECKPOINT_TYPES | SNAPSHOT_TYPES | USAGE_TYPES | MESSAGE_ROLES.keys()),
    *("compaction_completed", "context_summarized", "flush"),
    *("overflow_recovery_started", "overflow_recovery_completed"),
)
# Where older records keep the messages; both stand at the top of the payload.
HISTORY_KEYS = ("conversationHistory", "conversation_history")


@dataclass(frozen=True, slots=True)
class Restored:
    """What was restored, from which form, and which event it was ("" when from many).

    `is_upgraded`: the form was none of ours. `history` are messages the archive may not have, as
    found, oldest first; empty when the snapshot names messages of the archive.
    """

    form: RestoredForm
    snapshot: RuntimeSnapshot
    event_id: str

    @property
    def is_upgraded(self) -> bool:
        """True when it was restored from an older form: the next checkpoint makes it V2 (A41)."""
        return self.form not in ("checkpoint_v2", "snapshot_v2")

    @property
    def history(self) -> tuple[dict[str, Any], ...]:
        """Messages that came with the record."""
        return self.snapshot.transcript.conversation_history


@dataclass(frozen=True, slots=True)
class _Decoder:
    form: RestoredForm
    types: frozenset[str]
    decode: Callable[[Any], RuntimeSnapshot]


def _any(_: RuntimeSnapshot) -> bool:
    return True


def restored(events: Sequence[Stored], belongs: Callable[[RuntimeSnapshot], bool] = _any) -> Restored | None:
    """The session's state from its events, oldest first; None when nothing can be made of them.

    A form is looked for in all events, newest first, before the next form is: an old checkpoint of
    ours goes before a newer record of another form. One that does not belong to what is restored is
    passed over as a damaged one is. Usage totals of zero are counted from the events. Never raises for
    what a payload holds.
    """
    for decoder in DECODERS:
        for event in reversed(events):
            if event.type in decoder.types:
                snapshot = _decoded(decoder, event)
                if snapshot is not None and belongs(snapshot):
                    return Restored(decoder.form, backfilled(snapshot, events), event.id)
    return _from_events(events)


def backfilled(snapshot: RuntimeSnapshot, events: Sequence[Stored]) -> RuntimeSnapshot:
    """`snapshot` with usage totals counted from usage events, if its own are zero (A41)."""
    if not snapshot.usage.is_zero:
        return snapshot
    usage = counted_usage(events)
    return snapshot if usage.is_zero else msgspec.structs.replace(snapshot, usage=usage)


class _NotThisForm(ValueError):
    """The payload is readable but of another form."""


def _decoded(decoder: _Decoder, event: Stored) -> RuntimeSnapshot | None:
    try:
        snapshot = decoder.decode(event.value())
        # What cannot be written again cannot become the next checkpoint.
        msgspec.json.encode(snapshot)
        return snapshot
    except (ValueError, RecursionError):
        # Damaged, or of another form: the next one is tried. msgspec's errors are ValueErrors.
        return None


def _checkpoint_v2(value: Any) -> RuntimeSnapshot:
    # Some write the state itself as the checkpoint, without a summary or evidence.
    if isinstance(value, dict) and value.get("schema") == SNAPSHOT:
        return _snapshot_v2(value)
    checkpoint = msgspec.convert(value, Checkpoint)
    if checkpoint.runtime is None:
        raise _NotThisForm
    return _whole(checkpoint.runtime)


def _snapshot_v2(value: Any) -> RuntimeSnapshot:
    return _whole(snapshot_of(value))


def _whole(snapshot: RuntimeSnapshot) -> RuntimeSnapshot:
    """The snapshot, if it names or carries messages, and what it carries are messages."""
    transcript = snapshot.transcript
    if not (transcript.head or transcript.ids or transcript.conversation_history):
        raise _NotThisForm
    if transcript.conversation_history and messages_in(list(transcript.conversation_history)) is None:
        raise _NotThisForm
    return snapshot


def _legacy(value: Any) -> RuntimeSnapshot:
    """A record whose messages stand in `conversationHistory`, and little else that is ours."""
    # One that says it is V2 is a damaged one of ours: what it holds is not to be half believed.
    if not isinstance(value, dict) or str(value.get("schema", "")).endswith("_v2"):
        raise _NotThisForm
    for key in HISTORY_KEYS:
        history = messages_in(value.get(key))
        if history:
            transcript = TranscriptSection(message_count=len(history), conversation_history=history)
            return msgspec.structs.replace(new_snapshot(transcript), usage=_own_usage(value))
    raise _NotThisForm


def _own_usage(value: dict[str, Any]) -> UsageSection:
    totals = value.get("usageTotals", value.get("usage"))
    return counted_usage([Stored(type="usage", payload=totals)])


def _from_events(events: Sequence[Stored]) -> Restored | None:
    """What the events themselves tell: messages, compactions, flushes, overflows, usage."""
    history = tuple(message for event in events if (message := event.as_message()) is not None)
    loop = derived_loop(events)
    transcript = TranscriptSection(message_count=len(history), conversation_history=history)
    snapshot = msgspec.structs.replace(new_snapshot(transcript), loop=loop.loop, recovery=loop.recovery)
    if not history and not loop.is_known:
        return None
    return Restored("events_derived", backfilled(snapshot, events), "")


DECODERS: tuple[_Decoder, ...] = (
    _Decoder("checkpoint_v2", CHECKPOINT_TYPES, _checkpoint_v2),
    _Decoder("snapshot_v2", SNAPSHOT_TYPES, _snapshot_v2),
    _Decoder("checkpoint_legacy", CHECKPOINT_TYPES, _legacy),
    _Decoder("snapshot_legacy", SNAPSHOT_TYPES, _legacy),
)
"""The order of A40; what the events themselves tell comes last."""
