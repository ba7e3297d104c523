"""What is opened at the start and closed at the end, in reverse order.

Knows nothing of requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass

import structlog
import uuid_utils

from app.errors import SettingsError, StoreError
from app.main.upstreams import (
    credential_names,
    key_of,
    opened_destinations,
    summarizer_at,
    summarizers_of,
    upstream_options,
)
from app.proxy.access.access import Access
from app.proxy.access.newcomers import Newcomers
from app.proxy.access.pepper import Pepper, load_pepper
from app.proxy.answering.outgoing import Destinations
from app.proxy.answering.previous import KeptAnswers
from app.proxy.chronicle.daily_log import DailyLog
from app.proxy.compacting.calibrations import Calibrations
from app.proxy.compacting.model_tokens import ModelTokens
from app.proxy.compacting.windows import Windows, WindowSources
from app.proxy.erasing import EraseMeans
from app.proxy.jobs import Jobs, unless
from app.proxy.recall.refusing import Refusing
from app.proxy.scrubbing import Again, Scrubbing
from app.proxy.sessions.presence import Presence
from app.proxy.sessions.reader import CountMessage, MessageReader
from app.proxy.sessions.recovery import recover
from app.proxy.sessions.tombstones import Tombstones
from app.proxy.store_watch import StoreWatch
from app.settings.models import ModelSettings
from app.settings.settings import (
    Settings,
    asked_name,
    configured_window,
    model_settings,
    to_policy,
)
from app.storage.contract import Store
from app.storage.erase.gone import Gone
from app.storage.open import open_store
from app.tokenizer.counting import Counter, Tokenizer
from app.upstream.address import without_query
from app.upstream.client import Upstream
from app.upstream.headers import UpstreamKey
from app.upstream.summarizer import Summarizers
from app.upstream.version_path import versioned
from app.upstream.windows import window_from_model_data, window_from_upstream
from app.upstream.worker import Worker

_log = structlog.get_logger("palimpsest.upstream")


@dataclass(frozen=True, slots=True)
class Parts:
    """What several of the other parts need; each exists once."""

    settings: Settings
    store: Store
    jobs: Jobs
    access: Access
    newcomers: Newcomers
    destinations: Destinations
    summarizers: Summarizers
    worker: Worker | None
    tokens: ModelTokens
    reader: MessageReader
    windows: Windows
    calibrations: Calibrations
    kept: KeptAnswers
    erasure: EraseMeans


async def opened(
    settings: Settings, tokenizer: Tokenizer, stack: AsyncExitStack, stopping: asyncio.Event
) -> Parts:
    """Everything that must be opened and closed; `stack` undoes it in reverse order.

    `stopping` is set when the server begins to stop: what was put off is given up then. Jobs are drained
    first, so that open relays are recorded while store and upstream are still there.
    """
    store = await _opened_store(settings, stack)
    pepper = load_pepper(settings.database.pepper_file)
    tokenizer.load()
    tokens = _tokens(settings, tokenizer)
    destinations = await opened_destinations(settings, stack)
    summarizers = await _opened_summarizers(settings, destinations, stack)
    worker = await _opened_worker(settings, stack)
    reader = _reader(settings, tokens)
    await _present(settings, store, reader, stack)
    jobs = Jobs()
    calibrations = Calibrations(store, jobs, tokens)
    stack.push_async_callback(
        jobs.drain, settings.server.shutdown_seconds, settings.database.store_deadline_seconds
    )
    access = _access(settings, store, pepper)
    scrubbing = Scrubbing(store, jobs, stopping, Again(settings.database.scrub_again_seconds))
    erasure = _erasure(settings, store, jobs, pepper, scrubbing)
    parts = Parts(
        settings=settings,
        store=store,
        jobs=jobs,
        access=access,
        newcomers=_newcomers(settings, access, erasure, stack),
        destinations=destinations,
        summarizers=summarizers,
        worker=worker,
        tokens=tokens,
        reader=reader,
        windows=_windows(settings, store, jobs, destinations),
        calibrations=calibrations,
        kept=KeptAnswers(Refusing(), are_kept=settings.upstream.keeps_answers),
        erasure=erasure,
    )
    await _taken_up(parts)
    jobs.start(unless(stopping, _base_url_checked(settings)))
    _watched(settings, store, stack)
    return parts


def _reader(settings: Settings, tokens: ModelTokens) -> MessageReader:
    def count_of(model: str) -> CountMessage:
        return tokens.counter_of(model).count_message

    return MessageReader(count_of, settings.limits.message_cache_bytes, tokens.knows)


def _tokens(settings: Settings, tokenizer: Tokenizer) -> ModelTokens:
    def counter_for(model: str) -> Counter:
        return tokenizer.counter_for(asked_name(settings, model), said_of(settings, model).tokenizer)

    return ModelTokens(counter_for)


async def _base_url_checked(settings: Settings) -> None:
    """The log says when the upstream is asked at an address without the version path that it has."""
    key = key_of(settings.upstream.api_key, settings.upstream.key_header)
    if settings.upstream.base_url is None:
        return
    longer = await versioned(upstream_options(settings), [key.header] if key else [])
    if longer is not None:
        advice = f"the upstream has no models at its base_url, but at {longer}: set upstream.base_url to that"
        _log.warning("upstream_base_url", advice=advice)


def _watched(settings: Settings, store: Store, stack: AsyncExitStack) -> None:
    """The store's files and disk are looked at until `stack` ends it."""
    keeping = asyncio.get_running_loop().create_task(
        StoreWatch(store, settings.database.reserve_bytes).keep()
    )

    async def end() -> None:
        keeping.cancel()
        await asyncio.wait([keeping])

    stack.push_async_callback(end)


