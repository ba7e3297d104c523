"""The application: the only place where the parts meet.

`create_app(settings)` returns an ASGI application. Its lifespan opens the store and the upstream, and
closes them when every open relay has been recorded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache, partial

import uuid_utils
from fastapi import FastAPI

from app.api.chat import ChatEndpoint
from app.api.front import Crowd, Front
from app.api.pages import Pages, pages_of
from app.api.passthrough import PassthroughEndpoint
from app.core.history.carriers import Carriers
from app.core.wire.chat_request import Limits
from app.errors import PalimpsestError, SettingsError
from app.proxy.access.access import Access
from app.proxy.access.newcomers import Newcomers
from app.proxy.access.pepper import Pepper, load_pepper
from app.proxy.answering.answered import Answered
from app.proxy.answering.delivery import Delivery, Sending
from app.proxy.answering.outcomes import Outcomes
from app.proxy.answering.outgoing import Outgoing
from app.proxy.answering.passthrough import Passthrough
from app.proxy.answering.relay import Relay, RelayLimits
from app.proxy.asgi import Receive, Scope, Send
from app.proxy.compacting.breaker import Breaker
from app.proxy.compacting.calibrations import Calibrations
from app.proxy.compacting.compactor import Compactor
from app.proxy.compacting.model_tokens import REMEMBERED_MODELS, ModelTokens
from app.proxy.compacting.scenes import Scenes
from app.proxy.compacting.summaries import Summaries
from app.proxy.compacting.summary_writer import SummarizerChoice, SummaryWriter
from app.proxy.compacting.viewing import Viewing
from app.proxy.compacting.windows import Windows, WindowSources
from app.proxy.exchange import Behaviour, Exchange
from app.proxy.jobs import Jobs
from app.proxy.sessions.delta import Deltas
from app.proxy.sessions.reader import MessageReader
from app.proxy.sessions.recorder import Recorder
from app.proxy.sessions.recovery import recover
from app.proxy.sessions.resolver import Resolver
from app.settings.models import ModelSettings
from app.settings.settings import Settings, configured_window, model_settings, to_policy
from app.storage.contract import Store
from app.storage.open import open_store
from app.tokenizer.counting import Tokenizer
from app.upstream.client import Upstream, UpstreamOptions
from app.upstream.headers import UpstreamKey
from app.upstream.summarizer import Summarizer
from app.upstream.windows import window_from_model_data, window_from_upstream

# Parsed messages kept in memory: about forty sessions of a million tokens.
CACHE_BYTES = 256 * 1024 * 1024
# A background summary may take this many times as long as a request would wait for one.
PATIENCE = 3


class Application:
    """An ASGI application whose parts exist while its lifespan lasts."""

    def __init__(self, settings: Settings, tokenizer: Tokenizer) -> None:
        self._settings = settings
        self._tokenizer = tokenizer
        self._pages = FastAPI(lifespan=self._lifespan, docs_url=None, redoc_url=None, openapi_url=None)
        self._front: Front | None = None
        # Why the start was refused: servers tell it as a traceback, a person wants the sentence.
        self.refusal: PalimpsestError | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection, or the lifespan."""
        await (self._front or self._pages)(scope, receive, send)

    @asynccontextmanager
    async def _lifespan(self, pages: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            try:
                parts = await _opened(self._settings, self._tokenizer, stack)
            except PalimpsestError as refusal:
                self.refusal = refusal
                raise
            self._front = _front(parts, pages)
            yield


def create_app(settings: Settings, tokenizer: Tokenizer | None = None) -> Application:
    """The whole proxy as one ASGI application; nothing is opened before its lifespan begins.

    Applications of one process may share a tokenizer: loading its encodings takes most of a start.
    """
    return Application(settings, tokenizer or Tokenizer())


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
    tokens: ModelTokens
    reader: MessageReader
    windows: Windows
    calibrations: Calibrations


async def _opened(settings: Settings, tokenizer: Tokenizer, stack: AsyncExitStack) -> Parts:
    """Everything that must be opened and closed; `stack` undoes it in reverse order.

    Jobs are drained first, so that open relays are recorded while store and upstream are still there.
    """
    store = await _opened_store(settings, stack)
    pepper = load_pepper(settings.database.pepper_file)
    tokenizer.load()
    tokens = ModelTokens(tokenizer, lambda model: _of(settings, model).tokenizer)
    upstream = await stack.enter_async_context(Upstream(upstream_options(settings)))
    summarizer = await _opened_summarizer(settings, upstream, stack)
    jobs = Jobs()
    stack.push_async_callback(jobs.drain, settings.server.shutdown_seconds)
    access = _access(settings, store, pepper)
    parts = Parts(
        settings=settings,
        store=store,
        jobs=jobs,
        access=access,
        newcomers=_newcomers(settings, store, access, stack),
        outgoing=Outgoing(_upstream_key(settings), keeps_credentials=settings.access.mode == "open"),
        upstream=upstream,
        summarizer=summarizer,
        tokens=tokens,
        reader=MessageReader(lambda model: tokens.counter_of(model).count_message, CACHE_BYTES),
        windows=_windows(settings, store, jobs, upstream),
        calibrations=Calibrations(store, jobs),
    )
    await parts.windows.load()
    await parts.calibrations.load()
    await recover(store, parts.reader, time.time())
    return parts


def _access(settings: Settings, store: Store, pepper: Pepper) -> Access:
    who = settings.access
    keys = who.mode == "keys"
    return Access(store, pepper, who.realm, proxy_keys=keys, identity_headers=who.identity_headers)


def _newcomers(settings: Settings, store: Store, access: Access, stack: AsyncExitStack) -> Newcomers:
    """It sweeps until `stack` ends it."""
    who = settings.access
    newcomers = Newcomers(
        store, access.forget, time.time, messages=who.unproven_messages, seconds=who.unproven_seconds
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
        return Summarizer(upstream, key=key or _upstream_key(settings))
    other = Upstream(upstream_options(settings, chosen.base_url))
    await stack.enter_async_context(other)
    return Summarizer(other, key=key, is_foreign=True)


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


def _front(parts: Parts, pages: FastAPI) -> Front:
    """The front door with everything behind it."""
    limits = parts.settings.limits
    scenes = Scenes(
        parts.store,
        parts.windows,
        parts.calibrations,
        parts.tokens,
        # Models are the caller's to name, so what is remembered of them is bounded.
        lru_cache(REMEMBERED_MODELS)(partial(to_policy, parts.settings)),
        parts.outgoing,
    )
    viewing = Viewing(scenes, _compactor(parts), wait_seconds=parts.settings.compaction.deadline_seconds)
    passthrough = Passthrough(parts.upstream, parts.outgoing)
    exchange = _exchange(parts, viewing, passthrough)
    pages_of(pages, Pages(parts.store, parts.access, parts.reader, scenes, viewing))
    return Front(
        chat=ChatEndpoint(exchange, body_bytes=limits.body_bytes, body_seconds=limits.body_seconds),
        passthrough=PassthroughEndpoint(parts.access, passthrough, body_bytes=limits.body_bytes),
        pages=pages,
        crowd=Crowd(requests=limits.concurrent_requests, header_bytes=limits.header_bytes),
    )


def _compactor(parts: Parts) -> Compactor:
    how, policy = parts.settings.compaction, parts.settings.policy
    chosen = parts.settings.summarizer
    choice = SummarizerChoice(
        model=chosen.model,
        window_tokens=chosen.window_tokens,
        may_ride=chosen.base_url is None and chosen.model is None,
        call_seconds=max(1.0, PATIENCE * how.deadline_seconds),
    )
    breaker = Breaker(policy.breaker_failures, how.breaker_seconds, time.monotonic)
    writer = SummaryWriter(parts.summarizer, choice, breaker)
    # A request that waits for a summary is open so long at most; its key is not kept for less.
    key_seconds = max(how.key_ttl_seconds, how.deadline_seconds)
    summaries = Summaries(
        writer, parts.jobs, concurrent=how.concurrent_summaries, key_seconds=key_seconds, new_id=new_id
    )
    return Compactor(
        parts.store,
        summaries,
        parts.jobs,
        deadline_seconds=how.deadline_seconds,
        background=how.background and how.key_ttl_seconds > 0,
        new_id=new_id,
    )


def _exchange(parts: Parts, viewing: Viewing, passthrough: Passthrough) -> Exchange:
    settings, limits = parts.settings, parts.settings.limits
    recorder = Recorder(parts.store, parts.jobs, parts.newcomers)
    relay = Relay(
        recorder,
        Outcomes(parts.reader),
        parts.jobs,
        RelayLimits(
            limits.frame_bytes,
            limits.answer_bytes,
            delivers_unstored=settings.database.on_store_failure == "passthrough",
        ),
        Answered(parts.windows, parts.calibrations),
    )
    tells_view = settings.compaction.notify == "header"
    sending = Sending(parts.upstream, parts.outgoing, settings.compaction.overflow_retries, tells_view)
    return Exchange(
        access=parts.access,
        resolver=_resolver(parts),
        recorder=recorder,
        viewing=viewing,
        delivery=Delivery(sending, recorder, relay, viewing, parts.windows),
        passthrough=passthrough,
        behaviour=Behaviour(
            Limits(limits.depth, limits.messages),
            limits.body_bytes,
            settings.access.allow_off,
            settings.database.on_store_failure,
        ),
    )


def _resolver(parts: Parts) -> Resolver:
    how = parts.settings.sessions
    carriers = Carriers(how.headers, how.codex_headers, how.body_keys, how.metadata_keys)
    deltas = Deltas(
        parts.store, parts.reader, default_mode=how.default_mode, waiting_appends=how.waiting_appends
    )
    return Resolver(parts.store, parts.reader, deltas, carriers, parts.tokens, new_id)


def _upstream_key(settings: Settings) -> UpstreamKey | None:
    key = settings.upstream.api_key
    return UpstreamKey(key.get_secret_value()) if key else None


def _of(settings: Settings, model: str) -> ModelSettings:
    """What the settings say of a model; nothing when no entry matches."""
    return model_settings(settings, model) or ModelSettings(match="*")


def new_id() -> str:
    """A time-ordered id (UUIDv7, RFC 9562): rows of one time lie together in the index."""
    return str(uuid_utils.uuid7())
