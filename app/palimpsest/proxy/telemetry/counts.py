"""Counts of requests and compactions, of this process and its siblings, as Prometheus reads them.

Counts are held as numbers by name and labels. Labels come from fixed lists, but for models: their number is
bounded here, and names that nobody has published are replaced. No label names a session, a user or a key.
Prometheus' library writes the text; it is imported at the first scrape (20 ms).

The workers of one `serve` ask each other for their numbers, so that one scrape reads them all. Each has an
inbox, a pair of datagram sockets made before the fork. Whoever asks sends one end of a new connection into it
and reads the answer from the other end. No file or port is needed, and no other process can ask. A worker
started in the place of a dead one inherits its inbox.
"""

from __future__ import annotations

import asyncio
import platform
import re
import socket
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import structlog

from palimpsest.core.view.compaction import Author, Compaction
from palimpsest.errors import StoreError
from palimpsest.proxy.jobs import Jobs
from palimpsest.proxy.reports import RequestEntry
from palimpsest.storage.store import Store

# How long a scrape waits for a worker, in seconds. Its event loop answers in milliseconds unless it is stuck;
# Prometheus gives up after 10 s.
_PATIENCE_SECONDS = 2.0
_PIECE_BYTES = 65_536
_ASKING = b"?"
_workers_log = structlog.get_logger("palimpsest.workers")


class Inboxes:
    """The inboxes of `count` workers. Made in the process that forks them."""

    def __init__(self, count: int) -> None:
        self._pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(count)]
        for pair in self._pairs:
            for end in pair:
                end.setblocking(False)

    def at(self, place: int) -> Siblings:
        """The worker at this place, from 0."""
        outboxes = {str(other): pair[1] for other, pair in enumerate(self._pairs) if other != place}
        return Siblings(str(place), self._pairs[place][0], outboxes)


@dataclass(frozen=True, slots=True)
class Siblings:
    """One worker's inbox, and the way into the others' by name. `name`: its own."""

    name: str
    inbox: socket.socket
    outboxes: Mapping[str, socket.socket]

    def answer_with(self, numbers: Callable[[], Awaitable[bytes]], jobs: Jobs) -> Callable[[], None]:
        """Answer the others with `numbers` until the returned function is called."""
        loop = asyncio.get_running_loop()

        async def answered(asker: socket.socket) -> None:
            # OSError: the asker did not wait.
            with asker, suppress(OSError):
                asker.setblocking(False)
                await loop.sock_sendall(asker, await numbers())

        def asked() -> None:
            with suppress(BlockingIOError):
                for descriptor in socket.recv_fds(self.inbox, len(_ASKING), 1)[1]:
                    jobs.start(answered(socket.socket(fileno=descriptor)))

        def stop() -> None:
            loop.remove_reader(self.inbox.fileno())

        loop.add_reader(self.inbox.fileno(), asked)
        return stop

    async def asked(self) -> dict[str, bytes]:
        """The others' numbers by their names; those that do not answer in time are left out, and logged."""
        answers = await asyncio.gather(*map(_asked, self.outboxes.values()))
        found = {name: answer for name, answer in zip(self.outboxes, answers, strict=True) if answer}
        if silent := self.outboxes.keys() - found.keys():
            _workers_log.warning("worker_not_scraped", workers=sorted(silent))
        return found


async def _asked(outbox: socket.socket) -> bytes:
    """The answer; empty when none comes in time, or the inbox is full."""
    mine, theirs = socket.socketpair()
    answer = bytearray()
    with mine, suppress(TimeoutError, OSError):
        mine.setblocking(False)
        with theirs:
            socket.send_fds(outbox, [_ASKING], [theirs.fileno()])
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while piece := await asyncio.get_running_loop().sock_recv(mine, _PIECE_BYTES):
                answer += piece
            return bytes(answer)
    return b""


# A name of `DECLARED`, and the values of its labels.
Series: TypeAlias = tuple[str, ...]
# The label of every model that is not named.
OTHER = "other"
# Models whose names are kept, once the upstream has answered for them: callers choose names.
_KEPT_MODELS = 1_000

# Upper bounds, in seconds. Answers take from 0.1 s (small models, caches) to the 600 s after which the OpenAI
# SDKs give up.
_DURATIONS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
# The proxy adds about 2 ms; a request waits at most `database.store_deadline_seconds` (5) for a commit.
_OVERHEADS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
# A compaction by code takes milliseconds; a model's may take `compaction.deadline_seconds` (20), and twice
# that where another request of the session is waited for first.
_WAITS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0)
# A model that reads a long prompt uncached may take minutes to its first token.
_FIRST_TOKENS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
# Tenths of the window; the usual triggers lie between 0.6 and 0.9. Above 1 the window was guessed too small.
_RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True, slots=True)
class MetricDescription:
    """A counter, or with `bounds` a histogram; `help` names the unit."""

    help: str
    labels: tuple[str, ...]
    bounds: tuple[float, ...] = ()


