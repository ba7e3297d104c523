"""The numbers of this process, and of its siblings, as Prometheus reads them.

Prometheus' library writes the text; it is imported at the first scrape (20 ms).
"""

from __future__ import annotations

import asyncio
import platform
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from itertools import accumulate
from typing import TYPE_CHECKING

import msgspec

from palimpsest.core.budget.prices import Prices, dollars_of
from palimpsest.errors import StoreError
from palimpsest.proxy.telemetry.counts import DECLARED, OTHER, Counts
from palimpsest.proxy.telemetry.siblings import Siblings
from palimpsest.storage.store import Store

if TYPE_CHECKING:
    from prometheus_client.core import Metric

PREFIX = "palimpsest_"
# Model names that may become labels in one process. Each costs some 60 series.
MOST_MODELS = 100
# In an Accept header: a version that is no number, which the library cannot compare with its own.
_ODD_VERSION = re.compile(r"\bversion=(?![0-9]{1,9}(?:\.[0-9]{1,9})*\s*(?:[;,]|$))")
_COST = "What answers cost, of models whose prices are known: in dollars, or the currency of the settings."


class Snapshot(msgspec.Struct):
    """The numbers of one process: counters, histograms, and what is the case now."""

    numbers: list[tuple[list[str], float]]
    spreads: list[tuple[list[str], list[float]]]
    costs: dict[str, float]
    in_progress: int
    jobs: int


_SNAPSHOT = msgspec.json.Decoder(Snapshot)


_NOW: Mapping[str, tuple[str, Callable[[Snapshot], float]]] = {
    "requests_in_progress": ("Requests below /v1 that are being answered.", lambda each: each.in_progress),
    "background_jobs": ("Jobs behind the answers that have not ended.", lambda each: each.jobs),
}
_STORED: Mapping[str, str] = {
    "store_ready": "1 when a write and a read of the database have just succeeded, else 0.",
    "store_bytes": "Size of the database.",
}


class Metrics:
    """The numbers of this process.

    `is_known`: the settings name the model, or price data have it; may take a while. `prices`: of a model,
    None when nobody has stated them. `in_progress` tells how many requests are being answered, `open_jobs`
    how many jobs run behind them.
    """

    def __init__(
        self,
        counts: Counts,
        is_known: Callable[[str], bool],
        prices: Callable[[str], Awaitable[Prices | None]],
        store: Store,
        in_progress: Callable[[], int],
        open_jobs: Callable[[], int],
    ) -> None:
        self._counts = counts
        self._is_known = is_known
        self._prices_of = prices
        self._store = store
        self._in_progress = in_progress
        self._open_jobs = open_jobs
        self._names: dict[str, str] = {"": "", OTHER: OTHER}
        self._prices: dict[str, Prices | None] = {}

    async def packed(self) -> bytes:
        """The numbers of this process, for a sibling."""
        return msgspec.json.encode(await self._snapshot())

    async def text(self, siblings: Siblings | None, accept: str) -> tuple[bytes, str]:
        """The numbers of all workers, in a format that `accept` names, and its content type.

        The plain text format where `accept` cannot be understood.
        """
        snapshots = {siblings.name if siblings else "": await self._snapshot()}
        if siblings is not None:
            for name, packed in (await siblings.asked()).items():
                snapshots[name] = _SNAPSHOT.decode(packed)
        unready = await self._store.unready()
        try:
            size = None if unready else await self._store.size_bytes()
        except StoreError:
            size = None
        stored = {"store_ready": float(unready is None), "store_bytes": size}
        return await asyncio.to_thread(_written, snapshots, stored, accept)

    async def _snapshot(self) -> Snapshot:
        models = {series[1] for series in self._counts.numbers if series[0] == "requests"}
        if unnamed := sorted(models - self._names.keys()):
            named = await asyncio.to_thread(lambda: [self._is_known(model) for model in unnamed])
            for model, is_known in zip(unnamed, named, strict=True):
                labels = set(self._names.values()) - {"", OTHER}
                is_label = is_known and len(labels) < MOST_MODELS
                self._names[model] = model if is_label else OTHER
        costs = await self._costs(models)
        numbers, spreads = self._counts.named(self._names)
        return Snapshot(
            [(list(series), number) for series, number in numbers.items()],
            [(list(series), spread) for series, spread in spreads.items()],
            costs,
            self._in_progress(),
            self._open_jobs(),
        )

    async def _costs(self, models: Iterable[str]) -> dict[str, float]:
        """What each label's answers have cost, without those of models whose prices are unknown."""
        for model in sorted(models):
            if model not in self._prices:
                self._prices[model] = await self._prices_of(model)
        costs: dict[str, float] = {}
        for model, prices in self._prices.items():
            if prices is not None and ("input_tokens", model) in self._counts.numbers:
                name = self._names.get(model, OTHER)
                kinds = ("input_tokens", "cached_tokens", "cache_written_tokens", "output_tokens")
                read, cached, kept, said = (int(self._counts.numbers.get((kind, model), 0)) for kind in kinds)
                costs[name] = costs.get(name, 0.0) + dollars_of(read, cached, kept, said, prices)
        return costs


