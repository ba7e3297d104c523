"""What is opened at the start and closed at the end, in reverse order.

Knows nothing of requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import uuid_utils

from app.errors import SettingsError
from app.proxy.access.access import Access
from app.proxy.access.newcomers import Newcomers
from app.proxy.access.pepper import Pepper, load_pepper
from app.proxy.answering.outgoing import Outgoing
from app.proxy.chronicle.daily_log import DailyLog
from app.proxy.compacting.calibrations import Calibrations
from app.proxy.compacting.model_tokens import ModelTokens
from app.proxy.compacting.windows import Windows, WindowSources
from app.proxy.erasing import EraseMeans
from app.proxy.jobs import Jobs
from app.proxy.scrubbing import Scrubbing
from app.proxy.sessions.reader import MessageReader
from app.proxy.sessions.recovery import recover
from app.proxy.sessions.tombstones import Tombstones
from app.settings.models import ModelSettings
from app.settings.settings import (
    Settings,
    configured_window,
    model_settings,
)
from app.storage.contract import Store
from app.storage.erase.gone import Gone
from app.storage.open import open_store
from app.tokenizer.counting import Tokenizer
from app.upstream.client import Upstream, UpstreamOptions
from app.upstream.headers import UpstreamKey
from app.upstream.summarizer import Summarizer
from app.upstream.windows import window_from_model_data, window_from_upstream
from app.upstream.worker import Worker

# Parsed messages kept in memory: about forty sessions of a million tokens.
CACHE_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Parts:
    """What several of the other parts need; each exists once."""

    settings: Settings
    store: Store
    jobs: Jobs
    access: Access
    newcomers: Newcomers
    outgoing: Outgoing
    upstream: Upstream
    summarizer: Summarizer
    worker: Worker | None
    tokens: ModelTokens
    reader: MessageReader
    windows: Windows
    calibrations: Calibrations
    erasure: EraseMeans


async def opened(settings: Settings, tokenizer: Tokenizer, stack: AsyncExitStack) -> Parts:
    """Everything that must be opened and closed; `stack` undoes it in reverse order.

    Jobs are drained first, so that open relays are recorded while store and upstream are still there.
    """
    store = await _opened_store(settings, stack)
    pepper = load_pepper(settings.database.pepper_file)
    tokenizer.load()
    tokens = ModelTokens(tokenizer, lambda model: said_of(settings, model).tokenizer)
    upstream = await stack.enter_async_context(Upstream(upstream_options(settings)))
    summarizer = await _opened_summarizer(settings, upstream, stack)
    worker = await _opened_worker(settings, stack)
    jobs = Jobs()
    stack.push_async_callback(jobs.drain, settings.server.shutdown_seconds)
    access = _access(settings, store, pepper)
    erasure = _erasure(settings, store, jobs, pepper)
    parts = Parts(
        settings=settings,
        store=store,
        jobs=jobs,
        access=access,
        newcomers=_newcomers(settings, access, erasure, stack),
        outgoing=Outgoing(upstream_key(settings), keeps_credentials=settings.access.mode == "open"),
        upstream=upstream,
        summarizer=summarizer,
        worker=worker,
        tokens=tokens,
        reader=MessageReader(lambda model: tokens.counter_of(model).count_message, CACHE_BYTES),
        windows=_windows(settings, store, jobs, upstream),
        calibrations=Calibrations(store, jobs),
        erasure=erasure,
    )
    await parts.windows.load()
    await parts.calibrations.load()
    await recover(store, parts.reader, time.time())
    return parts


def _access(settings: Settings, store: Store, pepper: Pepper) -> Access:
    who = settings.access
    keys = who.mode == "keys"
    return Access(store, pepper, who.realm, proxy_keys=keys, identity_headers=who.identity_headers)


def _erasure(settings: Settings, store: Store, jobs: Jobs, pepper: Pepper) -> EraseMeans:
    folder, gone = settings.compaction.daily_log_folder, Gone()
    return EraseMeans(
        store=store,
        jobs=jobs,
        gone=gone,
        scrubbing=Scrubbing(store, jobs),
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


async def _opened_summarizer(settings: Settings, upstream: Upstream, stack: AsyncExitStack) -> Summarizer:
    chosen = settings.summarizer
    key = UpstreamKey(chosen.api_key.get_secret_value()) if chosen.api_key else None
    if chosen.base_url is None:
        return Summarizer(upstream, key=key or upstream_key(settings))
    other = Upstream(upstream_options(settings, chosen.base_url))
    await stack.enter_async_context(other)
    return Summarizer(other, key=key, is_foreign=True)


async def _opened_worker(settings: Settings, stack: AsyncExitStack) -> Worker | None:
    chosen = settings.summarizer
    if chosen.worker_url is None:
        return None
    pool = await stack.enter_async_context(Upstream(upstream_options(settings, chosen.worker_url)))
    key = UpstreamKey(chosen.worker_key.get_secret_value()) if chosen.worker_key else None
    return Worker(pool, chosen.worker_url, key)


def upstream_options(settings: Settings, base_url: str | None = None) -> UpstreamOptions:
    """How the upstream, or another server at `base_url`, is reached."""
    given = settings.upstream
    added = tuple((name.encode(), value.get_secret_value().encode()) for name, value in given.headers.items())
    return UpstreamOptions(
        base_url=base_url or given.base_url or "",
        connect_seconds=given.connect_timeout_seconds,
        first_byte_seconds=given.first_byte_timeout_seconds,
        idle_seconds=given.idle_timeout_seconds,
        connections=given.max_connections,
        keepalive_seconds=given.keep_alive_seconds,
        proxy=given.proxy_url.get_secret_value() if given.proxy_url else None,
        proxy_from_environment=given.trust_env,
        ca_file=given.ca_bundle,
        extra_headers=() if base_url else added,
    )


def upstream_key(settings: Settings) -> UpstreamKey | None:
    """The operator's own key; None when the callers' keys go upstream."""
    key = settings.upstream.api_key
    return UpstreamKey(key.get_secret_value()) if key else None


def _windows(settings: Settings, store: Store, jobs: Jobs, upstream: Upstream) -> Windows:
    async def ask(model: str, headers: list[tuple[bytes, bytes]]) -> int | None:
        return await window_from_upstream(upstream, model, headers, settings.window.lookup_seconds)

    sources = WindowSources(
        upstream=upstream.url("/"),
        configured=lambda model: configured_window(settings, model),
        ask=ask,
        model_data=window_from_model_data,
        default_tokens=settings.window.default_window_tokens,
        lookup_seconds=settings.window.lookup_seconds,
    )
    return Windows(store, jobs, sources)


def said_of(settings: Settings, model: str) -> ModelSettings:
    """What the settings say of a model; nothing when no entry matches."""
    return model_settings(settings, model) or ModelSettings(match="*")


def new_id() -> str:
    """A time-ordered id (UUIDv7, RFC 9562): rows of one time lie together in the index."""
    return str(uuid_utils.uuid7())
