"""Opens the parts of one generation of the application, which are made from settings; see `ground`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import lru_cache, partial

import structlog

from palimpsest.core.budget.quota import DailyLimits
from palimpsest.core.urls import without_query
from palimpsest.main.ground import Counting, Ground, counting_of
from palimpsest.main.upstreams import (
    credential_names,
    key_of,
    opened_destinations,
    summarizer_at,
    summarizers_of,
    upstream_options,
)
from palimpsest.proxy.access import Access, AccessRules, UnprovenNamespaces
from palimpsest.proxy.admin_key import AdminKey
from palimpsest.proxy.compacting.windows import REMEMBERED_MODELS, Windows, WindowSources
from palimpsest.proxy.destinations import Destinations
from palimpsest.proxy.erasing import EraseMeans
from palimpsest.proxy.jobs import Jobs
from palimpsest.proxy.journal.daily_log import DailyLog
from palimpsest.proxy.kept_answers import KeptAnswers, RefusalMemory
from palimpsest.proxy.operator import OperatorAccess
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.proxy.token_counts import Calibrations, ModelTokens
from palimpsest.settings.settings import (
    Settings,
    asked_name,
    configured_window,
    model_settings,
    to_policy,
)
from palimpsest.settings.upstreams import ModelSettings
from palimpsest.storage.store import Store
from palimpsest.upstream.address import versioned
from palimpsest.upstream.client import Upstream
from palimpsest.upstream.headers import UpstreamKey
from palimpsest.upstream.models import window_from_model_data, window_from_upstream
from palimpsest.upstream.summarizer import Summarizers, Worker

_log = structlog.get_logger("palimpsest.upstream")


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a generation that several others need, one of each, and the `ground` that it stands on.

    `stopping` is set when the generation ends, by a stop of the process or by a reload: what is deferred is
    given up then.
    """

    ground: Ground
    settings: Settings
    stopping: asyncio.Event
    jobs: Jobs
    access: Access
    operator: OperatorAccess
    newcomers: UnprovenNamespaces
    destinations: Destinations
    summarizers: Summarizers
    worker: Worker | None
    counting: Counting
    windows: Windows
    kept: KeptAnswers
    daily_log: DailyLog | None

    # What almost every other part is given.
    @property
    def store(self) -> Store:
        """The ground's store."""
        return self.ground.store

    @property
    def tokens(self) -> ModelTokens:
        """The counters of tokens."""
        return self.counting.tokens

    @property
    def reader(self) -> MessageReader:
        """The cache of messages."""
        return self.counting.reader

    @property
    def calibrations(self) -> Calibrations:
        """What upstreams count compared with us."""
        return self.counting.calibrations


async def opened_parts(
    ground: Ground, settings: Settings, stack: AsyncExitStack, before: Parts | None
) -> Parts:
    """Open everything of a generation that must be closed; `stack` closes it in reverse order.

    Jobs are drained first, so that open relays are recorded while their upstreams are still open. `before`:
    the generation whose place this one takes. SettingsError when the settings cannot be used.
    """
    destinations = await opened_destinations(settings, stack)
    summarizers = await _opened_summarizers(settings, destinations, stack)
    worker = await _opened_worker(settings, stack)
    jobs, stopping = Jobs(), asyncio.Event()
    stack.push_async_callback(
        jobs.drain, settings.server.shutdown_seconds, settings.database.store_deadline_seconds
    )
    access, operator = _access(settings, ground, jobs)
    folder = settings.compaction.daily_log_folder
    return Parts(
        ground=ground,
        settings=settings,
        stopping=stopping,
        jobs=jobs,
        access=access,
        operator=operator,
        newcomers=_newcomers(settings, access, ground.erasure),
        destinations=destinations,
        summarizers=summarizers,
        worker=worker,
        counting=counting_of(ground, settings),
        windows=await _windows(settings, ground.store, jobs, destinations, before),
        kept=KeptAnswers(RefusalMemory(), are_kept=settings.upstream.stores_responses),
        daily_log=DailyLog(folder, ground.erasure.gone) if folder is not None else None,
    )


async def base_url_checked(settings: Settings) -> None:
    """Log a warning when the upstream's base_url lacks its version path."""
    key = key_of(settings.upstream.api_key, settings.upstream.key_header)
    if settings.upstream.base_url is None:
        return
    longer = await versioned(upstream_options(settings), [key.header] if key else [])
    if longer is not None:
        advice = f"the upstream has no models at its base_url, but at {longer}: set upstream.base_url to that"
        _log.warning("upstream_base_url", advice=advice)


def _access(settings: Settings, ground: Ground, jobs: Jobs) -> tuple[Access, OperatorAccess]:
    """What callers' keys open, and what the operator's does."""
    who = settings.access
    given = who.admin_key
    admin_key = AdminKey(given.get_secret_value()) if given is not None else None
    daily = DailyLimits(who.daily_tokens, who.daily_dollars)
    rules = AccessRules(who.realm, who.mode == "keys", who.identity_headers, daily, who.max_bytes, admin_key)
    access = Access(ground.store.accounts, jobs, ground.pepper, rules, credential_names(settings))
    return access, OperatorAccess(admin_key, ground.store.namespaces, reads=who.admin_reads)


def _newcomers(settings: Settings, access: Access, erasure: EraseMeans) -> UnprovenNamespaces:
    """The quotas of unproven namespaces."""
    who = settings.access

    def erased(namespaces: Sequence[str]) -> None:
        access.forget(namespaces)
        erasure.swept(namespaces)

    return UnprovenNamespaces(
        erasure.store, erased, time.time, messages=who.unproven_messages, seconds=who.unproven_seconds
    )


async def _opened_summarizers(
    settings: Settings, destinations: Destinations, stack: AsyncExitStack
) -> Summarizers:
    base_url = settings.summarizer.base_url
    if base_url is None:
        return summarizers_of(settings, destinations)
    other = await stack.enter_async_context(Upstream(upstream_options(settings, base_url)))
    return summarizer_at(settings, other)


async def _opened_worker(settings: Settings, stack: AsyncExitStack) -> Worker | None:
    chosen = settings.summarizer
    if chosen.worker_url is None:
        return None
    pool = await stack.enter_async_context(Upstream(upstream_options(settings, chosen.worker_url)))
    key = UpstreamKey(chosen.worker_key.get_secret_value()) if chosen.worker_key else None
    return Worker(pool, chosen.worker_url, key)


async def _windows(
    settings: Settings, store: Store, jobs: Jobs, destinations: Destinations, before: Parts | None
) -> Windows:
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
    windows = Windows(store.accounts, jobs, sources)
    if before is None:
        await windows.load()
    else:
        windows.take_over(before.windows)
    return windows


def model_settings_of(settings: Settings, model: str) -> ModelSettings:
    """The settings of a model; defaults when no entry matches."""
    return model_settings(settings, model) or ModelSettings(match="*")