async def _taken_up(parts: Parts) -> None:
    """What was learned is known again, and what a stop or a kill has left undone is being done."""
    await parts.windows.load()
    await parts.calibrations.load()
    await recover(parts.store, parts.reader, time.time())
    if await parts.store.words_left():
        # Something was erased, and a stop or a kill came before the scrub was done.
        parts.erasure.scrubbing.begin()


def _access(settings: Settings, store: Store, pepper: Pepper) -> Access:
    who = settings.access
    keys = who.mode == "keys"
    return Access(
        store,
        pepper,
        who.realm,
        proxy_keys=keys,
        identity_headers=who.identity_headers,
        names=credential_names(settings),
    )


def _erasure(
    settings: Settings, store: Store, jobs: Jobs, pepper: Pepper, scrubbing: Scrubbing
) -> EraseMeans:
    folder, gone = settings.compaction.daily_log_folder, Gone()
    return EraseMeans(
        store=store,
        jobs=jobs,
        gone=gone,
        scrubbing=scrubbing,
        tombstones=Tombstones(store, pepper),
        log=DailyLog(folder, gone) if folder is not None else None,
        clock=time.time,
    )


def _newcomers(settings: Settings, access: Access, erasure: EraseMeans, stack: AsyncExitStack) -> Newcomers:
    """It sweeps until `stack` ends it."""
    who = settings.access

    def erased(namespaces: Sequence[str]) -> None:
        access.forget(namespaces)
        erasure.swept(namespaces)

    newcomers = Newcomers(
        erasure.store, erased, time.time, messages=who.unproven_messages, seconds=who.unproven_seconds
    )
    sweeping = asyncio.get_running_loop().create_task(newcomers.keep_sweeping())

    async def end() -> None:
        sweeping.cancel()
        await asyncio.wait([sweeping])

    stack.push_async_callback(end)
    return newcomers


async def _present(settings: Settings, store: Store, reader: MessageReader, stack: AsyncExitStack) -> None:
    """Other servers, if there may be some, know of this one until `stack` ends it, after its jobs."""
    if store.server is None:
        return

    async def found() -> None:
        await recover(store, reader, time.time())

    await store.beat()
    presence = Presence(store, found, settings.database.server_seconds)
    keeping = asyncio.get_running_loop().create_task(presence.keep())

    async def end() -> None:
        keeping.cancel()
        await asyncio.wait([keeping])
        with suppress(StoreError):
            await store.leave()

    stack.push_async_callback(end)


async def _opened_store(settings: Settings, stack: AsyncExitStack) -> Store:
    database = settings.database
    store = await open_store(
        database.url.get_secret_value(),
        synchronous=database.synchronous,
        deadline_seconds=database.store_deadline_seconds,
        new_id=new_id,
        sole=True,
        rewrite_bytes=database.rewrite_bytes,
    )
    stack.push_async_callback(store.close)
    if not await store.bind_pepper(load_pepper(database.pepper_file).fingerprint):
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
        configured=lambda model: configured_window(settings, model),
        ask=ask,
        model_data=lambda model: window_from_model_data(asked_name(settings, model)),
        default_tokens=to_policy(settings, "").assumed_window_tokens,
        lookup_seconds=settings.window.lookup_seconds,
    )
    return Windows(store, jobs, sources)


def said_of(settings: Settings, model: str) -> ModelSettings:
    """What the settings say of a model; nothing when no entry matches."""
    return model_settings(settings, model) or ModelSettings(match="*")


def new_id() -> str:
    """A time-ordered id (UUIDv7, RFC 9562): rows of one time lie together in the index."""
    return str(uuid_utils.uuid7())
