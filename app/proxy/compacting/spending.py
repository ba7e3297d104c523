"""What summaries cost a namespace on a day, and the limit to it (idea 5).

Days are UTC. What was spent is kept in the store; a copy of the day's sum in memory answers most questions.
Knows nothing of prices: tokens are counted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import structlog

from app.core.runtime.events import spending_limit
from app.core.wire.answered import Usage
from app.errors import StoreError
from app.storage.contract import Store
from app.storage.journal import Event
from app.storage.journal import Spending as Spent

_log = structlog.get_logger("palimpsest.spending")
# Namespaces come and go, so what is remembered of them is bounded.
REMEMBERED_NAMESPACES = 10_000
# Seconds.
DAY = 86_400


class Spending:
    """One for the application. `limit_tokens` is for each namespace and day; 0 sets none.

    `holder` tells this server and run from all others.
    """

    def __init__(self, store: Store, limit_tokens: int, clock: Callable[[], float], holder: str) -> None:
        self._store = store
        self._limit = limit_tokens
        self._clock = clock
        self._holder = holder
        # Namespace to the day, the tokens spent on it, and whether it was said that the limit is reached.
        self._known: OrderedDict[str, tuple[str, int, bool]] = OrderedDict()

    def is_spent(self, namespace: str) -> bool:
        """True when the limit is known to be reached. Asks nobody."""
        return bool(self._limit) and self._today(namespace)[1] >= self._limit

    async def look(self, namespace: str) -> None:
        """What other servers and earlier runs have spent today is known, if the store can say it."""
        if not self._limit:
            return
        day, tokens, is_told = self._today(namespace)
        try:
            stored = await self._store.spending(namespace, day)
        except StoreError as error:
            _log.warning("spending_not_read", error=type(error).__name__)
            return
        tokens = max(tokens, stored.prompt_tokens + stored.completion_tokens)
        self._remember(namespace, (day, tokens, is_told))

    async def add(self, namespace: str, usage: Usage) -> None:
        """One more call is accounted for; in memory at least."""
        day, tokens, is_told = self._today(namespace)
        prompt, completion = usage.prompt_tokens or 0, usage.completion_tokens or 0
        self._remember(namespace, (day, tokens + prompt + completion, is_told))
        spent = Spent(1, prompt, completion, usage.cached_tokens or 0)
        try:
            await self._store.add_spending(namespace, day, spent)
        except StoreError as error:
            _log.warning("spending_not_stored", error=type(error).__name__)

    async def tell(self, namespace: str, session: str) -> None:
        """The session has the event that the limit is reached, once a day in the namespace."""
        day, tokens, is_told = self._today(namespace)
        if is_told:
            return
        self._remember(namespace, (day, tokens, True))
        _log.warning("spending_limit", session=session, tokens=tokens, limit=self._limit)
        now = self._clock()
        said = spending_limit(tokens, self._limit, "tokens of summaries a day")
        event = Event(f"{said.type}-{day}", said.type, msgspec.json.encode(said.payload), now)
        try:
            # Held until the day is over, so that another run or another server does not say it again.
            if await self._store.take_lease(_lease(namespace), self._holder, now, DAY - now % DAY):
                await self._store.add_events(namespace, session, [event])
        except StoreError as error:
            _log.warning("event_not_stored", error=type(error).__name__, session=session)

    def _today(self, namespace: str) -> tuple[str, int, bool]:
        day = datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%d")
        known = self._known.get(namespace)
        return known if known is not None and known[0] == day else (day, 0, False)

    def _remember(self, namespace: str, known: tuple[str, int, bool]) -> None:
        self._known[namespace] = known
        self._known.move_to_end(namespace)
        if len(self._known) > REMEMBERED_NAMESPACES:
            self._known.popitem(last=False)


def _lease(namespace: str) -> str:
    return f"spending_limit:{namespace}"
