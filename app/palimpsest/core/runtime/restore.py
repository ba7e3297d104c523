"""The state of an imported session, from its events, by decoders in order of precedence (A40).

A payload that cannot be read, or has another form, falls to the next decoder. The result is always a
`session_runtime_v2` (A41). Flushes and overflows are counted from our own events the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any, Literal

import msgspec

from palimpsest.core.runtime.checkpoint import CheckpointPayload
from palimpsest.core.runtime.evidence import TYPES
from palimpsest.core.runtime.snapshot import SCHEMA as SNAPSHOT
from palimpsest.core.runtime.snapshot import (
    BroughtState,
    FlushMark,
    LoopSection,
    RecoverySection,
    RuntimeSnapshot,
    TranscriptSection,
    UsageSection,
    new_snapshot,
    sum_of,
)
from palimpsest.core.text.fence import sendable
from palimpsest.core.wire.json_text import decoded
from palimpsest.errors import InvalidJson

USAGE_TYPES = frozenset({"usage", "llm_usage", "usage_recorded"})
# Several roles have the type of the first.
MESSAGE_ROLES = {kind: role for role, kind in reversed(TYPES.items())}
_ROLES = frozenset({"user", "assistant", "tool", "system", "developer", "function"})
# Names of token counts: ours, OpenAI's, Anthropic's.
_INPUT = ("inputTokens", "prompt_tokens", "promptTokens", "input_tokens")
_OUTPUT = ("outputTokens", "completion_tokens", "completionTokens", "output_tokens")
_CACHED = ("cachedTokens", "cached_tokens", "cache_read_input_tokens")
# A payload may hold its counts one level down.
_NESTED = ("usage", "totals", "delta")
# No session has more tokens; larger numbers are invalid.
_MOST_TOKENS = 10**15
LATEST = 1e11
"""UTC seconds in the year 5138: a larger number is invalid, or counts milliseconds."""
CONTENT_KEYS = ("content", "message", "text")


@dataclass(frozen=True)
class RecordedEvent:
    """An event of an import or a store: `payload` is JSON as spelled; `at` UTC seconds; `id` may be ""."""

    id: str
    type: str
    payload: bytes
    at: float

    @cached_property
    def value(self) -> Any:
        """The decoded payload; InvalidJson when it is damaged."""
        return decoded(self.payload)

    @property
    def fields(self) -> dict[str, Any]:
        """The payload if it is a readable object, else an empty one."""
        try:
            return self.value if isinstance(self.value, dict) else {}
        except InvalidJson:
            return {}

    def as_message(self) -> dict[str, Any] | None:
        """The chat message in an event of a message's type; None for any other event."""
        role = MESSAGE_ROLES.get(self.type)
        if role is None:
            return None
        fields = self.fields
        content = next((fields[key] for key in CONTENT_KEYS if key in fields), None)
        if isinstance(content, dict):
            # It holds the whole message.
            return _message(content)
        extra = {key: fields[key] for key in ("tool_calls", "tool_call_id") if key in fields}
        return _message({"role": role, "content": content} | extra)


def messages_in(value: object) -> tuple[dict[str, Any], ...] | None:
    """The messages of a list, all of them or None: half a history would pass for a whole one."""
    if not isinstance(value, list):
        return None
    messages = [_message(each) for each in value]
    return None if None in messages else tuple(each for each in messages if each is not None)


def counted_usage(events: Iterable[RecordedEvent]) -> UsageSection:
    """Token totals: the sum over usage events; events without counts are ignored."""
    return sum_of(_usage_in(event.fields) for event in events if event.type in USAGE_TYPES)


def derived_state(events: Sequence[RecordedEvent]) -> BroughtState:
    """Turns, compactions, flushes, overflows and tokens, counted from events, oldest first."""
    # Our logs have the first type for every compaction; other logs may have the second only.
    compactions = [event for event in events if event.type == "compaction_completed"] or [
        event for event in events if event.type == "context_summarized"
    ]
    flushes = [event for event in events if event.type == "flush"]
    started = [event for event in events if event.type == "overflow_recovery_started"]
    last = compactions[-1].fields if compactions else {}
    flush = flushes[-1] if flushes else None
    return BroughtState(
        loop=LoopSection(
            turns=sum(event.type == "user_message" for event in events),
            compaction_count=len(compactions),
            last_compaction_at=_milliseconds(compactions[-1].at) if compactions else None,
            last_compaction_tokens_before=_count(last, ("tokensBefore",)),
            last_compaction_tokens_after=_count(last, ("tokensAfter",)),
            last_flush=FlushMark(
                at=_milliseconds(flush.at), path_tokens=_count(flush.fields, ("pathTokens",))
            )
            if flush
            else None,
        ),
        recovery=RecoverySection(
            overflow_attempts=len(started),
            overflow_recovered=sum(event.type == "overflow_recovery_completed" for event in events),
            last_overflow_at=_milliseconds(started[-1].at) if started else None,
        ),
        usage=counted_usage(events),
    )


def _milliseconds(at: float) -> int:
    """Milliseconds of UTC; 0 for an invalid time."""
    return round(at * 1_000) if isfinite(at) and 0 <= at < LATEST else 0


