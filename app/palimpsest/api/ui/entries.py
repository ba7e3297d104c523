"""The values and sentences that the pages show of sessions and events.

A payload is whatever was stored: a missing field, or one of another type, is shown as "?" and is no error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import groupby
from typing import Any, Literal

from palimpsest.core.runtime.events import SUMMARIZED_TITLE
from palimpsest.core.summary.sections import SummaryOutline, outline_of
from palimpsest.core.utc import moment
from palimpsest.core.view.outcomes import Fold
from palimpsest.core.wire.json_text import decoded
from palimpsest.errors import InvalidJson
from palimpsest.proxy.compaction_context import CompactionContext
from palimpsest.proxy.session_lists import ListedSession
from palimpsest.storage.journal import StoredEvent

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


@dataclass(frozen=True, slots=True)
class EventText:
    """An event as text. `sentence` is one line."""

    title: str
    sentence: str
    tone: Tone = "plain"


def told_of(kind: str, payload: Payload) -> EventText:
    """The event as text; an unknown type is its own title."""
    tell = _TELLERS.get(kind)
    return tell(payload) if tell else EventText(kind, "An event of a kind that this page has no words for.")


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


def grouped(number: int | None) -> str:
    """12345 as 12,345; "?" for none."""
    return _UNKNOWN if number is None else f"{number:,}"


def _figure(payload: Payload, name: str) -> str:
    return grouped(number_of(payload, name))


def _tokens(payload: Payload) -> str:
    return f"{_figure(payload, 'tokensBefore')} \u2192 {_figure(payload, 'tokensAfter')} tokens"


def _checkpoint(payload: Payload) -> EventText:
    kind = text_of(payload, "kind")
    return EventText("Checkpoint", f"Written {_CHECKPOINTS.get(kind, kind) or _UNKNOWN}.")


def _flush(payload: Payload) -> EventText:
    slack = _figure(payload, "slackTokens")
    return EventText(
        "Note kept", f"{_figure(payload, 'tokens')} tokens, with {slack} left before the window."
    )


def _started(payload: Payload) -> EventText:
    return EventText(
        "Compaction started", f"At {_figure(payload, 'tokensBefore')} tokens, because {why_of(payload)}."
    )


def _told_summarized(payload: Payload) -> EventText:
    """The entry of A23: its title is the event's own."""
    removed = _figure(payload, "removedCount")
    sentence = f"{removed} messages gave way to a summary, {_tokens(payload)}."
    return EventText(text_of(payload, "title") or SUMMARIZED_TITLE, sentence, "good")


def _guarded(payload: Payload) -> EventText:
    ceiling = _figure(payload, "ceilingTokens")
    return EventText(
        "Summary shortened", f"{_tokens(payload)}, so that the view stays below {ceiling}.", "warning"
    )


def _inserted(payload: Payload) -> EventText:
    again = " in the place of the earlier one" if payload.get("replaces") else ""
    return EventText("Summary in the view", f"The model is shown it from now on{again}.")


def _remembered(_: Payload) -> EventText:
    return EventText("Summary in memory", "It can be found again with the caller's other memories.")


def _completed(payload: Payload) -> EventText:
    masked = number_of(payload, "maskedCount")
    shortened = f", {masked:,} tool results shortened" if masked else ""
    note = f" ({text_of(payload, 'note')})" if text_of(payload, "note") else ""
    return EventText("Compaction in force", f"{_tokens(payload)}{shortened}{note}.", "good")


def _failed(payload: Payload) -> EventText:
    reason = text_of(payload, "reason") or _UNKNOWN
    return EventText("Compaction failed", f"It came to nothing: {reason}. No message is lost.", "failure")


def _recovering(payload: Payload) -> EventText:
    attempt, most = _figure(payload, "attempt"), _figure(payload, "most")
    tokens = _figure(payload, "tokens")
    return EventText(
        "Prompt too long", f"The upstream refused {tokens} tokens; attempt {attempt} of {most}.", "warning"
    )


def _recovered(payload: Payload) -> EventText:
    tokens, attempts = _figure(payload, "tokens"), _figure(payload, "attempts")
    return EventText("Prompt accepted", f"The upstream took {tokens} tokens; attempts: {attempts}.", "good")


def _unrecovered(payload: Payload) -> EventText:
    code, attempts = text_of(payload, "code") or _UNKNOWN, _figure(payload, "attempts")
    return EventText("Prompt still too long", f"The client was told {code}; attempts: {attempts}.", "failure")


