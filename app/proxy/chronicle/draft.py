"""What is told of one compaction: checkpoint and flush before it, events and memory with it (A36, A43, A44).

Pure, and slow for long conversations: to be called beside the event loop. Knows nothing of stores.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from app.core.runtime.checkpoint import Checkpoint, checkpoint_of
from app.core.runtime.events import (
    Effort,
    Event,
    checkpoint_event,
    conversation_snapshot,
    flush_event,
    memory_event,
    overflow_guard,
    state_delta_invalid,
)
from app.core.runtime.flow import Steps, before_removal, flow_of
from app.core.runtime.flush import FlushLimits, LastFlush, Pressure, flush_due, flush_of, flushable
from app.core.runtime.snapshot import RuntimeSnapshot, UsageSection
from app.core.runtime.tallies import loop_flushed
from app.core.summary.rolling.style import DELTA_INVALID
from app.core.view.compaction import Compaction
from app.core.view.view import cut_in, kept_in
from app.proxy.chronicle.readings import StoredPath
from app.proxy.chronicle.runtime import Moment, Past, at_work, compacted, runtime_of
from app.proxy.compacting.scene import Scene

# A checkpoint before a compaction reads so many bytes of the newest messages: making one takes a
# microsecond a byte, and a turn waits for it. What is older stands in checkpoints made on the way.
READ_BYTES = 256 * 1024
FLUSH = FlushLimits()


@dataclass(frozen=True, slots=True)
class Draft:
    """`before`: events to be stored before the compaction, `beside`: those in its transaction."""

    checkpoint: Checkpoint | None
    flush: str
    before: tuple[Event, ...]
    beside: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Material:
    """What a draft is made of: `at` in UTC seconds, `memory` the id the summary will have in memory."""

    scene: Scene
    compaction: Compaction
    path: StoredPath
    past: Past
    used: UsageSection
    summaries: int
    at: float
    memory: str


def draft_of(material: Material) -> Draft:
    """The draft of a compaction on a path that is not empty."""
    scene, compaction, at = material.scene, material.compaction, material.at
    talk = scene.conversation
    moment = Moment(
        talk,
        material.path.relayed,
        scene.under(scene.current).view,
        material.used,
        material.summaries,
    )
    runtime = at_work(runtime_of(moment, material.past), compaction, at)
    checkpoint, flush, flushed = None, "", None
    if compaction.kind == "message_removal":
        # The newest messages are always among them: what is being worked on is told, not only what goes.
        entries = material.path.after(cut_in(scene.current, talk), READ_BYTES)
        flush, flushed, runtime = _flushed(material, runtime)
        checkpoint = checkpoint_of("pre_compaction", entries, at, runtime)
    steps = Steps(
        checkpoint=checkpoint_event(checkpoint) if checkpoint else None,
        flush=flushed,
        guard=_guard(compaction),
        memory=memory_event(compaction.id, material.memory) if checkpoint else None,
    )
    flow = flow_of(compaction, scene.current, steps, _effort(scene, compaction))
    before = before_removal(flow) if checkpoint else ()
    after = compacted(runtime, talk, scene.under(compaction).view, compaction, at)
    beside = (*flow[len(before) :], *_noted(compaction), conversation_snapshot(after))
    return Draft(checkpoint, flush, before, beside)


def _flushed(material: Material, runtime: RuntimeSnapshot) -> tuple[str, Event | None, RuntimeSnapshot]:
    """The note, its event and the state after it; "" and None when none is due."""
    scene, at = material.scene, material.at
    talk, budget = scene.conversation, scene.budget
    entries = flushable(material.path.after(cut_in(scene.current, talk), READ_BYTES), scene.pins)
    pressure = Pressure(
        at=at,
        slack_tokens=budget.window_tokens - budget.output_tokens - scene.under(scene.current).tokens,
        path_tokens=sum(message.tokens for message in talk.messages),
    )
    mark = runtime.loop.last_flush
    last = LastFlush(mark.at / 1_000, mark.path_tokens) if mark else None
    if not flush_due(len(entries), pressure, last, FLUSH):
        return "", None, runtime
    note = flush_of(entries, FLUSH, scene.count_text)
    if not note:
        return "", None, runtime
    sizes = (scene.count_text(note), pressure.slack_tokens, pressure.path_tokens)
    event = flush_event(note, *map(budget.for_model, sizes))
    loop = loop_flushed(runtime.loop, pressure.path_tokens, at)
    return note, event, msgspec.structs.replace(runtime, loop=loop)


class _Details(msgspec.Struct, frozen=True):
    """What whoever made the compaction may say of it in its `details`."""

    notes: tuple[str, ...] = ()
    passes: int | None = None
    run_id: str = ""
    strips_reasoning: bool = False
    guard_tokens: tuple[int, int, int] | None = None


def _effort(scene: Scene, compaction: Compaction) -> Effort:
    details = _details(compaction)
    talk, current = scene.conversation, scene.current
    kept = set(kept_in(compaction, talk))
    folded = range(cut_in(current, talk), cut_in(compaction, talk))
    by_model = int(compaction.author == "model")
    return Effort(
        watermark_from=current.watermark if current else b"",
        turns=sum(talk.messages[i].role == "user" for i in folded if i not in kept),
        passes=by_model if details.passes is None else details.passes,
        run_id=details.run_id,
        strips_reasoning=details.strips_reasoning,
        window_tokens=scene.budget.window.tokens,
    )


def _guard(compaction: Compaction) -> Event | None:
    """Whoever shortened a summary says so: its tokens before and after, and the ceiling (A27)."""
    guard = _details(compaction).guard_tokens
    return overflow_guard(compaction.id, *guard) if guard else None


def _noted(compaction: Compaction) -> tuple[Event, ...]:
    """What the style had to note of its summary (B09)."""
    is_invalid = DELTA_INVALID in _details(compaction).notes
    return (state_delta_invalid(compaction.id, ("unreadable",)),) if is_invalid else ()


def _details(compaction: Compaction) -> _Details:
    try:
        return msgspec.json.decode(compaction.details, type=_Details)
    except ValueError:
        # Details are for people; what does not tell us this tells us nothing.
        return _Details()
