"""The values and sentences that the pages show of sessions and events.

A payload is whatever was stored: a missing field, or one of another type, is shown as "?" and is no error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import groupby
from typing import Any, Literal

from palimpsest.core.runtime.events import SUMMARIZED_TITLE
from palimpsest.core.summary.forms import outline_of
from palimpsest.core.utc import moment
from palimpsest.core.view.outcomes import Fold
from palimpsest.core.view.plan import plan_manual
from palimpsest.core.wire.json_text import decoded
from palimpsest.errors import InvalidJson
from palimpsest.proxy.compaction_context import CompactionContext
from palimpsest.proxy.overviews import ListedSession
from palimpsest.storage.journal import EventRow

Tone = Literal["plain", "good", "warning", "failure"]
Payload = Mapping[str, Any]
_UNKNOWN = "?"
# Characters shown of a query.
_ASKED_CHARS = 120
_TRIGGERS = {
    "proactive": "the prompt came near the window",
    "reactive": "the window was full",
    "overflow": "the upstream said that the prompt is too long",
    "manual": "somebody asked for it",
    "background": "it was prepared in the background",
}
_CHECKPOINTS = {
    "pre_compaction": "before a compaction",
    "periodic": "after another twelve exchanges",
    "completion": "something was completed",
}
_ASKERS = {"model": "The model", "mcp": "An MCP client", "rest": "Somebody"}


@dataclass(frozen=True, slots=True)
class EventText:
    """An event as text. `sentence` is one line."""

    title: str
    sentence: str
    tone: Tone = "plain"


# Title, sentence and tone of each event; `{name}` is a field of its payload, or a phrase of `_phrases`.
_TOLD: Mapping[str, tuple[str, str, Tone]] = {
    "checkpoint": ("Checkpoint", "Written {written}.", "plain"),
    "flush": ("Note kept", "{tokens} tokens, with {slackTokens} left before the window.", "plain"),
    "compaction_started": ("Compaction started", "At {tokensBefore} tokens, because {why}.", "plain"),
    # Its title is the event's own (A23).
    "context_summarized": ("{title}", "{removedCount} messages gave way to a summary, {size}.", "good"),
    "overflow_guard": (
        "Summary shortened",
        "{size}, so that the view stays below {ceilingTokens}.",
        "warning",
    ),
    "pinned_insert": ("Summary in the view", "The model is shown it from now on{again}.", "plain"),
    "memory": ("Summary in memory", "It can be found again with the caller's other memories.", "plain"),
    "compaction_completed": ("Compaction in force", "{size}{shortened}{noted}.", "good"),
    "compaction_failed": (
        "Compaction failed",
        "It came to nothing: {reason}. No message is lost.",
        "failure",
    ),
    "overflow_recovery_started": (
        "Prompt too long",
        "The upstream refused {tokens} tokens; attempt {attempt} of {most}.",
        "warning",
    ),
    "overflow_recovery_completed": (
        "Prompt accepted",
        "The upstream took {tokens} tokens; attempts: {attempts}.",
        "good",
    ),
    "overflow_recovery_failed": (
        "Prompt still too long",
        "The client was told {code}; attempts: {attempts}.",
        "failure",
    ),
    "prompt_cut": (
        "Prompt cut",
        "Of {tokens} tokens the upstream read {counted}, without a word.{since}",
        "warning",
    ),
    "session_not_continued": (
        "Session not continued",
        "{messages} message(s) came alone and were taken for a list of their own: the stored conversation was"
        " not put before them. X-Session-Mode: append does that.",
        "warning",
    ),
    "client_changed_prefix": (
        "Client changed its list",
        "{kept} of its {messages} messages had been said before.",
        "plain",
    ),
    "conversation_snapshot": ("Snapshot", "What the session was doing was written down.", "plain"),
    "compaction_undone": ("Compaction undone", "{back}.", "warning"),
    "session_restored": (
        "Session restored",
        "From records of the form {form}, {messages} messages.",
        "plain",
    ),
    "state_delta_invalid": (
        "State not read",
        "The summary counts, its state does not: {unread}.",
        "warning",
    ),
    "context_recalled": ("History read", "{by} {looked} {asked}: {resultCount} found.", "plain"),
}


class _Phrases(dict[str, str]):
    """What a sentence is made of; "?" for what an event does not say."""

    def __missing__(self, _: str) -> str:
        return _UNKNOWN


def told_of(kind: str, payload: Payload) -> EventText:
    """The event as text; an unknown type is its own title."""
    if kind not in _TOLD:
        return EventText(kind, "An event of a kind that this page has no words for.")
    title, sentence, tone = _TOLD[kind]
    phrases = _phrases(payload)
    return EventText(title.format_map(phrases), sentence.format_map(phrases), tone)


def _phrases(payload: Payload) -> _Phrases:
    """The fields of a payload as text, and what follows from several."""
    figures = {
        name: f"{value:,}"
        for name, value in payload.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    said = _Phrases({name: value for name, value in payload.items() if isinstance(value, str) and value})
    said |= figures
    kind, masked, faults = text_of(payload, "kind"), number_of(payload, "maskedCount"), payload.get("faults")
    unread = [fault for fault in faults if isinstance(fault, str)] if isinstance(faults, list) else []
    looked_for = text_of(payload, "tool") == "context_grep"
    return _Phrases(
        said
        | {
            "title": text_of(payload, "title") or SUMMARIZED_TITLE,
            "written": _CHECKPOINTS.get(kind, kind) or _UNKNOWN,
            "why": why_of(payload),
            "size": f"{said['tokensBefore']} \u2192 {said['tokensAfter']} tokens",
            "again": " in the place of the earlier one" if payload.get("replaces") else "",
            "shortened": f", {masked:,} tool results shortened" if masked else "",
            "noted": f" ({text_of(payload, 'note')})" if text_of(payload, "note") else "",
            "since": f" Its window is taken for {said['window']} from now on."
            if payload.get("window")
            else "",
            "back": "The one before it is in force again"
            if payload.get("restoredId")
            else "All messages are shown again",
            "unread": ", ".join(unread) or _UNKNOWN,
            "asked": " ".join(text_of(payload, "asked").split())[:_ASKED_CHARS] or _UNKNOWN,
            "by": _ASKERS.get(text_of(payload, "via"), _UNKNOWN),
            "looked": "looked for" if looked_for else "read",
        }
    )


def number_of(payload: Payload, name: str) -> int | None:
    """The integer in the field; None when there is none."""
    value = payload.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text_of(payload: Payload, name: str) -> str:
    """The text in the field, "" when there is none."""
    value = payload.get(name)
    return value if isinstance(value, str) else ""


def why_of(payload: Payload) -> str:
    """Why a compaction was made: its trigger in words, and the numbers behind the decision."""
    trigger, reason = text_of(payload, "trigger"), text_of(payload, "reason")
    words = _TRIGGERS.get(trigger, trigger) or _UNKNOWN
    return f"{words} ({reason})" if reason and reason != trigger else words


def writer_of(payload: Payload) -> str:
    """Who wrote a summary."""
    author, model = text_of(payload, "author"), text_of(payload, "model")
    if author == "model":
        return f"the model {model}" if model else "a model"
    return "code, without a model" if author == "deterministic" else author or _UNKNOWN


# The filters of events. Trouble: events that a user may want to act on.
CHOICES: Mapping[str, tuple[str, ...]] = {
    "all": (),
    "compactions": ("context_summarized", "compaction_completed", "compaction_undone"),
    "trouble": (
        "compaction_failed",
        "overflow_guard",
        "overflow_recovery_started",
        "overflow_recovery_failed",
        "prompt_cut",
        "session_not_continued",
        "state_delta_invalid",
    ),
}


SUMMARIZED = "context_summarized"
# Seconds that a session counts as live after its last request.
_LIVE_SECONDS = 60.0
# (seconds, word): the largest unit that fits is shown.
_AGES = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of the window chart; `width` is in percent of the chart (0 to 100)."""

    name: str
    label: str
    tokens: int
    share: float
    width: float


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """An event as text. `note` is the text of a kept note, `summarized` what `_summarized` gives."""

    seq: int
    kind: str
    at: datetime
    told: EventText
    note: str = ""
    summarized: Payload | None = None