# Names as they are exposed, less the prefix `palimpsest_`, and `_total` of the counters.
DECLARED: Mapping[str, MetricDescription] = {
    "requests": MetricDescription("Requests below /v1 that have ended.", ("model", "wire", "status")),
    "errors": MetricDescription("Requests that ended with an error.", ("origin", "code", "status")),
    "upstream_requests": MetricDescription(
        "Requests by how the upstream dealt with them.", ("upstream", "outcome")
    ),
    "request_duration_seconds": MetricDescription(
        "From arrival to the last byte.", ("model", "wire"), _DURATIONS
    ),
    "overhead_seconds": MetricDescription(
        "From arrival until the upstream was asked, without waiting for a compaction.", ("wire",), _OVERHEADS
    ),
    "compaction_wait_seconds": MetricDescription("How long requests waited for a compaction.", (), _WAITS),
    "first_token_seconds": MetricDescription(
        "From the request to the upstream to the first byte of its answer.", ("model", "wire"), _FIRST_TOKENS
    ),
    "context_used_ratio": MetricDescription(
        "Share of the model's window that the sent prompt takes.", ("model",), _RATIOS
    ),
    "input_tokens": MetricDescription(
        "Prompt tokens: the upstream's count, or ours where it states none.", ("model",)
    ),
    "output_tokens": MetricDescription(
        "Completion tokens: the upstream's count, or ours where it states none.", ("model",)
    ),
    "cached_tokens": MetricDescription("Prompt tokens that the upstream served from its cache.", ("model",)),
    "cache_written_tokens": MetricDescription(
        "Prompt tokens that were put into the upstream's cache.", ("model",)
    ),
    "tokens_saved": MetricDescription(
        "Prompt tokens that compaction left out of answered requests.", ("model",)
    ),
    "cost_dollars": MetricDescription(
        "What exchanges cost by the prices of their end, where known: in dollars, or the settings' currency.",
        ("model",),
    ),
    "compactions": MetricDescription("Compactions.", ("outcome", "preset", "trigger")),
}
_OUTCOMES: Mapping[Author, str] = {"model": "by_model", "deterministic": "by_code", "none": "masked"}
# In place of a wire's name, for requests that are no exchange.
_PASSED = "passthrough"


