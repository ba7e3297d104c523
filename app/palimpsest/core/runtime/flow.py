"""The events of one compaction in their order (A44).

checkpoint, flush, compaction, summary, overflow guard, pinned insert, memory, event.
"""

from __future__ import annotations

from dataclasses import dataclass

from palimpsest.core.runtime.events import (
    Effort,
    Event,
    EventType,
    compaction_completed,
    compaction_started,
    context_summarized,
    pinned_insert,
)
from palimpsest.core.view.compaction import Compaction

ORDER: tuple[EventType, ...] = (
    "checkpoint",
    "flush",
    "compaction_started",
    "context_summarized",
    "overflow_guard",
    "pinned_insert",
    "memory",
    "compaction_completed",
)
"""The order of A44, of proactive and reactive compactions alike."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps that are taken besides the record, as their events; None for one that was not taken.

    Every compaction that removes messages needs `checkpoint` (A36).
    """

    checkpoint: Event | None = None
    flush: Event | None = None
    guard: Event | None = None
    memory: Event | None = None


def compaction_events(
    compaction: Compaction,
    previous: Compaction | None,
    steps: Steps,
    effort: Effort,
) -> tuple[Event, ...]:
    """Every event of `compaction`, in the order of A44; `previous` was in force before it.

    Masks alone have no summary: only start and end of the compaction, and what `steps` holds. ValueError when
    messages are removed without a checkpoint, or an event stands at another's place.
    """
    removes = compaction.kind == "message_removal"
    if removes and steps.checkpoint is None:
        raise ValueError("removing messages needs a checkpoint (A36)")
    events = (
        steps.checkpoint,
        steps.flush,
        compaction_started(compaction),
        context_summarized(compaction, previous, effort) if removes else None,
        steps.guard,
        pinned_insert(compaction, previous) if removes else None,
        steps.memory,
        compaction_completed(compaction, previous, effort.window_tokens),
    )
    for event, wanted in zip(events, ORDER, strict=True):
        if event is not None and event.type != wanted:
            raise ValueError(f"{event.type} in the place of {wanted}")
    return tuple(event for event in events if event is not None)


def events_before_removal(flow: tuple[Event, ...]) -> tuple[Event, ...]:
    """The events to be stored before the compaction's record: checkpoint, flush, start.

    The others belong in its transaction or after it.
    """
    end = ORDER.index("compaction_started")
    return tuple(event for event in flow if ORDER.index(event.type) <= end)
