"""Opens the parts that several others need: the store, upstreams, counting, what is behind the answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import structlog
import uuid_utils

from palimpsest.api.metrics import MetricsPage
from palimpsest.core.urls import without_query
from palimpsest.errors import SettingsError, StoreError
from palimpsest.main.upstreams import (
    credential_names,
    key_of,
    opened_destinations,
    opened_summarizers,
    opened_worker,
    upstream_options,
)
from palimpsest.proxy.access import Access, UnprovenNamespaces
from palimpsest.proxy.admin_key import AdminKey
from palimpsest.proxy.background import Background
from palimpsest.proxy.compacting.costs import ModelPrices
from palimpsest.proxy.compacting.windows import REMEMBERED_MODELS, Windows, WindowSources
from palimpsest.proxy.destinations import Destinations
from palimpsest.proxy.erasing import Eraser, Forgetting, Scrubber
from palimpsest.proxy.jobs import Again, Jobs
from palimpsest.proxy.journal.daily_log import DailyLog
from palimpsest.proxy.kept_answers import KeptAnswers, RefusalMemory
from palimpsest.proxy.operator import OperatorAccess
from palimpsest.proxy.pepper import Pepper, load_pepper, wrong_pepper
from palimpsest.proxy.reports import RequestLog
from palimpsest.proxy.sessions.in_flight import InFlight
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.proxy.sessions.recovery import Presence, recover
from palimpsest.proxy.sessions.tombstones import Tombstones
from palimpsest.proxy.store_watch import StoreWatch
from palimpsest.proxy.telemetry.counts import Counts
from palimpsest.proxy.telemetry.metrics import Metrics
from palimpsest.proxy.telemetry.siblings import Siblings
from palimpsest.proxy.token_counts import Calibrations, ModelTokens
from palimpsest.settings.settings import (
    Settings,
    asked_name,
    configured_prices,
    configured_window,
    model_settings,
    to_policy,
)
from palimpsest.storage.erasure import RecentlyErased
from palimpsest.storage.opening import bound_pepper
from palimpsest.storage.store import Store, open_store
from palimpsest.tokenizer.counting import Counter, Tokenizer
from palimpsest.upstream.address import versioned
from palimpsest.upstream.models import prices_from_model_data, window_from_model_data, window_from_upstream
from palimpsest.upstream.summarizer import Summarizers, Worker

if TYPE_CHECKING:
    from palimpsest.proxy.telemetry.tracing import Tracer

_log = structlog.get_logger("palimpsest.upstream")


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that several others need, one of each.

    `stopping` is set when the process begins to stop. `jobs` run behind the answers, `chores` beside them.
    """

    settings: Settings
    stopping: asyncio.Event
    store: Store
    jobs: Jobs
    chores: Jobs
    background: Background
    tokenizer: Tokenizer
    tokens: ModelTokens
    reader: MessageReader
    calibrations: Calibrations
    prices: ModelPrices
    windows: Windows
    access: Access
    operator: OperatorAccess
    newcomers: UnprovenNamespaces
    in_flight: InFlight
    erasure: Eraser
    destinations: Destinations
    summarizers: Summarizers
    worker: Worker | None
    kept: KeptAnswers
    counts: Counts | None
    log: RequestLog


