"""What a stored compaction's state says, whichever way of summarising wrote it, as plain values.

Knows nothing of when states are written. The forms are those of `rolling.record` and `working.state`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from app.core.summary.rolling.record import Kept, kept_of
from app.core.summary.working.state import EMPTY, decoded

# Slots are filled by the second form of extraction; the first was one summary of everything older.
_SLOT_FORM = 2


def state_fields(stored: bytes) -> dict[str, Any]:
    """The state as JSON values; empty for a way of summarising that keeps none, and for damaged bytes."""
    working = decoded(stored)
    if working != EMPTY:
        return _plain(working)
    kept = kept_of(stored)
    return {} if kept == Kept() else _plain(kept.state)


def slots_of(stored: bytes) -> str | None:
    """How many slots of a working state are filled, as `v2:N` (D23); None for any other state."""
    working = decoded(stored)
    return None if working == EMPTY else f"v{_SLOT_FORM}:{working.populated}"


def _plain(state: object) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(state))
    return plain
