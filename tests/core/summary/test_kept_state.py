"""A stored state is shown whichever way of summarising wrote it; what is no state shows nothing."""

from __future__ import annotations

import pytest
from palimpsest.core.summary.rolling.record import RollingRecord
from palimpsest.core.summary.rolling.record import encoded as rolling_bytes
from palimpsest.core.summary.rolling.state import SessionState, StateEntry
from palimpsest.core.summary.styles import slot_count_label, state_fields
from palimpsest.core.summary.working.state import EMPTY, EnvironmentFact, WorkingState
from palimpsest.core.summary.working.state import encoded as working_bytes

WORKING = WorkingState(
    task="Build it", decisions=("Use port 8443",), environment=(EnvironmentFact("Platform", "linux"),)
)
ROLLING = RollingRecord(
    "What was said.", SessionState(decisions=(StateEntry("d1", "Use port 8443"),), issued=1)
)


def test_a_working_state_is_shown_slot_by_slot() -> None:
    fields = state_fields(working_bytes(WORKING))
    assert (fields["task"], fields["decisions"]) == ("Build it", ["Use port 8443"])
    assert fields["environment"] == [{"name": "Platform", "value": "linux"}]
    assert slot_count_label(working_bytes(WORKING)) == "v2:3"


def test_a_rolling_state_is_shown_list_by_list() -> None:
    fields = state_fields(rolling_bytes(ROLLING))
    assert fields["decisions"] == [{"id": "d1", "text": "Use port 8443", "status": "open", "by": ""}]
    assert fields["tasks"] == []
    assert slot_count_label(rolling_bytes(ROLLING)) is None


@pytest.mark.parametrize(
    "stored", [b"", b"{}", b"\xff", b"[" * 3000, working_bytes(EMPTY), rolling_bytes(RollingRecord())]
)
def test_what_is_no_state_shows_nothing(stored: bytes) -> None:
    assert state_fields(stored) == {}
    assert slot_count_label(stored) is None