def line_of(one: ListedSession, now: float) -> dict[str, Any]:
    """A line of the list of sessions. `is_live`: a request came just now.

    Places on its bar are in percent (0 to 100), which is the window, or the whole prompt where that is more:
    the ends of what was said, of what was sent and of the window, and the compactions.
    """
    said, since = one.tokens or 0, now - one.row.updated_at
    sent = said if one.sent_tokens is None else one.sent_tokens
    most = max(one.window_tokens, said, sent, 1)

    def place(tokens: int) -> float:
        return round(min(100.0, 100 * tokens / most), 1)

    return {
        "one": one,
        "at": moment(one.row.updated_at),
        "age": age_of(since),
        "is_live": since < _LIVE_SECONDS,
        "said": place(said),
        "sent": place(sent),
        "window": place(one.window_tokens),
        # Compactions closer than one percent are one tick.
        "ticks": sorted({round(place(tokens)) for tokens in one.compacted_at}),
    }


def age_of(seconds: float) -> str:
    """How long ago, in the largest whole unit."""
    for unit, word in _AGES:
        if (count := int(seconds // unit)) > 0:
            return f"{count:,} {word}{'s' if count > 1 else ''} ago"
    return "just now"


def use_of(context: CompactionContext) -> dict[str, Any]:
    """How much of the window the whole conversation and the model's view use, in the model's tokens.

    `marks` are positions, as in `Bar`. A compaction by hand would fold `folds` messages (0: there is nothing
    to fold), and leave `leaves` tokens.
    """
    budget = context.budget
    whole = budget.for_model(context.turn.tokens)
    shown = budget.for_model(context.under(context.current).tokens)
    window = budget.window.tokens
    most = max(window, whole, shown, 1)

    def bar(name: str, label: str, tokens: int) -> Bar:
        return Bar(
            name, label, tokens, round(100 * tokens / max(window, 1), 1), round(100 * tokens / most, 2)
        )

    plan = None if context.policy.is_off else context.plan(plan_manual)
    fold = plan if isinstance(plan, Fold) else None
    return {
        "model": context.turn.model,
        "strategy": context.policy.name,
        "window_tokens": window,
        "bars": (bar("whole", "Whole conversation", whole), bar("shown", "Shown to the model", shown)),
        "marks": (
            *(
                bar(name, name.capitalize(), budget.for_model(getattr(budget, f"{name}_tokens")))
                for name in (() if context.policy.is_off else ("target", "trigger"))
            ),
            bar("window", "Window", window),
        ),
        "folds": len({*range(fold.since, fold.cut)} - {*fold.kept}) if fold else 0,
        "leaves": budget.for_model(fold.leaves_tokens) if fold else 0,
    }


def entry_of(event: EventRow) -> TimelineEntry:
    """A stored event as an entry of the page."""
    payload = _payload(event.payload)
    if payload is None:
        told = EventText(event.type, "What was stored of it cannot be read.", "warning")
        return TimelineEntry(event.seq, event.type, moment(event.created_at), told)
    return TimelineEntry(
        event.seq,
        event.type,
        moment(event.created_at),
        told_of(event.type, payload),
        note=text_of(payload, "text") if event.type == "flush" else "",
        summarized=_summarized(payload) if event.type == SUMMARIZED else None,
    )


def days_of(entries: Sequence[TimelineEntry]) -> list[tuple[date, list[TimelineEntry]]]:
    """The entries in order, grouped by day (UTC)."""
    return [(day, list(told)) for day, told in groupby(entries, key=lambda entry: entry.at.date())]


def _summarized(payload: Payload) -> Payload:
    """A compaction's entry (A23, A25): the event's numbers, None for a missing one."""
    return {
        "freed": number_of(payload, "tokensFreed"),
        "removed": number_of(payload, "removedCount"),
        "before": number_of(payload, "tokensBefore"),
        "after": number_of(payload, "tokensAfter"),
        "is_proactive": payload.get("proactive") is True,
        "writer": writer_of(payload),
        "why": why_of(payload),
        "compaction": text_of(payload, "compactionId"),
        "outline": outline_of(text_of(payload, "summary")),
    }


def _payload(raw: bytes) -> dict[str, Any] | None:
    try:
        value = decoded(raw)
    except InvalidJson:
        return None
    return value if isinstance(value, dict) else None
