"""The vocabulary of events: every type, and the payload of each.

An event informs users of what happened to a session; the store adds order and time. Payload names are those
of the sources (camel case), payloads plain JSON values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from palimpsest.core.budget.upstream_counts import percent
from palimpsest.core.runtime.checkpoint import CheckpointPayload
from palimpsest.core.runtime.restore import Restored
from palimpsest.core.runtime.snapshot import CarriedCounters, RuntimeSnapshot
from palimpsest.core.summary.styles import slot_count_label
from palimpsest.core.text.fence import sendable
from palimpsest.core.view.compaction import Compaction
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
    "spending_limit",
    "session_restored",
    "context_recalled",
]
EVENT_TYPES: tuple[EventType, ...] = get_args(EventType)

# The title of a compaction's entry in a timeline (A23).
SUMMARIZED_TITLE = "Session context compacted"
# Triggers of a full window (A26).
_REACTIVE = frozenset({"reactive", "overflow"})
Layer = Literal["reasoning_strip", "tool_thinning", "summarisation"]


# Who called a recall tool: the model in its conversation, a person or program by HTTP, an MCP client.
Via = Literal["model", "rest", "mcp"]


class Event(NamedTuple):
    """An event to append: its type, and a payload of plain JSON values."""

    type: EventType
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Effort:
    """What a compaction took, besides its record, for its entry in the log (E11).

    `watermark_from`: the chain up to which was folded before, b"" for none. `turns`: user turns newly folded.
    `passes`: calls to the summarizer that produced the text, 0 without a model. `run_id`: the summarizer's
    run, "" without one. `strips_reasoning`: reasoning was removed as well. `window_tokens`: the model's
    window, in its tokens; 0 when unknown.
    """

    watermark_from: bytes = b""
    turns: int = 0
    passes: int = 0
    run_id: str = ""
    strips_reasoning: bool = False
    window_tokens: int = 0


def checkpoint_event(checkpoint: CheckpointPayload) -> Event:
    """A checkpoint was written (A36 to A39)."""
    return Event("checkpoint", plain_values(checkpoint))


def flush_event(text: str, tokens: int, slack_tokens: int, path_tokens: int) -> Event:
    """A flush was made (A43): the note, its tokens, the slack that caused it, the path's size then."""
    return Event(
        "flush",
        {"text": text, "tokens": tokens, "slackTokens": slack_tokens, "pathTokens": path_tokens},
    )


def compaction_started(compaction: Compaction) -> Event:
    """A compaction was started."""
    return Event(
        "compaction_started",
        {
            "compactionId": compaction.id,
            "kind": compaction.kind,
            "trigger": compaction.trigger,
            "reason": compaction.reason,
            "policy": compaction.policy,
            "tokensBefore": compaction.tokens_before,
            "proactive": is_proactive(compaction),
        },
    )


def context_summarized(compaction: Compaction, previous: Compaction | None, effort: Effort) -> Event:
    """Messages were replaced by a summary: the entry of A23 and, in the same payload, that of E11.

    `removedCount` counts the messages that this compaction removed from the view, `foldedCount` all that its
    summary covers. `previous` is the compaction that was in force before, if any.
    """
    return Event(
        "context_summarized",
        {
            "title": SUMMARIZED_TITLE,
            "summary": sendable(compaction.summary),
            "removedCount": removed_count(compaction, previous),
            "foldedCount": compaction.messages_folded,
            "tokensBefore": compaction.tokens_before,
            "tokensAfter": compaction.tokens_after,
            "tokensFreed": compaction.tokens_before - compaction.tokens_after,
            "proactive": is_proactive(compaction),
            "compactionId": compaction.id,
            "kind": compaction.kind,
            "policy": compaction.policy,
            "trigger": compaction.trigger,
            "reason": compaction.reason,
            "watermarkFrom": effort.watermark_from.hex(),
            "watermarkTo": compaction.watermark.hex(),
            "turnsSummarised": effort.turns,
            "passes": effort.passes,
            "layersApplied": list(layers_of(compaction, previous, effort)),
            "summarizerRunId": effort.run_id,
            "model": compaction.model,
            "author": compaction.author,
        },
    )


def overflow_guard(compaction_id: str, tokens_before: int, tokens_after: int, ceiling_tokens: int) -> Event:
    """A summary was shortened so that the view stays below the ceiling (A27); tokens of the summary."""
    return Event(
        "overflow_guard",
        {
            "compactionId": compaction_id,
            "tokensBefore": tokens_before,
            "tokensAfter": tokens_after,
            "ceilingTokens": ceiling_tokens,
        },
    )


def pinned_insert(compaction: Compaction, previous: Compaction | None) -> Event:
    """The summary block was put into the view (A31), replacing the earlier one if there was one."""
    replaced = previous.id if previous is not None and previous.summary else None
    return Event("pinned_insert", {"compactionId": compaction.id, "replaces": replaced})


def memory_event(compaction_id: str, memory_id: str) -> Event:
    """The summary was added to the memory (A30)."""
    return Event("memory", {"compactionId": compaction_id, "memoryId": memory_id})


def compaction_completed(
    compaction: Compaction, previous: Compaction | None, window_tokens: int = 0
) -> Event:
    """A compaction is in force; `note` has its strategy, and the shares of the window (D23)."""
    return Event(
        "compaction_completed",
        {
            "compactionId": compaction.id,
            "kind": compaction.kind,
            "trigger": compaction.trigger,
            "removedCount": removed_count(compaction, previous),
            "maskedCount": len(compaction.masks),
            "tokensBefore": compaction.tokens_before,
            "tokensAfter": compaction.tokens_after,
            "author": compaction.author,
            "note": note_of(compaction, window_tokens),
        },
    )


