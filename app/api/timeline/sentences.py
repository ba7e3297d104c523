"""Events as sentences for people: a title, one line, and whether it is good news.

Pure. Knows nothing of pages. A payload is whatever was stored: a field that is missing or of another
kind is told as "?", never an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from app.core.runtime.events import SUMMARIZED_TITLE

Tone = Literal["plain", "good", "warning", "failure"]
Payload = Mapping[str, Any]
_UNKNOWN = "?"
# Characters shown of what was looked for.
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
class Told:
    """An event in words. `sentence` is one line."""

    title: str
    sentence: str
    tone: Tone = "plain"


def told_of(kind: str, payload: Payload) -> Told:
    """The event of this type in words; one of an unknown type has its type for a title."""
    tell = _TELLERS.get(kind)
    return tell(payload) if tell else Told(kind, "An event of a kind that this page has no words for.")


def number_of(payload: Payload, name: str) -> int | None:
    """The whole number in the field; None when there is none."""
    value = payload.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text_of(payload: Payload, name: str) -> str:
    """The text in the field, "" when there is none."""
    value = payload.get(name)
    return value if isinstance(value, str) else ""


def why_of(payload: Payload) -> str:
    """Why a compaction was made: its trigger in words, and the figures that it was decided by."""
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


def _checkpoint(payload: Payload) -> Told:
    kind = text_of(payload, "kind")
    return Told("Checkpoint", f"Written {_CHECKPOINTS.get(kind, kind) or _UNKNOWN}.")


def _flush(payload: Payload) -> Told:
    slack = _figure(payload, "slackTokens")
    return Told("Note kept", f"{_figure(payload, 'tokens')} tokens, with {slack} left before the window.")


def _started(payload: Payload) -> Told:
    return Told(
        "Compaction started", f"At {_figure(payload, 'tokensBefore')} tokens, because {why_of(payload)}."
    )


def _summarized(payload: Payload) -> Told:
    """The entry of A23: its title is the event's own."""
    removed = _figure(payload, "removedCount")
    sentence = f"{removed} messages gave way to a summary, {_tokens(payload)}."
    return Told(text_of(payload, "title") or SUMMARIZED_TITLE, sentence, "good")


def _guarded(payload: Payload) -> Told:
    ceiling = _figure(payload, "ceilingTokens")
    return Told(
        "Summary shortened", f"{_tokens(payload)}, so that the view stays below {ceiling}.", "warning"
    )


def _inserted(payload: Payload) -> Told:
    again = " in the place of the earlier one" if payload.get("replaces") else ""
    return Told("Summary in the view", f"The model is shown it from now on{again}.")


def _remembered(_: Payload) -> Told:
    return Told("Summary in memory", "It can be found again with the caller's other memories.")


def _completed(payload: Payload) -> Told:
    masked = number_of(payload, "maskedCount")
    shortened = f", {masked:,} tool results shortened" if masked else ""
    note = f" ({text_of(payload, 'note')})" if text_of(payload, "note") else ""
    return Told("Compaction in force", f"{_tokens(payload)}{shortened}{note}.", "good")


def _failed(payload: Payload) -> Told:
    reason = text_of(payload, "reason") or _UNKNOWN
    return Told("Compaction failed", f"It came to nothing: {reason}. No message is lost.", "failure")


def _recovering(payload: Payload) -> Told:
    attempt, most = _figure(payload, "attempt"), _figure(payload, "most")
    tokens = _figure(payload, "tokens")
    return Told(
        "Prompt too long", f"The upstream refused {tokens} tokens; attempt {attempt} of {most}.", "warning"
    )


def _recovered(payload: Payload) -> Told:
    tokens, attempts = _figure(payload, "tokens"), _figure(payload, "attempts")
    return Told("Prompt accepted", f"The upstream took {tokens} tokens; attempts: {attempts}.", "good")


def _unrecovered(payload: Payload) -> Told:
    code, attempts = text_of(payload, "code") or _UNKNOWN, _figure(payload, "attempts")
    return Told("Prompt still too long", f"The client was told {code}; attempts: {attempts}.", "failure")


def _cut(payload: Payload) -> Told:
    sent, read, window = _figure(payload, "tokens"), _figure(payload, "counted"), payload.get("window")
    since = f" Its window is taken for {_figure(payload, 'window')} from now on." if window else ""
    return Told("Prompt cut", f"Of {sent} tokens the upstream read {read}, without a word.{since}", "warning")


def _not_continued(payload: Payload) -> Told:
    return Told(
        "Session not continued",
        f"{_figure(payload, 'messages')} message(s) came alone and were taken for a list of their own: the "
        "stored conversation was not put before them. X-Session-Mode: append does that.",
        "warning",
    )


def _changed(payload: Payload) -> Told:
    kept, messages = _figure(payload, "kept"), _figure(payload, "messages")
    return Told("Client changed its list", f"{kept} of its {messages} messages had been said before.")


def _snapshot(_: Payload) -> Told:
    return Told("Snapshot", "What the session was doing was written down.")


def _undone(payload: Payload) -> Told:
    back = (
        "The one before it is in force again" if payload.get("restoredId") else "All messages are shown again"
    )
    return Told("Compaction undone", f"{back}.", "warning")


def _restored(payload: Payload) -> Told:
    form = text_of(payload, "form") or _UNKNOWN
    return Told(
        "Session restored", f"From records of the form {form}, {_figure(payload, 'messages')} messages."
    )


def _unread(payload: Payload) -> Told:
    faults = payload.get("faults")
    words = ", ".join(fault for fault in faults if isinstance(fault, str)) if isinstance(faults, list) else ""
    return Told("State not read", f"The summary counts, its state does not: {words or _UNKNOWN}.", "warning")


def _spent(payload: Payload) -> Told:
    spent, limit = _amount(payload, "spent"), _amount(payload, "limit")
    what = text_of(payload, "what") or _UNKNOWN
    return Told(
        "Spending limit reached", f"{spent} of {limit} {what}: no model is asked meanwhile.", "warning"
    )


def _recalled(payload: Payload) -> Told:
    asked = " ".join(text_of(payload, "asked").split())[:_ASKED_CHARS] or _UNKNOWN
    by = {"model": "The model", "mcp": "An MCP client", "rest": "Somebody"}.get(
        text_of(payload, "via"), _UNKNOWN
    )
    looked = "looked for" if text_of(payload, "tool") == "context_grep" else "read"
    return Told("History read", f"{by} {looked} {asked}: {_figure(payload, 'resultCount')} found.")


def _amount(payload: Payload, name: str) -> str:
    """A number that may have a fraction: money has one."""
    value = payload.get(name)
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else _UNKNOWN


_TELLERS: Mapping[str, Callable[[Payload], Told]] = {
    "checkpoint": _checkpoint,
    "flush": _flush,
    "compaction_started": _started,
    "context_summarized": _summarized,
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
# What to choose events by. Trouble is what somebody may want to do something about.
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