def _cut(payload: Payload) -> EventText:
    sent, read, window = _figure(payload, "tokens"), _figure(payload, "counted"), payload.get("window")
    since = f" Its window is taken for {_figure(payload, 'window')} from now on." if window else ""
    return EventText(
        "Prompt cut", f"Of {sent} tokens the upstream read {read}, without a word.{since}", "warning"
    )


def _not_continued(payload: Payload) -> EventText:
    return EventText(
        "Session not continued",
        f"{_figure(payload, 'messages')} message(s) came alone and were taken for a list of their own: the "
        "stored conversation was not put before them. X-Session-Mode: append does that.",
        "warning",
    )


def _changed(payload: Payload) -> EventText:
    kept, messages = _figure(payload, "kept"), _figure(payload, "messages")
    return EventText("Client changed its list", f"{kept} of its {messages} messages had been said before.")


def _snapshot(_: Payload) -> EventText:
    return EventText("Snapshot", "What the session was doing was written down.")


def _undone(payload: Payload) -> EventText:
    back = (
        "The one before it is in force again" if payload.get("restoredId") else "All messages are shown again"
    )
    return EventText("Compaction undone", f"{back}.", "warning")


def _restored(payload: Payload) -> EventText:
    form = text_of(payload, "form") or _UNKNOWN
    return EventText(
        "Session restored", f"From records of the form {form}, {_figure(payload, 'messages')} messages."
    )


def _unread(payload: Payload) -> EventText:
    faults = payload.get("faults")
    words = ", ".join(fault for fault in faults if isinstance(fault, str)) if isinstance(faults, list) else ""
    return EventText(
        "State not read", f"The summary counts, its state does not: {words or _UNKNOWN}.", "warning"
    )


def _spent(payload: Payload) -> EventText:
    spent, limit = _amount(payload, "spent"), _amount(payload, "limit")
    what = text_of(payload, "what") or _UNKNOWN
    return EventText(
        "Spending limit reached", f"{spent} of {limit} {what}: no model is asked meanwhile.", "warning"
    )


def _recalled(payload: Payload) -> EventText:
    asked = " ".join(text_of(payload, "asked").split())[:_ASKED_CHARS] or _UNKNOWN
    by = {"model": "The model", "mcp": "An MCP client", "rest": "Somebody"}.get(
        text_of(payload, "via"), _UNKNOWN
    )
    looked = "looked for" if text_of(payload, "tool") == "context_grep" else "read"
    return EventText("History read", f"{by} {looked} {asked}: {_figure(payload, 'resultCount')} found.")


def _amount(payload: Payload, name: str) -> str:
    """A number that may have a fraction, such as money."""
    value = payload.get(name)
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else _UNKNOWN


_TELLERS: Mapping[str, Callable[[Payload], EventText]] = {
    "checkpoint": _checkpoint,
    "flush": _flush,
    "compaction_started": _started,
    "context_summarized": _told_summarized,
    "overflow_guard": _guarded,
    "pinned_insert": _inserted,
    "memory": _remembered,
    "compaction_completed": _completed,
    "compaction_failed": _failed,
    "overflow_recovery_started": _recovering,
    "overflow_recovery_completed": _recovered,
    "overflow_recovery_failed": _unrecovered,
    "prompt_cut": _cut,
    "session_not_continued": _not_continued,
    "client_changed_prefix": _changed,
    "conversation_snapshot": _snapshot,
    "compaction_undone": _undone,
    "session_restored": _restored,
    "state_delta_invalid": _unread,
    "spending_limit": _spent,
    "context_recalled": _recalled,
}
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
        "spending_limit",
    ),
}


SUMMARIZED = "context_summarized"
# Seconds that a session counts as live after its last request.
_LIVE_SECONDS = 60.0
# (seconds, word): the largest unit that fits is shown.
_AGES = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


