"""What conversations cost, model by model: from the settings, else from published prices, else usual ratios.

Knows nothing of what is decided by it. Published prices are looked up beside the turns: until they are
there, the usual ratios count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from app.core.budget.derived import Costs
from app.core.budget.economy import Prices
from app.proxy.jobs import Jobs

# Models are the caller's to name, so what is remembered of them is bounded.
REMEMBERED_MODELS = 1_000
_log = structlog.get_logger("palimpsest.costs")


class ModelCosts:
    """One for the application. `configured` and `published` give a model's prices, None when unknown.

    `cache_seconds` gives how long its upstream's cache keeps a prompt; 0: for ever.
    """

    def __init__(
        self,
        jobs: Jobs,
        configured: Callable[[str], Prices | None],
        published: Callable[[str], Prices | None],
        cache_seconds: Callable[[str], int],
        *,
        asks_model: bool,
    ) -> None:
        self._jobs = jobs
        self._configured = configured
        self._published = published
        self._cache_seconds = cache_seconds
        self._asks_model = asks_model
        self._known: dict[str, Prices] = {}

    def of(self, model: str) -> Costs:
        """What is known now."""
        prices = self._known.get(model)
        if prices is None:
            prices = self._configured(model)
            self._remember(model, prices or Prices())
            if prices is None:
                self._jobs.start(self._look_up(model))
        return Costs(prices or Prices(), self._asks_model, self._cache_seconds(model))

    async def _look_up(self, model: str) -> None:
        try:
            prices = await asyncio.to_thread(self._published, model)
        except (ImportError, ValueError, AttributeError) as error:
            _log.warning("no_price_data", error=type(error).__name__, model=model)
            return
        if prices is not None:
            self._remember(model, prices)

    def _remember(self, model: str, prices: Prices) -> None:
        if len(self._known) >= REMEMBERED_MODELS:
            self._known.pop(next(iter(self._known)))
        self._known[model] = prices