def note_of(compaction: Compaction, window_tokens: int) -> str:
    """One line for people: strategy, filled slots, and the prompt's shares of the window (D23)."""
    sizes = (compaction.tokens_before, compaction.tokens_after)
    before, after = (percent(tokens, window_tokens) for tokens in sizes)
    slots = slot_count_label(compaction.state)
    strategy = f"{compaction.policy} {slots}" if slots else compaction.policy
    return f"{strategy}: {before} % -> {after} % of {window_tokens:,} tokens"


def compaction_failed(reason: str, trigger: str, watermark: bytes = b"") -> Event:
    """A compaction failed; `reason` is a stable word without content. The history stays."""
    return Event("compaction_failed", {"reason": reason, "trigger": trigger, "watermark": watermark.hex()})


def overflow_recovery_started(attempt: int, most: int, tokens: int) -> Event:
    """The upstream refused a prompt of `tokens` as too long (A29); attempts count from 1 to `most`."""
    return Event("overflow_recovery_started", {"attempt": attempt, "most": most, "tokens": tokens})


def overflow_recovery_completed(attempts: int, compaction_id: str, tokens: int) -> Event:
    """The upstream accepted `tokens` after this many attempts."""
    return Event(
        "overflow_recovery_completed",
        {"attempts": attempts, "compactionId": compaction_id, "tokens": tokens},
    )


def overflow_recovery_failed(attempts: int, code: str) -> Event:
    """The client received an error with this `code`."""
    return Event("overflow_recovery_failed", {"attempts": attempts, "code": code})


def prompt_cut(tokens: int, counted: int, window: int | None) -> Event:
    """The upstream counted so few of the `tokens` sent that it must have truncated the prompt (W39).

    `window` is the window assumed from now on; None while it is not clear.
    """
    return Event("prompt_cut", {"tokens": tokens, "counted": counted, "window": window})


def session_not_continued(messages: int) -> Event:
    """A request with only new messages came under the session's name and was taken for a whole list.

    Nothing of the session was put before them. Reported once, for clients that meant to append.
    """
    return Event("session_not_continued", {"messages": messages})


def client_changed_prefix(messages: int, kept: int) -> Event:
    """The client's list of `messages` does not continue its last one: only the first `kept` are equal.

    The upstream's cache of the prompt is lost, and not because of a compaction (rule 14).
    """
    return Event("client_changed_prefix", {"messages": messages, "kept": kept})


def conversation_snapshot(snapshot: RuntimeSnapshot) -> Event:
    """The runtime state (A34); the payload is the snapshot itself."""
    return Event("conversation_snapshot", plain_values(snapshot))


def compaction_undone(compaction: Compaction, restored: Compaction | None) -> Event:
    """A compaction is no longer in force; `restored` is the one in force again."""
    return Event(
        "compaction_undone",
        {"compactionId": compaction.id, "restoredId": restored.id if restored else None},
    )


def state_delta_invalid(compaction_id: str, faults: Sequence[str]) -> Event:
    """A summarizer's state delta could not be read (B09): the summary is used, the delta is not."""
    return Event("state_delta_invalid", {"compactionId": compaction_id, "faults": list(faults)})


def spending_limit(spent: float, limit: float, what: str) -> Event:
    """No model is asked any more until the limit allows it; `what` names the unit."""
    return Event("spending_limit", {"spent": spent, "limit": limit, "what": what})


def session_restored(restored: Restored, source: str, carried: CarriedCounters) -> Event:
    """The state was restored (A40): from which form and event ("" when from several), and how many messages.

    `carried` are the counters that it brought.
    """
    fields = {
        "form": restored.form,
        "eventId": source,
        "isUpgraded": restored.is_upgraded,
        "messages": restored.snapshot.transcript.message_count,
    }
    return Event("session_restored", fields | plain_values(carried))


class Recalled(NamedTuple):
    """A use of a recall tool: what was asked (a query or an id), how much was returned and found."""

    tool: str
    asked: str
    given: int
    found: int


def context_recalled(
    recalled: Recalled, via: Via, requested: str | None, is_explicit: bool, effective: str
) -> Event:
    """A recall tool was used (C18): `requested` is the session asked for, `effective` the one read."""
    return Event(
        "context_recalled",
        {
            "tool": recalled.tool,
            "asked": sendable(recalled.asked),
            "via": via,
            "requestedSession": sendable(requested) if requested is not None else None,
            "explicitUserRequest": is_explicit,
            "effectiveSession": effective,
            "resultCount": recalled.given,
            "totalFound": recalled.found,
        },
    )


def is_proactive(compaction: Compaction) -> bool:
    """True when it was made before the window was full, including manual and background ones (A26)."""
    return compaction.trigger not in _REACTIVE


def removed_count(compaction: Compaction, previous: Compaction | None) -> int:
    """Messages that this compaction removed from the view, without those folded before it."""
    before = previous.messages_folded if previous is not None else 0
    return max(0, compaction.messages_folded - before)


def layers_of(compaction: Compaction, previous: Compaction | None, effort: Effort) -> tuple[Layer, ...]:
    """What was done, in the order of E11: reasoning removed, tool results shortened, messages summarised."""
    masked = set(previous.masks) if previous is not None else set()
    layers: list[Layer] = []
    if effort.strips_reasoning:
        layers.append("reasoning_strip")
    if set(compaction.masks) - masked:
        layers.append("tool_thinning")
    if compaction.kind == "message_removal":
        layers.append("summarisation")
    return tuple(layers)
