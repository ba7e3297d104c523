"""The events of one compaction in their order (A44).

checkpoint, flush, compaction, summary, overflow guard, pinned insert, memory, event. Knows nothing
of how any of it is carried out.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.core.runtime.events import (
    Effort,
    Event,
    EventType,
    compaction_completed,
    compaction_started,
    context_summarized,
    pinned_insert,
)
from app.core.view.compaction import Compaction

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
"""The order of A44. A reactive compaction, where the proactive one did not run, has the same."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps that are made beside the record, as their events; None for one that was not made.

    `checkpoint` is needed by every compaction that removes messages (A36).
    """

    checkpoint: Event | None = None
    flush: Event | None = None
    guard: Event | None = None
    memory: Event | None = None


def flow_of(
    compaction: Compaction,
    previous: Compaction | None,
    steps: Steps,
    effort: Effort,
) -> tuple[Event, ...]:
    """Every event of `compaction`, in the order of A44; `previous` was in force before it.

    Masks alone have no summary: only the compaction's beginning and end, and what `steps` holds.
    ValueError when messages are removed without a checkpoint, or an event stands for another step.
    """
    removes = compaction.kind == "message_removal"
    if removes and steps.checkpoint is None:
        raise ValueError("messages are removed after a checkpoint only (A36)")
    told = (
        steps.checkpoint,
        steps.flush,
        compaction_started(compaction),
        context_summarized(compaction, previous, effort) if removes else None,
        steps.guard,
        pinned_insert(compaction, previous) if removes else None,
        steps.memory,
        compaction_completed(compaction, previous, effort.window_tokens),
    )
    for event, wanted in zip(told, ORDER, strict=True):
        if event is not None and event.type != wanted:
            raise ValueError(f"{event.type} stands where {wanted} belongs")
    return tuple(event for event in told if event is not None)


def before_removal(flow: tuple[Event, ...]) -> tuple[Event, ...]:
    """The events to be stored before the compaction's record is: checkpoint, flush, beginning.

    The others belong in its transaction or after it.
    """
    end = ORDER.index("compaction_started")
    return tuple(event for event in flow if ORDER.index(event.type) <= end)