async def opened_parts(
    settings: Settings, tokenizer: Tokenizer, stack: AsyncExitStack, stopping: asyncio.Event
) -> Parts:
    """Open everything that must be closed; `stack` closes it in reverse order.

    Jobs are drained first, so that open relays are recorded while their upstreams are still open.
    SettingsError when the settings cannot be used; StoreError.
    """
    store, pepper = await _opened_store(settings, stack)
    tokenizer.load()
    tokens = _tokens(settings, tokenizer)
    reader = MessageReader(
        lambda model: tokens.counter_of(model).count_message,
        settings.limits.message_cache_bytes,
        tokens.knows,
    )
    await _present(settings, store, reader, stack)
    destinations = await opened_destinations(settings, stack)
    summarizers = await opened_summarizers(settings, destinations, stack)
    worker = await opened_worker(settings, stack)
    jobs, chores, in_flight = Jobs(), Jobs(), InFlight()
    background = Background(chores)
    stack.push_async_callback(background.close)
    for running in (chores, jobs):
        stack.push_async_callback(
            running.drain, settings.server.shutdown_seconds, settings.database.store_deadline_seconds
        )
    gone, folder = RecentlyErased(), settings.compaction.daily_log_folder
    erasure = Eraser(
        store=store,
        jobs=chores,
        gone=gone,
        # Most readers that prevent a scrub finish in a second; one that stays must not cost an attempt each.
        scrubbing=Scrubber(store.erasure, chores, stopping, Again(60.0)),
        tombstones=Tombstones(store.erasure, pepper),
        forgetting=Forgetting(jobs, chores, stopping, in_flight, reader, Again(60.0)),
        log=DailyLog(folder, gone) if folder is not None else None,
        clock=time.time,
    )
    access, operator = _access(settings, store, pepper, jobs)
    counts = Counts() if settings.telemetry.metrics else None
    parts = Parts(
        settings=settings,
        stopping=stopping,
        store=store,
        jobs=jobs,
        chores=chores,
        background=background,
        tokenizer=tokenizer,
        tokens=tokens,
        reader=reader,
        calibrations=Calibrations(store.accounts, jobs, tokens),
        prices=ModelPrices(
            jobs,
            partial(configured_prices, settings),
            lambda model: prices_from_model_data(asked_name(settings, model)),
        ),
        windows=_windows(settings, store, jobs, destinations),
        access=access,
        operator=operator,
        newcomers=_newcomers(settings, access, erasure),
        in_flight=in_flight,
        erasure=erasure,
        destinations=destinations,
        summarizers=summarizers,
        worker=worker,
        kept=KeptAnswers(RefusalMemory(), are_kept=settings.upstream.stores_responses),
        counts=counts,
        log=RequestLog(chores, stopping, [counts.ended] if counts is not None else ()),
    )
    await parts.windows.load()
    await _taken_up(parts, stack)
    return parts


async def _opened_store(settings: Settings, stack: AsyncExitStack) -> tuple[Store, Pepper]:
    database, url = settings.database, settings.database.url.get_secret_value()
    # First: with another pepper nothing is written.
    pepper = load_pepper(database.pepper_file, await bound_pepper(url))
    store = await open_store(
        url,
        synchronous=database.synchronous,
        deadline_seconds=database.store_deadline_seconds,
        new_id=new_id,
        sole=True,
    )
    stack.push_async_callback(store.close)
    # Another server may have bound the database to its own pepper meanwhile.
    if not await store.accounts.bind_pepper(pepper.fingerprint):
        raise wrong_pepper(database.pepper_file)
    return store, pepper


async def _present(settings: Settings, store: Store, reader: MessageReader, stack: AsyncExitStack) -> None:
    """Announce this server to others on a shared database until `stack` is closed, after its jobs."""
    journal = store.journal
    if journal.server is None:
        return

    async def left() -> None:
        with suppress(StoreError):
            await journal.leave()

    async def found() -> None:
        await recover(store.exchanges, reader, time.time())

    await journal.beat()
    stack.push_async_callback(left)
    keep(settings, stack, Presence(journal, found, settings.database.heartbeat_timeout_seconds).keep())


async def _taken_up(parts: Parts, stack: AsyncExitStack) -> None:
    """Load calibrations, continue work that a stop or a kill interrupted, and watch the store."""
    store = parts.store
    await parts.calibrations.load()
    await recover(store.exchanges, parts.reader, time.time())
    if await store.search.needs_scrub() or await store.erasure.is_unfinished():
        # The last server stopped between an erase and the end of its scrub.
        parts.erasure.scrubbing.begin()
    keep(parts.settings, stack, StoreWatch(store, parts.settings.database.erase_reserve_bytes).keep())


def keep(settings: Settings, stack: AsyncExitStack, *works: Coroutine[Any, Any, None]) -> None:
    """Run what has no end until `stack` is closed."""
    running = Jobs()
    stack.push_async_callback(running.drain, 0, settings.database.store_deadline_seconds)
    for work in works:
        running.start(work)


