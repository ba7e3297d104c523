"""Events in words: every type has some, whatever its payload holds."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palimpsest.api.ui.entries import CHOICES, age_of, entry_of, told_of
from palimpsest.core.runtime.events import EVENT_TYPES, SUMMARIZED_TITLE
from palimpsest.core.wire.json_text import encoded
from palimpsest.storage.journal import EventRow

FIELDS = (
    *("title", "summary", "removedCount", "tokensBefore", "tokensAfter", "tokensFreed", "proactive", "kind"),
    *("trigger", "reason", "author", "model", "text", "tokens", "slackTokens", "ceilingTokens", "replaces"),
    *("attempt", "attempts", "most", "code", "position", "restoredId", "faults", "spent", "limit", "what"),
    *("counted", "window"),
    *("tool", "asked", "via", "resultCount"),
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def stored(kind: str, payload: bytes, at: float = 0.0) -> EventRow:
    return EventRow("e1", kind, payload, at, 7)


@pytest.mark.parametrize("kind", EVENT_TYPES)
def test_every_type_has_words_of_its_own(kind: str) -> None:
    told = told_of(kind, {})
    assert told.title != kind
    assert told.sentence.endswith(".")
    assert "\n" not in told.sentence


@given(st.sampled_from(EVENT_TYPES), st.dictionaries(st.sampled_from(FIELDS), PLAIN))
def test_no_payload_is_too_odd_to_be_told(kind: str, payload: dict[str, object]) -> None:
    entry = entry_of(stored(kind, encoded(payload)))
    assert (entry.seq, entry.kind) == (7, kind)
    assert entry.told.title
    assert (entry.summarized is not None) == (kind == "context_summarized")


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"null", b'"x"', b"\xff"])
def test_what_cannot_be_read_is_said_to_be_so(payload: bytes) -> None:
    entry = entry_of(stored("context_summarized", payload))
    assert (entry.told.tone, entry.summarized) == ("warning", None)


def test_failures_are_told_as_failures() -> None:
    tones: dict[str, str] = {kind: told_of(kind, {}).tone for kind in EVENT_TYPES}
    assert {kind for kind, tone in tones.items() if tone == "failure"} == {
        "compaction_failed",
        "overflow_recovery_failed",
    }
    assert {tones[kind] for kind in CHOICES["trouble"]} == {"failure", "warning"}
    assert {kind for choice in CHOICES.values() for kind in choice} <= set(EVENT_TYPES)


def test_a_compaction_is_told_with_its_numbers() -> None:
    payload = {"removedCount": 18, "tokensBefore": 14_610, "tokensAfter": 6_380}
    told = told_of("context_summarized", payload)
    assert told.title == SUMMARIZED_TITLE == "Session context compacted"
    assert told.sentence == "18 messages gave way to a summary, 14,610 \u2192 6,380 tokens."


@pytest.mark.parametrize(
    ("seconds", "age"),
    [
        (-5, "just now"),
        (59.9, "just now"),
        (60, "1 minute ago"),
        (7_199, "1 hour ago"),
        (7_200, "2 hours ago"),
        (86_400 * 1_500, "1,500 days ago"),
    ],
)
def test_an_age_is_told_in_its_largest_unit(seconds: float, age: str) -> None:
    assert age_of(seconds) == age


@pytest.mark.parametrize("at", [float("inf"), float("nan"), 1e300, -1e300])
def test_a_time_that_no_calendar_has_is_the_beginning_of_time(at: float) -> None:
    assert entry_of(stored("memory", b"{}", at)).at == datetime.fromtimestamp(0, UTC)
