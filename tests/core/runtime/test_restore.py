"""What a session is restored from: five forms in order, and what damage does."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.runtime.checkpoint import checkpoint_of
from palimpsest.core.runtime.events import compaction_made
from palimpsest.core.runtime.restore import RecordedEvent, RestoredForm, restored
from palimpsest.core.runtime.snapshot import (
    FlushMark,
    LoopSection,
    RecoverySection,
    RuntimeSnapshot,
    TranscriptSection,
    UsageSection,
    new_snapshot,
)
from palimpsest.core.wire.json_text import plain_values

from tests.core.histories import conversation
from tests.core.runtime.records import NEW_YEAR, compaction, entries, exchanges


def record(kind: str, payload: Any, at: float = 0.0, id: str = "") -> RecordedEvent:  # noqa: A002
    """An event with this payload: JSON, or what to write as it."""
    raw = payload.encode() if isinstance(payload, str) else payload
    return RecordedEvent(id, kind, raw if isinstance(raw, bytes) else json.dumps(raw).encode(), at)


def said(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}, {"role": "assistant", "content": "yes"}]


def runtime(head: str, **sections: Any) -> RuntimeSnapshot:
    return msgspec.structs.replace(new_snapshot(TranscriptSection(head=head)), **sections)


def checkpoint(head: str | None) -> bytes:
    state = None if head is None else runtime(head)
    return msgspec.json.encode(checkpoint_of("periodic", entries(exchanges(12)), NEW_YEAR, state))


# One event of each form, the preferred form first; the events they stand for are last.
FORMS: dict[RestoredForm, RecordedEvent] = {
    "checkpoint_v2": record("checkpoint", checkpoint("c2"), id="e1"),
    "snapshot_v2": record("conversation_snapshot", plain_values(runtime("s2")), id="e2"),
    "checkpoint_legacy": record("checkpoint", {"conversationHistory": said("from c1")}, id="e3"),
    "snapshot_legacy": record("conversation_snapshot", {"conversationHistory": said("from s1")}, id="e4"),
    "events_derived": record("user_message", {"content": "from events"}, id="e5"),
}
ORDER = list(FORMS)


def found(events: list[RecordedEvent]) -> tuple[RestoredForm, str]:
    result = restored(events)
    assert result is not None
    transcript = result.snapshot.transcript
    first = transcript.conversation_history[0]["content"] if transcript.conversation_history else ""
    return result.form, transcript.head or first


def damaged(event: RecordedEvent) -> RecordedEvent:
    return replace(event, payload=event.payload[:-1])


@pytest.mark.parametrize("place", range(5))
def test_the_most_preferred_form_there_is_wins(place: int) -> None:
    wanted = [("c2"), ("s2"), ("from c1"), ("from s1"), ("from events")]
    events = [FORMS[form] for form in ORDER[place:]]
    assert found(events) == (ORDER[place], wanted[place])
    assert found(events[::-1]) == (ORDER[place], wanted[place])


@pytest.mark.parametrize("place", range(4))
def test_a_damaged_payload_falls_to_the_next_form(place: int) -> None:
    events = [damaged(FORMS[form]) for form in ORDER[: place + 1]] + [
        FORMS[form] for form in ORDER[place + 1 :]
    ]
    assert found(events)[0] == ORDER[place + 1]


def test_within_a_form_the_newest_that_can_be_read_wins() -> None:
    older = record("conversation_snapshot", plain_values(runtime("old")))
    newer = record("conversation_snapshot", plain_values(runtime("new")))
    assert found([older, newer]) == ("snapshot_v2", "new")
    assert found([older, damaged(newer)]) == ("snapshot_v2", "old")


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b"null",
        "[]",
        checkpoint(None),
        {"schema": "session_checkpoint_v2", "version": 2, "conversationHistory": said("half")},
        {"conversationHistory": []},
        {"conversationHistory": "words"},
        {"conversationHistory": [{"role": "user", "content": "a"}, {"role": "user"}]},
        {"conversationHistory": [{"role": "oracle", "content": "a"}]},
        {"conversationHistory": [{"role": ["user"], "content": "a"}]},
        {"conversationHistory": [{"role": "user", "content": ["a"]}]},
        plain_values(runtime("")),
        plain_values(runtime("ab")) | {"transcript": {"head": "\ud800"}},
        plain_values(runtime("", transcript=TranscriptSection(conversation_history=({"role": "x"},)))),
    ],
)
def test_what_is_no_checkpoint_falls_to_the_next(payload: Any) -> None:
    events = [FORMS["snapshot_legacy"], record("checkpoint", payload)]
    assert found(events) == ("snapshot_legacy", "from s1")


@pytest.mark.parametrize("form", ["checkpoint_legacy", "snapshot_legacy", "events_derived"])
def test_an_older_form_becomes_v2_with_its_messages(form: RestoredForm) -> None:
    result = restored([FORMS[form]])
    assert result is not None
    assert result.is_upgraded
    assert len(result.history) == result.snapshot.transcript.message_count > 0
    # The next checkpoint carries it as V2, and is what the session is restored from then.
    again = msgspec.json.encode(checkpoint_of("periodic", entries(exchanges(12)), NEW_YEAR, result.snapshot))
    value = msgspec.json.decode(again)
    assert (value["schema"], value["runtime"]["schema"]) == ("session_checkpoint_v2", "session_runtime_v2")
    next_time = restored([FORMS[form], record("checkpoint", again)])
    assert next_time is not None
    assert (next_time.form, next_time.is_upgraded) == ("checkpoint_v2", False)
    assert next_time.history == result.history


def test_usage_of_zero_is_counted_from_usage_events() -> None:
    events = [
        record("llm_usage", {"delta": {"inputTokens": 100, "outputTokens": 20}}),
        record("usage", b'{"usage": {"prompt_tokens": 7, "completion_tokens": 3, "cached_tokens": 5}}'),
        record("usage", b"{"),
        record("usage", {"inputTokens": -4, "outputTokens": True}),
        record("user_message", {"content": "a", "inputTokens": 1}),
    ]
    wanted = UsageSection(input_tokens=107, output_tokens=23, cached_tokens=5, requests=2)
    for form in ORDER:
        result = restored([FORMS[form], *events])
        assert result is not None
        assert result.snapshot.usage == wanted, form


def test_events_tell_messages_compactions_flushes_and_overflows() -> None:
    told = [
        record("user_message", {"content": "one"}, 1.0),
        record("assistant_message", {"message": {"role": "assistant", "content": "two"}}, 2.0),
        record("tool_result", {"text": "three", "tool_call_id": "c1"}, 3.0),
        record("assistant_message", b"{", 3.5),
        record("flush", {"text": "note", "pathTokens": 900}, 4.0),
        *(
            record(event.type, event.payload, 5.0)
            for event in compaction_made(compaction(), None, conversation(exchanges(2)), "mem_1", 0)
        ),
        record("overflow_recovery_started", {"attempt": 1}, 6.0),
        record("overflow_recovery_completed", {"attempts": 1}, 7.0),
    ]
    result = restored(told)
    assert result is not None
    assert result.history == (
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "tool", "content": "three", "tool_call_id": "c1"},
    )
    assert result.snapshot.loop == LoopSection(
        turns=1,
        compaction_count=1,
        last_compaction_at=5_000,
        last_compaction_tokens_before=820_000,
        last_compaction_tokens_after=400_000,
        last_flush=FlushMark(at=4_000, path_tokens=900),
    )
    assert result.snapshot.recovery == RecoverySection(
        overflow_attempts=1, overflow_recovered=1, last_overflow_at=6_000
    )
    without_ours = [event for event in told if event.type != "compaction_completed"]
    again = restored(without_ours)
    assert again is not None
    assert again.snapshot.loop == result.snapshot.loop


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
KEYS = st.sampled_from(
    ["role", "content", "conversationHistory", "schema", "version", "usage", "transcript", "loop", "message"]
)
CONTENTS = st.one_of(
    VALUES,
    st.binary(max_size=40),
    st.dictionaries(KEYS, VALUES, max_size=5),
    st.lists(
        st.fixed_dictionaries({"role": st.sampled_from(["user", "tool", "x"]), "content": VALUES}), max_size=3
    ).map(lambda history: {"conversationHistory": history}),
    st.sampled_from(
        [plain_values(runtime("ab")) | {"loop": {"turns": value}} for value in (1, -1, "x", None)]
    ),
)
TYPES = st.sampled_from(
    ["checkpoint", "conversation_snapshot", "user_message", "usage", "flush", "compaction_completed", "other"]
)


@given(st.lists(st.builds(record, TYPES, CONTENTS, st.floats()), max_size=6))
def test_no_payload_whatever_raises_and_what_is_restored_can_be_stored(events: list[RecordedEvent]) -> None:
    result = restored(events)
    if result is not None:
        body = msgspec.json.encode(result.snapshot)
        assert msgspec.json.decode(body, type=RuntimeSnapshot) == result.snapshot
