"""Prices of models. Published ones are looked up in the background; until then typical ratios are used."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from palimpsest.core.budget.prices import Prices
from palimpsest.proxy.jobs import Jobs

# Callers choose model names, so that what is remembered is bounded.
REMEMBERED_MODELS = 1_000
_log = structlog.get_logger("palimpsest.costs")


class ModelPrices:
    """Prices by model. `configured` and `published` return a model's prices, None when unknown."""

    def __init__(
        self,
        jobs: Jobs,
        configured: Callable[[str], Prices | None],
        published: Callable[[str], Prices | None],
    ) -> None:
        self._jobs = jobs
        self._configured = configured
        self._published = published
        self._known: dict[str, Prices] = {}

    def of(self, model: str) -> Prices:
        """The prices known now; an unknown model is looked up in the background."""
        if model not in self._known:
            configured = self._configured(model)
            if len(self._known) >= REMEMBERED_MODELS:
                self._known.pop(next(iter(self._known)))
            self._known[model] = configured or Prices()
            if configured is None:
                self._jobs.start(self._look_up(model))
        return self._known[model]

    async def known(self, model: str) -> Prices | None:
        """The model's prices as configured or published; None when nobody has stated them."""
        found = self._configured(model)
        if found is None:
            try:
                found = await asyncio.to_thread(self._published, model)
            except (ImportError, ValueError, AttributeError) as error:
                _log.warning("no_price_data", error=type(error).__name__, model=model)
        return found

    async def _look_up(self, model: str) -> None:
        prices = await self.known(model)
        if prices is not None and model in self._known:
            self._known[model] = prices
