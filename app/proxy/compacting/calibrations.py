"""How far each upstream model's counts are from ours, learned from its usage and kept in the store.

The arithmetic is `app.core.budget.calibration`. Knows nothing of budgets.
"""

from __future__ import annotations

import time

from app.core.budget.calibration import Measure, Usage, calibrated
from app.proxy.jobs import Jobs
from app.storage.contract import Store
from app.storage.learned.contract import Calibration

# A ratio is stored again when it has moved by this much: it is an optimisation, not a record.
WORTH_STORING = 0.005
# Model names come from callers, so what is kept of them is bounded.
REMEMBERED_MODELS = 500


class Calibrations:
    """One per application."""

    def __init__(self, store: Store, jobs: Jobs) -> None:
        self._store = store
        self._jobs = jobs
        self._measures: dict[str, Measure] = {}
        self._stored: dict[str, float] = {}

    async def load(self) -> None:
        """What earlier runs learned is known again."""
        for row in await self._store.calibrations():
            self._measures[row.model] = Measure(row.ratio, row.samples)
            self._stored[row.model] = row.ratio

    def measure_of(self, model: str) -> Measure:
        """How the model counts, and from how many prompts that is known."""
        return self._measures.get(model, Measure())

    def ratio_of(self, model: str) -> float:
        """The model's tokens for one of ours; 1.0 while nothing is known."""
        measure = self._measures.get(model)
        return measure.ratio if measure else 1.0

    def observe(self, model: str, ours: int, theirs: int) -> None:
        """One more prompt, counted by both."""
        before = self._measures.get(model, Measure())
        if model not in self._measures and len(self._measures) >= REMEMBERED_MODELS:
            return
        after = self._measures[model] = calibrated(before, Usage(ours, theirs))
        if after is before or abs(after.ratio - self._stored.get(model, 0.0)) < WORTH_STORING:
            return
        self._stored[model] = after.ratio
        row = Calibration(model, after.ratio, after.samples)
        self._jobs.start(self._store.save_calibration(row, time.time()))
