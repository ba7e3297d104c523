"""The operator's view of namespaces: sizes, use, and failures by their codes; no text of any conversation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from palimpsest.core.budget.prices import dollars_of
from palimpsest.core.utc import DAY
from palimpsest.proxy.compacting.costs import ModelPrices
from palimpsest.storage.accounts import KeyRow
from palimpsest.storage.namespaces import Failure, NamespaceRow, Stored, Turns
from palimpsest.storage.store import Store

MOST_FAILURES = 50


@dataclass(frozen=True, slots=True)
class NamespaceView:
    """A namespace with its issued keys, newest first.

    `size` counts each text once, in bytes. `turns` are those of the last 24 hours, their tokens those of
    today (UTC); `dollars` of today, None where no price is known.
    """

    row: NamespaceRow
    keys: Sequence[KeyRow]
    stored: Stored
    size: int
    turns: Turns
    dollars: float | None


@dataclass(frozen=True, slots=True)
class NamespaceViews:
    """Makes them."""

    store: Store
    prices: ModelPrices

    async def page(self, after: str, limit: int, now: float) -> list[NamespaceView]:
        """Those with ids after `after`, in the order of their ids."""
        return await self._views(await self.store.namespaces.page(after, limit), now)

    async def one(self, ident: str, now: float) -> tuple[NamespaceView, Sequence[Failure]] | None:
        """The namespace with this id, and its newest failures of the last 24 hours; None: there is none."""
        row = await self.store.namespaces.named(ident)
        if row is None:
            return None
        (view,) = await self._views([row], now)
        return view, await self.store.namespaces.failures(ident, now - DAY, MOST_FAILURES)

    async def row(self, ident: str) -> NamespaceRow | None:
        """The namespace with this id."""
        return await self.store.namespaces.named(ident)

    async def _views(self, rows: Sequence[NamespaceRow], now: float) -> list[NamespaceView]:
        there, ids, today = self.store.namespaces, [row.id for row in rows], now - now % DAY
        if not ids:
            return []
        keys: defaultdict[str, list[KeyRow]] = defaultdict(list)
        for key in await self.store.accounts.keys():
            keys[key.namespace].append(key)
        stored = await there.stored(ids)
        sizes = await self.store.old_sessions.sizes()
        turns = await there.turns(ids, now - DAY, today)
        dollars = await self._dollars(ids, today)
        return [
            NamespaceView(
                row,
                keys[row.id],
                stored.get(row.id, Stored()),
                sizes.get(row.id, 0),
                turns.get(row.id, Turns()),
                dollars.get(row.id),
            )
            for row in rows
        ]

    async def _dollars(self, namespaces: Sequence[str], since: float) -> dict[str, float]:
        """What the turns since then have cost, of models whose price is known."""
        found: defaultdict[str, float] = defaultdict(float)
        used = await self.store.namespaces.models(namespaces, since)
        prices = {model: await self.prices.known(model) for model in {each.model for each in used}}
        for each in used:
            if (price := prices[each.model]) is not None:
                cost = dollars_of(each.prompt, each.cached, each.written, each.completion, price)
                found[each.namespace] += cost
        return dict(found)
