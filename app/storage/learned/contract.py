"""What was learned of upstream models: a part of the store's contract, with its promises.

It is nobody's text and belongs to no namespace. Must not know how it was learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Calibration:
    """What an upstream model's own counts say of ours: `ratio` is theirs / ours over `samples`."""

    model: str
    ratio: float
    samples: int


class Learned(Protocol):
    """See the module docstring."""

    async def windows(self) -> dict[tuple[str, str], tuple[int, str]]:
        """Learned windows: (upstream, model) -> (tokens, how it was learned)."""

    async def learn_window(self, upstream: str, model: str, tokens: int, source: str, now: float) -> None:
        """Replaces what was known."""

    async def calibrations(self) -> Sequence[Calibration]:
        """Every stored calibration."""

    async def save_calibration(self, calibration: Calibration, now: float) -> None:
        """Replaces the model's calibration."""
