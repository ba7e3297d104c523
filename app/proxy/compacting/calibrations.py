"""How far each upstream model's counts are from ours, learned from its usage and kept in the store.

Learned for each namespace from its own prompts, so that nobody's odd ones (one letter a thousand times,
pictures, fields that a server leaves out) move what others are counted by. The arithmetic is
`app.core.budget.calibration`. Knows nothing of budgets.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict

from app.core.budget.calibration import Measure, Measures
from app.core.budget.cut import Counted, Growth, taught
from app.core.wire.chat_request import ChatRequest
from app.proxy.compacting.model_tokens import ModelTokens
from app.proxy.jobs import Jobs
from app.storage.contract import Store
from app.storage.learned.contract import Calibration

# A ratio is stored again when it has moved by this much: it is an optimisation, not a record.
WORTH_STORING = 0.005
# Namespaces and model names come from callers, so what is kept of them is bounded.
REMEMBERED = 10_000
_UNKNOWN = Measures()


class Calibrations:
    """One per application."""

    def __init__(self, store: Store, jobs: Jobs, tokens: ModelTokens) -> None:
        self._store = store
        self._jobs = jobs
        self._tokens = tokens
        # By namespace and model; what was stored of it last beside it.
        self._known: OrderedDict[tuple[str, str], tuple[Measures, Measures]] = OrderedDict()

    async def load(self) -> None:
        """What earlier runs learned is known again."""
        for row in reversed(await self._store.calibrations()):
            measures = Measures(Measure(row.ratio, row.samples), Measure(row.fixed_ratio, row.fixed_samples))
            self._remember((row.namespace, row.model), measures, measures)

    def measures_of(self, namespace: str, model: str) -> Measures:
        """How the model counts the namespace's prompts, and from how many that is known."""
        known = self._known.get((namespace, model))
        return known[0] if known else _UNKNOWN

    def ratio_of(self, namespace: str, model: str) -> float:
        """The model's tokens for one of ours; 1.0 while nothing is known."""
        return self.measures_of(namespace, model).text.ratio

    def fixed_tokens(self, namespace: str, request: ChatRequest) -> int:
        """What every view of the request carries besides messages, worth so many tokens of text."""
        share = self.measures_of(namespace, request.model).fixed_share
        return math.ceil(self.uncalibrated(request) * share)

    def uncalibrated(self, request: ChatRequest) -> int:
        """As `fixed_tokens`, by our own count alone."""
        return self._tokens.fixed_tokens(request)

    def observe(self, namespace: str, model: str, now: Counted, growth: Growth | None) -> None:
        """One more prompt that was not cut, counted by both; `growth` is its conversation's."""
        known, stored = self._known.get((namespace, model), (_UNKNOWN, _UNKNOWN))
        after = taught(known, now, growth)
        if after == known:
            return
        is_worth_storing = _distance(after, stored) >= WORTH_STORING
        self._remember((namespace, model), after, after if is_worth_storing else stored)
        if is_worth_storing:
            row = Calibration(
                namespace, model, after.text.ratio, after.text.samples, after.fixed.ratio, after.fixed.samples
            )
            self._jobs.start(self._store.save_calibration(row, time.time()))

    def _remember(self, place: tuple[str, str], measures: Measures, stored: Measures) -> None:
        self._known[place] = measures, stored
        self._known.move_to_end(place)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


def _distance(one: Measures, other: Measures) -> float:
    """How much they differ; a first sample differs from none."""
    if min(one.text.samples, 1) != min(other.text.samples, 1):
        return 1.0
    if min(one.fixed.samples, 1) != min(other.fixed.samples, 1):
        return 1.0
    return max(abs(one.text.ratio - other.text.ratio), abs(one.fixed.ratio - other.fixed.ratio))
