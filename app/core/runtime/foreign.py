"""Reading stored events of any origin: their payloads, messages, counters and token usage.

Tolerant: what cannot be read is left out, nothing is raised but by `Stored.value`. Knows nothing of
which record is preferred to which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import msgspec

from app.core.runtime.snapshot import FlushMark, LoopSection, RecoverySection, UsageSection
from app.core.text.fence import sendable

USAGE_TYPES = frozenset({"usage", "llm_usage", "usage_recorded"})
MESSAGE_ROLES = {
    "user_message": "user",
    "assistant_message": "assistant",
    "tool_result": "tool",
    "system_message": "system",
}
_ROLES = frozenset({"user", "assistant", "tool", "system", "developer", "function"})
# Under which names a count of tokens stands: ours, OpenAI's, Anthropic's.
_INPUT = ("inputTokens", "prompt_tokens", "promptTokens", "input_tokens")
_OUTPUT = ("outputTokens", "completion_tokens", "completionTokens", "output_tokens")
_CACHED = ("cachedTokens", "cached_tokens", "cache_read_input_tokens")
# A payload may hold its figures one level down.
_NESTED = ("usage", "totals", "delta")
# No session has more tokens; larger numbers are damage.
_MOST_TOKENS = 10**15
# UTC seconds, in the year 5138: later times are damage, or milliseconds.
_LATEST = 1e11
CONTENT_KEYS = ("content", "message", "text")


@dataclass(frozen=True, slots=True)
class Stored:
    """An event as a store or a file of exported ones gives it.

    `payload` is JSON (bytes or str) or a value decoded from it; `at` UTC seconds, 0 when unknown.
    """

    type: str
    payload: Any
    at: float = 0.0
    id: str = ""

    def value(self) -> Any:
        """The decoded payload; ValueError or RecursionError when it is damaged."""
        if isinstance(self.payload, bytes | str):
            return msgspec.json.decode(self.payload)
        return self.payload

    def fields(self) -> dict[str, Any]:
        """The payload if it is an object, else an empty one."""
        try:
            value = self.value()
        except (ValueError, RecursionError):
            # Damaged: there is nothing to read.
            return {}
        return value if isinstance(value, dict) else {}

    def as_message(self) -> dict[str, Any] | None:
        """The chat message an event of a message tells of; None for any other event."""
        role = MESSAGE_ROLES.get(self.type)
        if role is None:
            return None
        fields = self.fields()
        content = next((fields[key] for key in CONTENT_KEYS if key in fields), None)
        if isinstance(content, dict):
            # The whole message stands in it.
            return _message(content)
        extra = {key: fields[key] for key in ("tool_calls", "tool_call_id") if key in fields}
        return _message({"role": role, "content": content} | extra)


@dataclass(frozen=True, slots=True)
class Derived:
    """Counters that events tell; `is_known` is false when none of them told any."""

    loop: LoopSection
    recovery: RecoverySection
    is_known: bool


def messages_in(value: object) -> tuple[dict[str, Any], ...] | None:
    """The messages of a list, all of them or None: half a history would pass for a whole one."""
    if not isinstance(value, list):
        return None
    messages = [_message(each) for each in value]
    return None if None in messages else tuple(each for each in messages if each is not None)


def counted_usage(events: Iterable[Stored]) -> UsageSection:
    """Token totals: the sum of what usage events say; events that say nothing are left out."""
    reported = [_usage_in(event.fields()) for event in events if event.type in USAGE_TYPES]
    told = [usage for usage in reported if not usage.is_zero]
    return UsageSection(
        input_tokens=sum(usage.input_tokens for usage in told),
        output_tokens=sum(usage.output_tokens for usage in told),
        cached_tokens=sum(usage.cached_tokens for usage in told),
        requests=len(told),
    )


def derived_loop(events: Sequence[Stored]) -> Derived:
    """Turns, compactions, flushes and overflows, counted from events, oldest first."""
    # Ours end every compaction with the first; other logs may know the second only.
    compactions = [event for event in events if event.type == "compaction_completed"] or [
        event for event in events if event.type == "context_summarized"
    ]
    flushes = [event for event in events if event.type == "flush"]
    started = [event for event in events if event.type == "overflow_recovery_started"]
    ended = sum(event.type == "overflow_recovery_completed" for event in events)
    last = compactions[-1].fields() if compactions else {}
    loop = LoopSection(
        turns=sum(event.type == "user_message" for event in events),
        compaction_count=len(compactions),
        last_compaction_at=_milliseconds(compactions[-1].at) if compactions else None,
        last_compaction_tokens_before=_count(last, ("tokensBefore",)),
        last_compaction_tokens_after=_count(last, ("tokensAfter",)),
        last_flush=_flush_mark(flushes[-1]) if flushes else None,
    )
    recovery = RecoverySection(
        overflow_attempts=len(started),
        overflow_recovered=ended,
        last_overflow_at=_milliseconds(started[-1].at) if started else None,
    )
    return Derived(loop, recovery, is_known=bool(compactions or flushes or started or ended))


def _flush_mark(event: Stored) -> FlushMark:
    return FlushMark(at=_milliseconds(event.at), path_tokens=_count(event.fields(), ("pathTokens",)))


def _milliseconds(at: float) -> int:
    """Milliseconds of UTC; 0 for a time that is none."""
    return round(at * 1_000) if isfinite(at) and 0 <= at < _LATEST else 0


def _message(value: object) -> dict[str, Any] | None:
    """The value, if it is a message a view could hold: a known role, content of a known shape.

    What cannot be written as UTF-8 is replaced, as a checkpoint must be writable.
    """
    role = value.get("role") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(role, str) or role not in _ROLES:
        return None
    content = value.get("content")
    parts = isinstance(content, list) and all(isinstance(part, dict) for part in content)
    calls = content is None and (value.get("tool_calls") or value.get("function_call"))
    return _writable(value) if isinstance(content, str) or parts or calls else None


def _writable(value: dict[str, Any]) -> dict[str, Any] | None:
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        plain: dict[str, Any] = _sendable(value)
        return plain
    except RecursionError:
        return None
    return value


def _sendable(value: Any) -> Any:
    if isinstance(value, str):
        return sendable(value)
    if isinstance(value, dict):
        return {sendable(key): _sendable(each) for key, each in value.items()}
    return [_sendable(each) for each in value] if isinstance(value, list) else value


def _usage_in(fields: dict[str, Any]) -> UsageSection:
    nested = (fields.get(key) for key in _NESTED)
    told = next((each for each in nested if isinstance(each, dict)), fields)
    return UsageSection(
        input_tokens=_count(told, _INPUT),
        output_tokens=_count(told, _OUTPUT),
        cached_tokens=_count(told, _CACHED),
    )


def _count(fields: dict[str, Any], names: Iterable[str]) -> int:
    found = (fields.get(name) for name in names)
    numbers = (n for n in found if isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= _MOST_TOKENS)
    return next(numbers, 0)