@dataclass(frozen=True, slots=True)
class SessionLine:
    """A line of the list of sessions. `is_live`: a request came just now.

    Places on its bar are in percent (0 to 100), which is the window, or the whole prompt where that is more:
    the ends of what was said, of what was sent and of the window, and the compactions.
    """

    one: ListedSession
    at: datetime
    age: str
    is_live: bool
    said: float
    sent: float
    window: float
    ticks: Sequence[float]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of the window chart; `width` is in percent of the chart (0 to 100)."""

    name: str
    label: str
    tokens: int
    share: float
    width: float


@dataclass(frozen=True, slots=True)
class Use:
    """How much of the window is used, in the model's tokens. `marks` are positions, as in `Bar`.

    A compaction by hand would fold `folds` messages (0: there is nothing to fold), and leave `leaves` tokens.
    """

    model: str
    strategy: str
    window_tokens: int
    bars: tuple[Bar, ...]
    marks: tuple[Bar, ...]
    folds: int
    leaves: int


@dataclass(frozen=True, slots=True)
class Summarized:
    """A compaction's entry (A23, A25): the event's numbers, None for a missing one."""

    freed: int | None
    removed: int | None
    before: int | None
    after: int | None
    is_proactive: bool
    writer: str
    why: str
    compaction: str
    outline: SummaryOutline


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """An event as text. `note` is the text of a kept note."""

    seq: int
    kind: str
    at: datetime
    told: EventText
    note: str = ""
    summarized: Summarized | None = None


def lines_of(sessions: Sequence[ListedSession], now: float) -> list[SessionLine]:
    """The lines of the list of sessions."""
    return [_line(one, now - one.row.updated_at) for one in sessions]


def _line(one: ListedSession, since: float) -> SessionLine:
    said = one.tokens or 0
    sent = said if one.sent_tokens is None else one.sent_tokens
    most = max(one.window_tokens, said, sent, 1)

    def place(tokens: int) -> float:
        return round(min(100.0, 100 * tokens / most), 1)

    # Compactions closer than one percent are one tick.
    ticks = sorted({round(place(tokens)) for tokens in one.compacted_at})
    return SessionLine(
        one=one,
        at=moment(one.row.updated_at),
        age=age_of(since),
        is_live=since < _LIVE_SECONDS,
        said=place(said),
        sent=place(sent),
        window=place(one.window_tokens),
        ticks=ticks,
    )


def age_of(seconds: float) -> str:
    """How long ago, in the largest whole unit."""
    for unit, word in _AGES:
        if (count := int(seconds // unit)) > 0:
            return f"{count:,} {word}{'s' if count > 1 else ''} ago"
    return "just now"


def use_of(context: CompactionContext) -> Use:
    """The sizes of the whole conversation and of the model's view, against the window."""
    budget = context.budget
    whole = budget.for_model(context.turn.tokens)
    shown = budget.for_model(context.under(context.current).tokens)
    window = budget.window.tokens
    most = max(window, whole, shown, 1)

    def bar(name: str, label: str, tokens: int) -> Bar:
        return Bar(
            name, label, tokens, round(100 * tokens / max(window, 1), 1), round(100 * tokens / most, 2)
        )

    plan = context.plan_manual()
    fold = plan if isinstance(plan, Fold) else None
    return Use(
        model=context.turn.model,
        strategy=context.policy.name,
        window_tokens=window,
        bars=(
            bar("whole", "Whole conversation", whole),
            bar("shown", "Shown to the model", shown),
        ),
        marks=(
            bar("target", "Target", budget.for_model(budget.target_tokens)),
            bar("trigger", "Trigger", budget.for_model(budget.trigger_tokens)),
            bar("window", "Window", window),
        ),
        folds=len({*range(fold.since, fold.cut)} - {*fold.kept}) if fold else 0,
        leaves=budget.for_model(fold.leaves_tokens) if fold else 0,
    )


def entry_of(stored: StoredEvent) -> TimelineEntry:
    """A stored event as an entry of the page."""
    event = stored.event
    payload = _payload(event.payload)
    if payload is None:
        told = EventText(event.type, "What was stored of it cannot be read.", "warning")
        return TimelineEntry(stored.seq, event.type, moment(event.created_at), told)
    return TimelineEntry(
        stored.seq,
        event.type,
        moment(event.created_at),
        told_of(event.type, payload),
        note=text_of(payload, "text") if event.type == "flush" else "",
        summarized=_summarized(payload) if event.type == SUMMARIZED else None,
    )


def days_of(entries: Sequence[TimelineEntry]) -> list[tuple[date, list[TimelineEntry]]]:
    """The entries in order, grouped by day (UTC)."""
    return [(day, list(told)) for day, told in groupby(entries, key=lambda entry: entry.at.date())]


def _summarized(payload: Payload) -> Summarized:
    return Summarized(
        freed=number_of(payload, "tokensFreed"),
        removed=number_of(payload, "removedCount"),
        before=number_of(payload, "tokensBefore"),
        after=number_of(payload, "tokensAfter"),
        is_proactive=payload.get("proactive") is True,
        writer=writer_of(payload),
        why=why_of(payload),
        compaction=text_of(payload, "compactionId"),
        outline=outline_of(text_of(payload, "summary")),
    )


def _payload(raw: bytes) -> dict[str, Any] | None:
    try:
        value = decoded(raw)
    except InvalidJson:
        return None
    return value if isinstance(value, dict) else None