class Counts:
    """Counts requests and compactions of one process.

    `numbers` holds counters, `spreads` histograms: a count for each bound and one for values above all, then
    the sum of the values.
    """

    def __init__(self) -> None:
        self.numbers: defaultdict[Series, float] = defaultdict(float)
        self.spreads: dict[Series, list[float]] = {}
        self._models: set[str] = set()

    def ended(self, entry: RequestEntry) -> None:
        """Count a request that has ended. Costs about 5 us (`python -m benchmarks telemetry`)."""
        add = self.numbers
        wire, model = entry.api or _PASSED, self._model_of(entry)
        status = f"{entry.status // 100}xx" if entry.status else "none"
        add["requests", model, wire, status] += 1
        if entry.code is not None:
            exact = str(entry.status) if entry.status and entry.status >= 400 else ""
            add["errors", entry.cause or "proxy", entry.code, exact] += 1
        if entry.upstream is not None:
            # Refused: a 4xx of its own other than 429. Failed: no usable answer, a 429 or a 5xx.
            dealt = "left" if entry.end == "left" else "answered"
            if entry.cause == "upstream":
                is_refused = 400 <= (entry.status or 0) < 500 and entry.status != 429
                dealt = "refused" if is_refused else "failed"
            add["upstream_requests", entry.upstream, dealt] += 1
        if entry.event == "exchange":
            self._exchange(entry, model, wire)

    def _exchange(self, entry: RequestEntry, model: str, wire: str) -> None:
        shown = entry.shown
        self._observe(("request_duration_seconds", model, wire), entry.seconds)
        waited = shown.waited_seconds if shown is not None else None
        if waited is not None:
            self._observe(("compaction_wait_seconds",), waited)
        if entry.prepared_seconds is not None:
            self._observe(("overhead_seconds", wire), max(0.0, entry.prepared_seconds - (waited or 0.0)))
        if entry.first_byte_seconds is not None:
            self._observe(("first_token_seconds", model, wire), entry.first_byte_seconds)
        if shown is not None and shown.window_tokens:
            self._observe(("context_used_ratio", model), shown.for_model(shown.tokens) / shown.window_tokens)
        if entry.answer is None:
            return
        add, usage, turn, answer = self.numbers, entry.answer.usage, entry.turn, entry.answer
        read, written = usage.prompt_tokens, usage.completion_tokens
        if shown is not None:
            # A stream states no usage unless the client asks for it.
            read = shown.for_model(shown.tokens) if read is None else read
            written = shown.for_model(answer.answer_tokens) if written is None else written
        add["input_tokens", model] += read or 0
        add["output_tokens", model] += written or 0
        if usage.cached_tokens:
            add["cached_tokens", model] += usage.cached_tokens
        if usage.written_tokens:
            add["cache_written_tokens", model] += usage.written_tokens
        if turn is not None and shown is not None and not shown.is_original:
            saved = shown.for_model(turn.tokens) - shown.for_model(shown.tokens)
            add["tokens_saved", model] += max(0, saved)

    def settled(self, entry: RequestEntry, cost: float) -> None:
        """Count what was stored as the exchange's cost; it may be stored again, with a later usage."""
        self.numbers["cost_dollars", self._model_of(entry)] += cost - entry.cost
        entry.cost = cost

    def compacted(self, compaction: Compaction, *, is_stored: bool) -> None:
        """Count a compaction that is in force, or that could not be stored or used."""
        outcome = _OUTCOMES[compaction.author] if is_stored else "failed"
        self.numbers["compactions", outcome, compaction.policy, compaction.trigger] += 1

    def _observe(self, series: Series, value: float) -> None:
        bounds = DECLARED[series[0]].bounds
        found = self.spreads.get(series)
        if found is None:
            found = self.spreads[series] = [0.0] * (len(bounds) + 2)
        found[bisect_left(bounds, value)] += 1
        found[-1] += value

    def _model_of(self, entry: RequestEntry) -> str:
        """The model, if the upstream has answered for it; "" when the request names none."""
        model = entry.model
        if model in self._models or not model:
            return model
        if entry.answer is None or entry.code is not None or len(self._models) >= _KEPT_MODELS:
            return OTHER
        self._models.add(model)
        return model

    def named(self, names: Mapping[str, str]) -> tuple[dict[Series, float], dict[Series, list[float]]]:
        """Numbers and spreads by the `names` of models; those of one name are added up.

        Models without a name yet are left out: counted under another one first, that one would decrease.
        """
        numbers: defaultdict[Series, float] = defaultdict(float)
        for series, number in self.numbers.items():
            if (named := _named(series, names)) is not None:
                numbers[named] += number
        spreads: dict[Series, list[float]] = {}
        for series, spread in self.spreads.items():
            if (named := _named(series, names)) is not None:
                before = spreads.get(named, [0.0] * len(spread))
                spreads[named] = [a + b for a, b in zip(before, spread, strict=True)]
        return dict(numbers), spreads


def _named(series: Series, names: Mapping[str, str]) -> Series | None:
    """The series with its model's name, which is the first label where there is one; None without one."""
    if DECLARED[series[0]].labels[:1] != ("model",):
        return series
    name = names.get(series[1])
    return None if name is None else (series[0], name, *series[2:])


if TYPE_CHECKING:
    from prometheus_client.core import Metric

PREFIX = "palimpsest_"
# Model names that may become labels in one process. Each costs some 60 series.
MOST_MODELS = 100
# In an Accept header: a version that is no number, which the library cannot compare with its own.
_ODD_VERSION = re.compile(r"\bversion=(?![0-9]{1,9}(?:\.[0-9]{1,9})*\s*(?:[;,]|$))")


class Snapshot(msgspec.Struct):
    """The numbers of one process: counters, histograms, and what is the case now."""

    numbers: list[tuple[list[str], float]]
    spreads: list[tuple[list[str], list[float]]]
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

    `is_known`: the settings name the model, or price data have it; may take a while. `in_progress` tells how
    many requests are being answered, `open_jobs` how many jobs run behind them.
    """

    def __init__(
        self,
        counts: Counts,
        is_known: Callable[[str], bool],
        store: Store,
        in_progress: Callable[[], int],
        open_jobs: Callable[[], int],
    ) -> None:
        self._counts = counts
        self._is_known = is_known
        self._store = store
        self._in_progress = in_progress
        self._open_jobs = open_jobs
        self._names: dict[str, str] = {"": "", OTHER: OTHER}

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
        numbers, spreads = self._counts.named(self._names)
        return Snapshot(
            [(list(series), number) for series, number in numbers.items()],
            [(list(series), spread) for series, spread in spreads.items()],
            self._in_progress(),
            self._open_jobs(),
        )


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
    from prometheus_client.core import GaugeMetricFamily

    which = ("worker",) if "" not in snapshots else ()
    labelled: dict[tuple[str, ...], Snapshot] = {
        (name,) if which else (): snapshot for name, snapshot in snapshots.items()
    }
    yield from _declared(labelled, which)
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
