"""What can be wrong with a database as a whole, and what an operator does about it.

Must not know which database it is, nor who asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Reason: TypeAlias = Literal["file_missing", "file_replaced", "damaged", "disk_error", "disk_full"]

_REMEDIES: Mapping[Reason, str] = {
    "file_missing": "it, or its log, is gone: put both back where they were, or stop and restore a backup",
    "file_replaced": "another file has its name: put the first one back, or restart to use the other",
    "damaged": "stop, keep a copy of its files, and restore a backup",
    "disk_error": "look at the disk and the system's log, then restart",
    "disk_full": "make room on its disk; erasing works meanwhile",
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """Nothing can be recorded, and why."""

    reason: Reason

    @property
    def remedy(self) -> str:
        """What is the matter and what to do, as half a sentence."""
        return _REMEDIES[self.reason]
