"""A stored state is shown whichever way of summarising wrote it; what is no state shows nothing."""

from __future__ import annotations

import pytest

from app.core.summary.kept_state import slots_of, state_fields
from app.core.summary.rolling.record import Kept
from app.core.summary.rolling.record import encoded as rolling_bytes
from app.core.summary.rolling.state import Entry, SessionState
from app.core.summary.working.state import EMPTY, Fact, WorkingState
from app.core.summary.working.state import encoded as working_bytes

WORKING = WorkingState(
    task="Build it", decisions=("Use port 8443",), environment=(Fact("Platform", "linux"),)
)
ROLLING = Kept("What was said.", SessionState(decisions=(Entry("d1", "Use port 8443"),), issued=1))


def test_a_working_state_is_shown_slot_by_slot() -> None:
    fields = state_fields(working_bytes(WORKING))
    assert (fields["task"], fields["decisions"]) == ("Build it", ["Use port 8443"])
    assert fields["environment"] == [{"name": "Platform", "value": "linux"}]
    assert slots_of(working_bytes(WORKING)) == "v2:3"


def test_a_rolling_state_is_shown_list_by_list() -> None:
    fields = state_fields(rolling_bytes(ROLLING))
    assert fields["decisions"] == [{"id": "d1", "text": "Use port 8443", "status": "open", "by": ""}]
    assert fields["tasks"] == []
    assert slots_of(rolling_bytes(ROLLING)) is None


@pytest.mark.parametrize(
    "stored", [b"", b"{}", b"\xff", b"[" * 3000, working_bytes(EMPTY), rolling_bytes(Kept())]
)
def test_what_is_no_state_shows_nothing(stored: bytes) -> None:
    assert state_fields(stored) == {}
    assert slots_of(stored) is None