def _written(
    snapshots: Mapping[str, Snapshot], stored: Mapping[str, float | None], accept: str
) -> tuple[bytes, str]:
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector

    class Collected(Collector):
        """Hands the families to the library."""

        def collect(self) -> Iterator[Metric]:
            """All families."""
            yield from _families(snapshots, stored)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collected())
    encoder, content_type = choose_encoder("" if _ODD_VERSION.search(accept) else accept)
    return encoder(registry), content_type


def _families(snapshots: Mapping[str, Snapshot], stored: Mapping[str, float | None]) -> Iterator[Metric]:
    """Every metric. A label tells several workers apart, since each begins anew by itself."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    which = ("worker",) if "" not in snapshots else ()
    labelled: dict[tuple[str, ...], Snapshot] = {
        (name,) if which else (): snapshot for name, snapshot in snapshots.items()
    }
    yield from _declared(labelled, which)
    cost = CounterMetricFamily(PREFIX + "cost_dollars", _COST, labels=("model", *which))
    for worker, snapshot in labelled.items():
        for model, dollars in snapshot.costs.items():
            cost.add_metric((model, *worker), dollars)
    yield cost
    for name, (meaning, value_of) in _NOW.items():
        gauge = GaugeMetricFamily(PREFIX + name, meaning, labels=which)
        for worker, snapshot in labelled.items():
            gauge.add_metric(worker, value_of(snapshot))
        yield gauge
    yield GaugeMetricFamily(PREFIX + "workers", "Processes whose numbers these are.", len(snapshots))
    for name, meaning in _STORED.items():
        if (value := stored[name]) is not None:
            yield GaugeMetricFamily(PREFIX + name, meaning, value)
    build = GaugeMetricFamily(PREFIX + "build_info", "The version; always 1.", labels=("version", "python"))
    build.add_metric((version("palimpsest"), platform.python_version()), 1)
    yield build


def _declared(labelled: Mapping[tuple[str, ...], Snapshot], which: tuple[str, ...]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

    for name, declared in DECLARED.items():
        labels = (*declared.labels, *which)
        if not declared.bounds:
            counter = CounterMetricFamily(PREFIX + name, declared.help, labels=labels)
            for worker, snapshot in labelled.items():
                for series, number in snapshot.numbers:
                    if series[0] == name:
                        counter.add_metric((*series[1:], *worker), number)
            yield counter
            continue
        edges = [*map(str, declared.bounds), "+Inf"]
        histogram = HistogramMetricFamily(PREFIX + name, declared.help, labels=labels)
        for worker, snapshot in labelled.items():
            for series, spread in snapshot.spreads:
                if series[0] == name:
                    buckets = list(zip(edges, accumulate(spread[:-1]), strict=True))
                    histogram.add_metric((*series[1:], *worker), buckets, spread[-1])
        yield histogram