def _message(value: object) -> dict[str, Any] | None:
    """The value, if it is a valid message: a known role, content of a known shape.

    What cannot be written as UTF-8 is replaced, as a checkpoint must be writable.
    """
    role = value.get("role") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(role, str) or role not in _ROLES:
        return None
    content = value.get("content")
    parts = isinstance(content, list) and all(isinstance(part, dict) for part in content)
    calls = content is None and (value.get("tool_calls") or value.get("function_call"))
    if not (isinstance(content, str) or parts or calls):
        return None
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
    counts = next((each for each in nested if isinstance(each, dict)), fields)
    tokens = [_count(counts, names) for names in (_INPUT, _OUTPUT, _CACHED)]
    return UsageSection(
        input_tokens=tokens[0], output_tokens=tokens[1], cached_tokens=tokens[2], requests=int(any(tokens))
    )


def _count(fields: dict[str, Any], names: Iterable[str]) -> int:
    found = (fields.get(name) for name in names)
    numbers = (n for n in found if isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= _MOST_TOKENS)
    return next(numbers, 0)


RestoredForm = Literal[
    "checkpoint_v2", "snapshot_v2", "checkpoint_legacy", "snapshot_legacy", "events_derived"
]

CHECKPOINT_TYPES = frozenset({"checkpoint", "conversation_checkpoint", "session_checkpoint"})
SNAPSHOT_TYPES = frozenset({"conversation_snapshot"})
# Where older records keep the messages, at the top of the payload.
HISTORY_KEYS = ("conversationHistory", "conversation_history")


@dataclass(frozen=True, slots=True)
class Restored:
    """The state, from which form and which event (None: from several)."""

    form: RestoredForm
    snapshot: RuntimeSnapshot
    event: RecordedEvent | None

    @property
    def source(self) -> str:
        """The id of the event, "" from several."""
        return self.event.id if self.event else ""

    @property
    def is_upgraded(self) -> bool:
        """True when it was restored from an older form: the next checkpoint makes it V2 (A41)."""
        return self.form not in ("checkpoint_v2", "snapshot_v2")

    @property
    def history(self) -> tuple[dict[str, Any], ...]:
        """Messages contained in the record, oldest first; empty when it names those of the archive."""
        return self.snapshot.transcript.conversation_history


def restored(
    events: Sequence[RecordedEvent], belongs: Callable[[RuntimeSnapshot], bool] = lambda _: True
) -> Restored | None:
    """The session's state from its events, oldest first; None when nothing can be made of them.

    Each form is looked for in all events, newest first, before the next form: an old checkpoint of ours has
    precedence over a newer record of another form. A state that does not belong to the session is skipped
    like a damaged one. Usage totals of zero are counted from the events (A41). Never raises for the content
    of a payload.
    """
    for form, types, decode in DECODERS:
        for event in reversed(events):
            if event.type not in types:
                continue
            try:
                snapshot = decode(event.value)
                # It must be writable to become the next checkpoint.
                msgspec.json.encode(snapshot)
            except (InvalidJson, ValueError, RecursionError):
                # Damaged, or of another form. msgspec's errors are ValueErrors.
                continue
            if belongs(snapshot):
                used = snapshot.usage
                if not (used.input_tokens or used.output_tokens or used.cached_tokens):
                    snapshot = msgspec.structs.replace(snapshot, usage=counted_usage(events))
                return Restored(form, snapshot, event)
    # The state that the events show: messages, compactions, flushes, overflows, usage.
    history = tuple(message for event in events if (message := event.as_message()) is not None)
    derived = derived_state(events)
    if not history and derived == BroughtState(usage=derived.usage):
        return None
    transcript = TranscriptSection(message_count=len(history), conversation_history=history)
    return Restored("events_derived", new_snapshot(transcript, derived), None)


# So that `convert` builds nothing: see `core/wire/json_text.py`.
msgspec.json.Decoder(CheckpointPayload)
msgspec.json.Decoder(RuntimeSnapshot)


def _checkpoint_v2(value: Any) -> RuntimeSnapshot:
    # Some checkpoints are the state itself, without a summary or evidence.
    is_state = isinstance(value, dict) and value.get("schema") == SNAPSHOT
    return _snapshot_v2(value if is_state else msgspec.convert(value, CheckpointPayload).runtime)


def _snapshot_v2(value: Any) -> RuntimeSnapshot:
    """The snapshot, if it names or contains messages, and those it contains are valid."""
    snapshot = msgspec.convert(value, RuntimeSnapshot)
    transcript = snapshot.transcript
    if not (transcript.head or transcript.ids or transcript.conversation_history):
        raise ValueError("another form")
    if transcript.conversation_history and messages_in(list(transcript.conversation_history)) is None:
        raise ValueError("another form")
    return snapshot


def _legacy(value: Any) -> RuntimeSnapshot:
    """A record whose messages are in `conversationHistory`, with little else that we use."""
    # A record marked as V2 is a damaged one of ours: it is not used in part.
    if not isinstance(value, dict) or str(value.get("schema", "")).endswith("_v2"):
        raise ValueError("another form")
    for key in HISTORY_KEYS:
        history = messages_in(value.get(key))
        if history:
            transcript = TranscriptSection(message_count=len(history), conversation_history=history)
            totals = value.get("usageTotals", value.get("usage"))
            usage = _usage_in(totals if isinstance(totals, dict) else {})
            return new_snapshot(transcript, BroughtState(usage=usage))
    raise ValueError("another form")


DECODERS: tuple[tuple[RestoredForm, frozenset[str], Callable[[Any], RuntimeSnapshot]], ...] = (
    ("checkpoint_v2", CHECKPOINT_TYPES, _checkpoint_v2),
    ("snapshot_v2", SNAPSHOT_TYPES, _snapshot_v2),
    ("checkpoint_legacy", CHECKPOINT_TYPES, _legacy),
    ("snapshot_legacy", SNAPSHOT_TYPES, _legacy),
)
"""The order of A40; the state derived from the events comes last."""
