"""The vocabulary of events: every type, and the payloads of those that compactions and imports leave.

An event informs users of what happened to a session; the store adds order and time. Payload names are those
of the sources (camel case), payloads plain JSON values.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import msgspec

from palimpsest.core.budget.upstream_counts import percent
from palimpsest.core.history.message import Conversation
from palimpsest.core.runtime.restore import Restored
from palimpsest.core.runtime.snapshot import BroughtState
from palimpsest.core.summary.record import decoded
from palimpsest.core.summary.session_lists import DELTA_INVALID
from palimpsest.core.summary.styles import slot_count_label
from palimpsest.core.text.fence import sendable
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.view import cut_in, folded_in
from palimpsest.core.wire.json_text import plain_values

EventType = Literal[
    "checkpoint",
    "flush",
    "compaction_started",
    "context_summarized",
    "overflow_guard",
    "pinned_insert",
    "memory",
    "compaction_completed",
    "compaction_failed",
    "overflow_recovery_started",
    "overflow_recovery_completed",
    "overflow_recovery_failed",
    "prompt_cut",
    "session_not_continued",
    "client_changed_prefix",
    "conversation_snapshot",
    "compaction_undone",
    "state_delta_invalid",
    "session_restored",
    "context_recalled",
]
EVENT_TYPES: tuple[EventType, ...] = get_args(EventType)

# The title of a compaction's entry in a timeline (A23).
SUMMARIZED_TITLE = "Session context compacted"
# Triggers of a full window (A26); other compactions were made before it was full.
_REACTIVE = frozenset({"reactive", "overflow"})


class Event(NamedTuple):
    """An event to append: its type, and a payload of plain JSON values."""

    type: EventType
    payload: Any


class _Details(msgspec.Struct, frozen=True):
    """The fields read from a compaction's `details`."""

    notes: tuple[str, ...] = ()
    passes: int | None = None
    run_id: str = ""
    guard_tokens: tuple[int, int, int] | None = None


def compaction_started(compaction: Compaction) -> Event:
    """A compaction was started; stored before it, behind its checkpoint and flush (A44)."""
    return Event(
        "compaction_started",
        {
            "compactionId": compaction.id,
            "kind": compaction.kind,
            "trigger": compaction.trigger,
            "reason": compaction.reason,
            "policy": compaction.policy,
            "tokensBefore": compaction.tokens_before,
            "proactive": compaction.trigger not in _REACTIVE,
        },
    )


_DETAILS = msgspec.json.Decoder(_Details)


def compaction_made(
    compaction: Compaction,
    previous: Compaction | None,
    talk: Conversation,
    memory_id: str,
    window_tokens: int,
) -> list[Event]:
    """The events stored with a compaction of `talk`, in the order of A44.

    Summary, overflow guard, pinned insert, memory, end. Masks alone have only the end. `previous` was in
    force before; `memory_id`: the summary in the memory (A30); `window_tokens`: the model's window, in its
    tokens, 0 when unknown. In `context_summarized` (A23, E11) `removedCount` are the messages that this
    compaction removed from the view, `foldedCount` all that its summary covers.
    """
    try:
        details = _DETAILS.decode(compaction.details)
    except ValueError:
        # Details are for people and may have any form.
        details = _Details()
    removed = max(0, compaction.messages_folded - (previous.messages_folded if previous else 0))
    facts = {
        "compactionId": compaction.id,
        "kind": compaction.kind,
        "trigger": compaction.trigger,
        "tokensBefore": compaction.tokens_before,
        "tokensAfter": compaction.tokens_after,
        "removedCount": removed,
        "author": compaction.author,
    }
    events = []
    if removes := compaction.kind == "message_removal":
        folded = [at for at in folded_in(compaction, talk) if at >= cut_in(previous, talk)]
        thins = set(compaction.masks) - set(previous.masks if previous else ())
        events.append(
            Event(
                "context_summarized",
                facts
                | {
                    "title": SUMMARIZED_TITLE,
                    "summary": sendable(compaction.summary),
                    "foldedCount": compaction.messages_folded,
                    "tokensFreed": compaction.tokens_before - compaction.tokens_after,
                    "proactive": compaction.trigger not in _REACTIVE,
                    "policy": compaction.policy,
                    "reason": compaction.reason,
                    "watermarkFrom": previous.watermark.hex() if previous else "",
                    "watermarkTo": compaction.watermark.hex(),
                    "turnsSummarised": sum(talk.messages[index].role == "user" for index in folded),
                    "passes": int(compaction.author == "model") if details.passes is None else details.passes,
                    "layersApplied": ["tool_thinning", "summarisation"] if thins else ["summarisation"],
                    "summarizerRunId": details.run_id,
                    "model": compaction.model,
                },
            )
        )
    if details.guard_tokens is not None:
        # A summary was shortened so that the view stays below the ceiling (A27); tokens of the summary.
        guard = zip(("tokensBefore", "tokensAfter", "ceilingTokens"), details.guard_tokens, strict=True)
        events.append(Event("overflow_guard", {"compactionId": compaction.id, **dict(guard)}))
    if removes:
        # The block of before is replaced (A31).
        replaced = previous.id if previous is not None and previous.summary else None
        events += [
            Event("pinned_insert", {"compactionId": compaction.id, "replaces": replaced}),
            Event("memory", {"compactionId": compaction.id, "memoryId": memory_id}),
        ]
    # One line for people: strategy, filled slots, and the prompt's shares of the window (D23).
    sizes = (compaction.tokens_before, compaction.tokens_after)
    before, after = (percent(tokens, window_tokens) for tokens in sizes)
    record = decoded(compaction.state)
    slots = slot_count_label(record.slots if record else None)
    strategy = f"{compaction.policy} {slots}" if slots else compaction.policy
    note = f"{strategy}: {before} % -> {after} % of {window_tokens:,} tokens"
    end = {"maskedCount": len(compaction.masks), "note": note}
    events.append(Event("compaction_completed", facts | end))
    if DELTA_INVALID in details.notes:
        # The summary is used, the state delta is not (B09).
        delta = {"compactionId": compaction.id, "faults": ["unreadable"]}
        events.append(Event("state_delta_invalid", delta))
    return events


def session_restored(restored: Restored, messages: int, brought: BroughtState) -> Event:
    """A state was restored (A40): from which form and event, with how many messages.

    The state of the session is computed from `brought`, which the messages do not show, and what came since.
    """
    fields = {"form": restored.form, "eventId": restored.source, "isUpgraded": restored.is_upgraded}
    return Event("session_restored", fields | {"messages": messages} | plain_values(brought))