def _tokens(settings: Settings, tokenizer: Tokenizer) -> ModelTokens:
    def counter_for(model: str) -> Counter:
        entry = model_settings(settings, model)
        return tokenizer.counter_for(asked_name(settings, model), entry.tokenizer if entry else None)

    return ModelTokens(counter_for)


def _access(settings: Settings, store: Store, pepper: Pepper, jobs: Jobs) -> tuple[Access, OperatorAccess]:
    """What callers' keys open, and what the operator's does."""
    who = settings.access
    given = who.admin_key
    admin_key = AdminKey(given.get_secret_value()) if given is not None else None
    access = Access(store.accounts, jobs, pepper, who, admin_key, credential_names(settings))
    return access, OperatorAccess(admin_key, store.namespaces, reads=who.admin_reads)


def _newcomers(settings: Settings, access: Access, erasure: Eraser) -> UnprovenNamespaces:
    """The quotas of unproven namespaces."""
    who = settings.access

    def erased(namespaces: Sequence[str]) -> None:
        access.forget(namespaces)
        erasure.swept(namespaces)

    return UnprovenNamespaces(erasure.store, erased, time.time, messages=who.unproven_messages)


def _windows(settings: Settings, store: Store, jobs: Jobs, destinations: Destinations) -> Windows:
    names = credential_names(settings)

    async def ask(model: str, headers: list[tuple[bytes, bytes]]) -> int | None:
        there, seconds = destinations.of(model), settings.window.lookup_seconds
        return await window_from_upstream(there.upstream, there.asked_for(model), headers, seconds, names)

    sources = WindowSources(
        upstream=lambda model: without_query(destinations.of(model).upstream.url("/")),
        configured=lru_cache(REMEMBERED_MODELS)(partial(configured_window, settings)),
        ask=ask,
        model_data=lambda model: window_from_model_data(asked_name(settings, model)),
        default_tokens=to_policy(settings, "").assumed_window_tokens,
        lookup_seconds=settings.window.lookup_seconds,
    )
    return Windows(store.accounts, jobs, sources)


def metrics_of(parts: Parts, siblings: Siblings | None, stack: AsyncExitStack) -> MetricsPage | None:
    """The numbers of this process, for `siblings` too until `stack` is closed; None if they are off."""
    settings = parts.settings
    if parts.counts is None:
        return None

    def is_known(model: str) -> bool:
        # An entry that matches all names none.
        entry = model_settings(settings, model)
        if entry is not None and entry.match != "*":
            return True
        if any(route.match != "*" and route.models.means(model) for route in settings.routes):
            return True
        # Imports the price library (0.17 s, 30 MB).
        name = asked_name(settings, model)
        try:
            return prices_from_model_data(name) is not None or window_from_model_data(name) is not None
        except (ImportError, ValueError, AttributeError):
            return False

    metrics = Metrics(
        parts.counts,
        is_known,
        parts.prices.known,
        parts.store,
        lambda: parts.log.open,
        lambda: parts.jobs.open + parts.chores.open,
    )
    if siblings is not None:
        stack.callback(siblings.answer_with(metrics.packed, parts.chores))
    key = settings.telemetry.metrics_key
    return MetricsPage(metrics, siblings, key.get_secret_value() if key else None)


def tracer_class() -> type[Tracer]:
    """The tracer, imported. SettingsError when the extra is not installed."""
    try:
        from palimpsest.proxy.telemetry.tracing import Tracer
    except ModuleNotFoundError:
        raise SettingsError(
            "telemetry.otlp_url: this needs an extra: pip install 'palimpsest[otel]'."
        ) from None
    return Tracer


async def base_url_checked(settings: Settings) -> None:
    """Log a warning when the upstream's base_url lacks its version path."""
    key = key_of(settings.upstream.api_key, settings.upstream.key_header)
    if settings.upstream.base_url is None:
        return
    longer = await versioned(upstream_options(settings), [key.header] if key else [])
    if longer is not None:
        advice = f"the upstream has no models at its base_url, but at {longer}: set upstream.base_url to that"
        _log.warning("upstream_base_url", advice=advice)


def new_id() -> str:
    """A time-ordered id (UUIDv7, RFC 9562): rows of the same time are adjacent in the index."""
    return str(uuid_utils.uuid7())
