"""Prices of models, and the daily limit on tokens spent for summaries.

Published prices are looked up in the background; until then typical ratios are used. Days are UTC. Spending
is kept in the store, with a copy of the day's sum in memory.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

import msgspec
import structlog

from palimpsest.core.budget.economy import Costs, Prices
from palimpsest.core.runtime.events import Event
from palimpsest.core.utc import day_of, left_of_day
from palimpsest.core.wire.chat_answers import Usage
from palimpsest.errors import StoreError
from palimpsest.proxy.jobs import Jobs
from palimpsest.storage.journal import EventRow, Journal, TokensSpent

# Callers choose model names, so that what is remembered is bounded.
REMEMBERED_MODELS = 1_000
_log = structlog.get_logger("palimpsest.costs")


class ModelCosts:
    """Prices by model. `configured` and `published` return a model's prices, None when unknown.

    `cache_seconds` returns how long the model's upstream keeps a prompt cached; 0: for ever.
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
        """The costs known now; an unknown model is looked up in the background."""
        prices = self._known.get(model)
        if prices is None:
            prices = self._configured(model)
            self._remember(model, prices or Prices())
            if prices is None:
                self._jobs.start(self._look_up(model))
        return Costs(prices or Prices(), self._asks_model, self._cache_seconds(model))

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
        if prices is not None:
            self._remember(model, prices)

    def _remember(self, model: str, prices: Prices) -> None:
        if len(self._known) >= REMEMBERED_MODELS:
            self._known.pop(next(iter(self._known)))
        self._known[model] = prices


_spending_log = structlog.get_logger("palimpsest.spending")
# Bound on the namespaces remembered.
REMEMBERED_NAMESPACES = 10_000


class SpendingLimit:
    """Limits the tokens spent on summaries to `limit_tokens` for each namespace and day; 0: no limit.

    `holder` identifies this server and run.
    """

    def __init__(self, journal: Journal, limit_tokens: int, clock: Callable[[], float], holder: str) -> None:
        self._journal = journal
        self._limit = limit_tokens
        self._clock = clock
        self._holder = holder
        # By namespace: the day, the tokens spent on it, and whether reaching the limit was reported.
        self._known: OrderedDict[str, tuple[str, int, bool]] = OrderedDict()

    def is_spent(self, namespace: str) -> bool:
        """True when the limit is reached, as far as this process knows."""
        return bool(self._limit) and self._today(namespace)[1] >= self._limit

    async def look(self, namespace: str) -> None:
        """Read today's spending of other servers and earlier runs; a store error is logged."""
        if not self._limit:
            return
        day, tokens, is_reported = self._today(namespace)
        try:
            stored = await self._journal.spending(namespace, day)
        except StoreError as error:
            _spending_log.warning("spending_not_read", error=type(error).__name__)
            return
        tokens = max(tokens, stored.prompt_tokens + stored.completion_tokens)
        self._remember(namespace, (day, tokens, is_reported))

    async def add(self, namespace: str, usage: Usage) -> None:
        """Add one call; a store error is logged, and the call counts in memory."""
        day, tokens, is_reported = self._today(namespace)
        prompt, completion = usage.prompt_tokens or 0, usage.completion_tokens or 0
        self._remember(namespace, (day, tokens + prompt + completion, is_reported))
        spent = TokensSpent(1, prompt, completion, usage.cached_tokens or 0)
        try:
            await self._journal.add_spending(namespace, day, spent)
        except StoreError as error:
            _spending_log.warning("spending_not_stored", error=type(error).__name__)

    async def tell(self, namespace: str, session: str) -> None:
        """Write the event that the limit is reached into the session, once a day for the namespace."""
        day, tokens, is_reported = self._today(namespace)
        if is_reported:
            return
        self._remember(namespace, (day, tokens, True))
        _spending_log.warning("spending_limit", session=session, tokens=tokens, limit=self._limit)
        now = self._clock()
        what = "tokens of summaries a day"
        said = Event("spending_limit", {"spent": tokens, "limit": self._limit, "what": what})
        event = EventRow(f"{said.type}-{day}", said.type, msgspec.json.encode(said.payload), now)
        try:
            # Held until the end of the day, so that no other run or server repeats the event.
            if await self._journal.take_lease(_lease(namespace), self._holder, now, left_of_day(now)):
                await self._journal.add_events(namespace, session, [event])
        except StoreError as error:
            _spending_log.warning("event_not_stored", error=type(error).__name__, session=session)

    def _today(self, namespace: str) -> tuple[str, int, bool]:
        day = day_of(self._clock())
        known = self._known.get(namespace)
        return known if known is not None and known[0] == day else (day, 0, False)

    def _remember(self, namespace: str, known: tuple[str, int, bool]) -> None:
        self._known[namespace] = known
        self._known.move_to_end(namespace)
        if len(self._known) > REMEMBERED_NAMESPACES:
            self._known.popitem(last=False)


def _lease(namespace: str) -> str:
    return f"spending_limit:{namespace}"
