"""What was learned of upstream models: a part of the store's contract, with its promises.

It is nobody's text. What a caller's prompts have taught belongs to its namespace and goes with it; what an
upstream states in its list of models is under the namespace "". Must not know how it was learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

# The namespace of what upstreams state themselves.
OF_ALL = ""


@dataclass(frozen=True, slots=True)
class LearnedWindow:
    """One model's window in its own tokens, as `namespace` learned it of `upstream`; `source` says how."""

    namespace: str
    upstream: str
    model: str
    tokens: int
    source: str
    learned_at: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """What an upstream model's own counts say of ours, for the prompts of one namespace.

    `ratio` is theirs / ours of text over `samples`, `fixed_ratio` that of tool schemas over `fixed_samples`.
    """

    namespace: str
    model: str
    ratio: float
    samples: int
    fixed_ratio: float
    fixed_samples: int


class Learned(Protocol):
    """See the module docstring."""

    async def learned_windows(self, since: float) -> Sequence[LearnedWindow]:
        """Those learned since then, newest first; at most 5,000."""

    async def learn_window(self, window: LearnedWindow, since: float) -> None:
        """Replaces what its namespace knew of the model there; what was learned before `since` is gone."""

    async def forget_windows(self, model: str, namespace: str | None) -> int:
        """Nothing is known of the model's window, to that namespace or (None) to anybody: how many went."""

    async def calibrations(self) -> Sequence[Calibration]:
        """Stored calibrations, newest first; at most 10,000."""

    async def save_calibration(self, calibration: Calibration, now: float) -> None:
        """Replaces the namespace's calibration of the model."""
