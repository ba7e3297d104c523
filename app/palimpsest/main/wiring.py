"""Wires everything that answers requests, from the store up to the front door.

Our own endpoints are wired in `pages`, at the first request for one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import clear_cache as forget_addresses  # type: ignore[attr-defined]  # not in the stubs

import structlog
import uuid_utils

from palimpsest.api.chat import ChatEndpoint, PassthroughEndpoint
from palimpsest.api.front import Admission, ConcurrencyLimit, Front, LazyPages
from palimpsest.api.health import HealthPages
from palimpsest.api.metrics import MetricsPage
from palimpsest.core.notes.reader import forget_conversations
from palimpsest.core.summary.prompt import Instructions
from palimpsest.core.urls import without_query
from palimpsest.core.view.masking import forget_masked
from palimpsest.core.wire.request import RequestLimits
from palimpsest.core.wire.web_origins import WebOrigins
from palimpsest.errors import SettingsError, StoreError
from palimpsest.main.upstreams import (
    credential_names,
    key_of,
    opened_destinations,
    opened_summarizers,
    opened_worker,
)
from palimpsest.proxy.access import Access, UnprovenNamespaces
from palimpsest.proxy.answering.delivery import Delivery
from palimpsest.proxy.answering.overflow_recovery import CutPrompts, Recovery
from palimpsest.proxy.answering.own_compactions import OwnCompactions
from palimpsest.proxy.answering.passthrough import ModelList, Passthrough
from palimpsest.proxy.answering.relay import Answered, RelayMeans
from palimpsest.proxy.background import Background
from palimpsest.proxy.compacting.breaker import BREAKER_SECONDS, Breaker
from palimpsest.proxy.compacting.summary_jobs import SummaryJobs
from palimpsest.proxy.compacting.summary_writer import SummarizerChoice, SummaryWriter
from palimpsest.proxy.compacting.viewing import Compactor, ViewPlanner
from palimpsest.proxy.compaction_context import ContextLoader
from palimpsest.proxy.daily_log import DailyLog
from palimpsest.proxy.destinations import KeptAnswers, RefusalMemory
from palimpsest.proxy.erasing import Eraser, Forgetting, RetentionSweep, Scrubber, StoreWatch
from palimpsest.proxy.exchange import Exchange
from palimpsest.proxy.incoming import ASGIApp
from palimpsest.proxy.jobs import Again, Jobs
from palimpsest.proxy.lookups import MixedTurns, RecallRounds, Replays, ToolExecutor
from palimpsest.proxy.memory_blocks import MemoryBlocks
from palimpsest.proxy.model_facts import (
    REMEMBERED_MODELS,
    Calibrations,
    ModelFacts,
    ModelPrices,
    ModelTokens,
    Windows,
    prices_from_model_data,
)
from palimpsest.proxy.operator import OperatorAccess
from palimpsest.proxy.quotas import Quotas
from palimpsest.proxy.recall.indexing import Indexer, RecallSwitch
from palimpsest.proxy.recall.tools import RecallTools, Searcher
from palimpsest.proxy.reports import RequestLog
from palimpsest.proxy.server_secrets import AdminKey, load_pepper, wrong_pepper
from palimpsest.proxy.session_journal import SessionJournal
from palimpsest.proxy.sessions.in_flight import InFlight
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.proxy.sessions.recorder import Recorder
from palimpsest.proxy.sessions.recovery import Presence, recover
from palimpsest.proxy.sessions.resolver import References, Resolver, Transcripts
from palimpsest.proxy.sessions.side_requests import SideRequests
from palimpsest.proxy.sessions.tombstones import Tombstones
from palimpsest.proxy.telemetry.counts import Counts, Metrics, Siblings
from palimpsest.settings.session import recall_enabled, session_policy, session_recalls
from palimpsest.settings.settings import (
    Settings,
    asked_name,
    configured_prices,
    configured_window,
    is_loopback,
    merged,
    model_settings,
    to_policy,
)
from palimpsest.settings.upstreams import SummarizerSettings
from palimpsest.storage.erasure import RecentlyErased
from palimpsest.storage.migrate import bound_pepper
from palimpsest.storage.store import open_store
from palimpsest.tokenizer.counting import Counter, Tokenizer
from palimpsest.upstream.models import published, versioned, window_from_model_data, window_from_upstream

if TYPE_CHECKING:
    from palimpsest.proxy.telemetry.tracing import Tracer

_log = structlog.get_logger("palimpsest.upstream")
# Transcripts share their messages with the cache of messages: this bounds those that only they hold.
_TRANSCRIPTS_PART = 8
# Of the largest size, so many unfinished bodies are held in memory.
_BODIES = 4


class Parts:
    """The parts of the program, one of each; `open` makes those that must be closed, `front` the others.

    `stopping` is set when the process begins to stop. `jobs` run behind the answers, `chores` beside them.
    """

    def __init__(self, settings: Settings, tokenizer: Tokenizer, stopping: asyncio.Event) -> None:
        self.settings = settings
        self.tokenizer = tokenizer
        self.stopping = stopping
        self.jobs = Jobs()
        self.chores = Jobs()
        self.background = Background(self.chores)
        self.in_flight = InFlight()
        self.counts = Counts() if settings.telemetry.metrics else None
        self.log = RequestLog(self.chores, stopping, [self.counts.ended] if self.counts is not None else ())
        self.tokens = ModelTokens(self._counter_for)
        self.reader = MessageReader(
            lambda model: self.tokens.counter_of(model).count_message,
            settings.limits.message_cache_bytes,
            self.tokens.knows,
        )
        self.prices = ModelPrices(
            self.jobs,
            partial(configured_prices, settings),
            lambda model: prices_from_model_data(asked_name(settings, model)),
        )
        self.kept = KeptAnswers(RefusalMemory(), are_kept=settings.upstream.stores_responses)

    def _counter_for(self, model: str) -> Counter:
        entry = model_settings(self.settings, model)
        return self.tokenizer.counter_for(
            asked_name(self.settings, model), entry.tokenizer if entry else None
        )

    async def open(self, stack: AsyncExitStack) -> None:
        """Open everything that must be closed; `stack` closes it in reverse order.

        Jobs are drained first, so that open relays are recorded while their upstreams are still open.
        SettingsError when the settings cannot be used; StoreError.
        """
        settings, jobs, chores, stopping = self.settings, self.jobs, self.chores, self.stopping
        database, who, folder = settings.database, settings.access, settings.compaction.daily_log_folder
        gone = RecentlyErased()
        url = database.url.get_secret_value()
        # First: with another pepper nothing is written.
        pepper = load_pepper(database.pepper_file, await bound_pepper(url))
        store = self.store = await open_store(
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
        self.tokenizer.load()
        if store.journal.server is not None:
            await self._announce(stack)
        self.destinations = await opened_destinations(settings, stack)
        self.summarizers = await opened_summarizers(settings, self.destinations, stack)
        self.worker = await opened_worker(settings, stack)
        stack.push_async_callback(self.background.close)
        for running in (chores, jobs):
            stack.push_async_callback(
                running.drain, settings.server.shutdown_seconds, database.store_deadline_seconds
            )
        self.erasure = Eraser(
            store=store,
            jobs=chores,
            gone=gone,
            # Most readers that prevent a scrub finish in a second; one that stays must not cost an attempt
            # each.
            scrubbing=Scrubber(store.erasure, chores, stopping, Again(60.0)),
            tombstones=Tombstones(store.erasure, pepper),
            forgetting=Forgetting(jobs, chores, stopping, self.in_flight, self.reader, Again(60.0)),
            log=DailyLog(folder, gone) if folder is not None else None,
            clock=time.time,
        )
        admin_key = AdminKey(who.admin_key.get_secret_value()) if who.admin_key is not None else None
        self.access = Access(store.accounts, jobs, pepper, who, admin_key, credential_names(settings))
        self.operator = OperatorAccess(admin_key, store.namespaces, reads=who.admin_reads)
        self.newcomers = UnprovenNamespaces(store, self._swept, time.time, messages=who.unproven_messages)
        self.calibrations = Calibrations(store.accounts, jobs, self.tokens)
        self.windows = self._windows()
        await self.windows.load()
        await self.calibrations.load()
        await recover(store.exchanges, self.reader, time.time())
        if await store.search.needs_scrub() or await store.erasure.is_unfinished():
            # The last server stopped between an erase and the end of its scrub.
            self.erasure.scrubbing.begin()
        self.keep(stack, StoreWatch(store, database.erase_reserve_bytes).keep())

    async def _announce(self, stack: AsyncExitStack) -> None:
        """Announce this server to others on a shared database until `stack` is closed, after its jobs."""
        journal = self.store.journal

        async def left() -> None:
            with suppress(StoreError):
                await journal.leave()

        async def found() -> None:
            await recover(self.store.exchanges, self.reader, time.time())

        await journal.beat()
        stack.push_async_callback(left)
        self.keep(stack, Presence(journal, found, self.settings.database.heartbeat_timeout_seconds).keep())

    def keep(self, stack: AsyncExitStack, *works: Coroutine[Any, Any, None]) -> None:
        """Run what has no end until `stack` is closed."""
        running = Jobs()
        stack.push_async_callback(running.drain, 0, self.settings.database.store_deadline_seconds)
        for work in works:
            running.start(work)

    def _swept(self, namespaces: Sequence[str]) -> None:
        self.access.forget(namespaces)
        self.erasure.swept(namespaces)

    def _windows(self) -> Windows:
        settings, names, destinations = self.settings, credential_names(self.settings), self.destinations
        seconds = settings.window.lookup_seconds

        async def ask(model: str, headers: list[tuple[bytes, bytes]]) -> int | None:
            there = destinations.of(model)
            return await window_from_upstream(there.upstream, there.asked_for(model), headers, seconds, names)

        return Windows(
            self.store.accounts,
            self.jobs,
            upstream=lambda model: without_query(destinations.of(model).upstream.url("/")),
            configured=lru_cache(REMEMBERED_MODELS)(partial(configured_window, settings)),
            ask=ask,
            model_data=lambda model: window_from_model_data(asked_name(settings, model)),
            default_tokens=to_policy(settings, "").assumed_window_tokens,
            lookup_seconds=seconds,
        )

    def front(
        self, pages: Callable[[], ASGIApp], metrics: MetricsPage | None
    ) -> tuple[Front, RetentionSweep]:
        """The whole application, with `pages` at the first request for one; and what erases old sessions."""
        settings, store, limits = self.settings, self.store, self.settings.limits
        # Every request needs one. Bounded, since callers choose the models' names.
        policies = lru_cache(REMEMBERED_MODELS)(partial(session_policy, settings))
        self._wire_recall()
        self.contexts = ContextLoader(
            store,
            ModelFacts(self.windows, self.calibrations, self.tokens, self.prices),
            policies,
            self.destinations.headers,
            self.replays,
            text_pins_share=settings.compaction.text_pins_share,
        )
        self.journal = SessionJournal(store, self.jobs, time.time, new_id, self.erasure.log)
        self.quotas = Quotas(store.accounts, self.jobs)
        compactor = self._compactor()
        self.viewing = ViewPlanner(
            self.contexts,
            self.summaries,
            compactor,
            self.jobs,
            wait_seconds=settings.compaction.deadline_seconds,
        )
        passthrough = Passthrough(self.destinations, self.quotas, limits.body_bytes)
        exchange = self._exchange(passthrough)
        forgetting = self.erasure.forgetting
        forgetting.sessions += [exchange.resolver.erased, exchange.recorder.erased, compactor.erased]
        forgetting.others += [
            self.tokenizer.forget,
            self.tokens.forget_tools,
            forget_conversations,
            forget_masked,
            # They hold names of sessions, and what was searched for.
            forget_addresses,
            policies.cache_clear,
            self.searching.forget,
        ]

        own, idle = LazyPages(pages), limits.body_idle_seconds
        models = ModelList(self.destinations)
        front = Front(
            chat=ChatEndpoint(exchange, new_id, body_bytes=limits.body_bytes, body_idle_seconds=idle),
            passthrough=PassthroughEndpoint(
                self.access, self.quotas, models, passthrough, body_idle_seconds=idle
            ),
            pages=metrics.before(own) if metrics else own,
            health=HealthPages(store),
            origins=web_origins(settings),
            admission=Admission(
                answered=ConcurrencyLimit(limits.concurrent_requests, limits.caller_share),
                arriving=ConcurrencyLimit(limits.concurrent_uploads, limits.caller_share),
                body_bytes=ConcurrencyLimit(_BODIES * limits.body_bytes, limits.caller_share),
            ),
            access=self.access,
        )
        return front, RetentionSweep(
            store, self.erasure, settings.retention.days, settings.retention.max_bytes
        )

    def _wire_recall(self) -> None:
        """The index, search, the recall tools, and what offers them to models and runs their calls."""
        settings, store = self.settings, self.store
        how, limits, is_enabled = settings.recall, settings.limits, partial(recall_enabled, settings)
        switch = RecallSwitch(store.journal, is_enabled)
        self.indexing = Indexer(
            *(store.search, self.jobs, self.background, self.stopping, switch, how.search_wait_seconds)
        )
        self.searching = Searcher(store, self.indexing, switch, how)
        self.tools = RecallTools(store, self.searching, switch, new_id, how.large_payload_tokens)
        refusing = RefusalMemory()
        executing = ToolExecutor(
            self.tools,
            self.access.still_admits,
            lambda model: self.tokens.counter_of(model).count_message,
            how.result_chars,
        )
        self.recalling = RecallRounds(self.destinations, executing, refusing, limits, how.max_rounds)
        # A search waits for the store and for the word index.
        wait_seconds = settings.database.store_deadline_seconds + how.search_wait_seconds
        self.mixed = MixedTurns(store.exchanges, self.jobs, executing, wait_seconds)
        self.replays = Replays(store.exchanges, self.tokens, refusing, is_enabled, session_recalls, how)

    def _compactor(self) -> Compactor:
        """The executor of compaction plans, and the writer of summaries."""
        how, chosen, store = self.settings.compaction, self.settings.summarizer, self.store
        choice = SummarizerChoice(
            model=chosen.model,
            window_tokens=chosen.window_tokens,
            may_reuse_prompt=chosen.base_url is None and chosen.model is None,
            # Two attempts of a background summary fit into the time of its key.
            call_seconds=max(how.deadline_seconds, how.key_ttl_seconds / 2),
            prices=self.prices,
            instructions=instructions_of(chosen),
        )
        failures = merged([self.settings.policy]).breaker_failures
        self.writer = SummaryWriter(
            self.summarizers,
            self.worker,
            self.kept,
            choice,
            Breaker(failures, BREAKER_SECONDS, time.monotonic),
            store.journal,
            self.quotas,
            new_id,
        )
        self.summaries = SummaryJobs(
            self.writer, store, self.jobs, self.journal, self.erasure.gone, how, new_id
        )
        return Compactor(
            store, self.jobs, self.journal, self.summaries, self.counts, how.deadline_seconds, new_id
        )

    def _exchange(self, passthrough: Passthrough) -> Exchange:
        """The exchange that answers chat requests."""
        settings, limits, store, jobs = self.settings, self.settings.limits, self.store, self.jobs
        reader, viewing, in_flight = self.reader, self.viewing, self.in_flight
        resolver = Resolver(
            store,
            reader,
            SideRequests(store.history, in_flight),
            settings.sessions,
            Transcripts(limits.message_cache_bytes // _TRANSCRIPTS_PART),
            self.calibrations,
            new_id,
            in_flight,
        )
        recorder = Recorder(store, jobs, self.newcomers, self.quotas, self.prices, self.counts)
        # Adds results of a conversation to its session's memory.
        self.blocks = MemoryBlocks(store.journal, self.writer, new_id)
        answered = Answered(
            viewing,
            self.windows,
            self.journal,
            self.indexing,
            CutPrompts(self.windows, self.calibrations, self.journal, jobs),
            partial(self.blocks.remembers, self.contexts, self.background),
        )
        delivers_unstored = settings.database.on_store_failure == "passthrough"
        relaying = RelayMeans(recorder, reader, jobs, limits, delivers_unstored, answered, self.mixed)
        recovery = Recovery(
            viewing, self.windows, self.calibrations, self.journal, settings.compaction.overflow_retries
        )
        responder = settings.upstream.compaction_requests
        compactions = OwnCompactions(responder, viewing, reader, recorder, new_id, RefusalMemory())
        return Exchange(
            access=self.access,
            references=References(store.exchanges, reader),
            resolver=resolver,
            tombstones=self.erasure.tombstones,
            recorder=recorder,
            viewing=viewing,
            delivery=Delivery(
                self.destinations,
                settings.compaction.notify,
                self.recalling,
                self.kept,
                compactions,
                recovery,
                relaying,
            ),
            passthrough=passthrough,
            quotas=self.quotas,
            mixed=self.mixed,
            limits=RequestLimits(limits.json_depth, limits.messages),
            settings=settings,
        )

    def metrics(self, siblings: Siblings | None, stack: AsyncExitStack) -> MetricsPage | None:
        """The numbers of this process, for `siblings` too until `stack` is closed; None if they are off."""
        settings = self.settings
        if self.counts is None:
            return None

        def is_known(model: str) -> bool:
            # An entry that matches all names none.
            entry = model_settings(settings, model)
            if entry is not None and entry.match != "*":
                return True
            if any(route.match != "*" and route.models.means(model) for route in settings.routes):
                return True
            # Imports the price library (0.17 s, 30 MB).
            try:
                return published(asked_name(settings, model)) is not None
            except (ImportError, ValueError, AttributeError):
                return False

        metrics = Metrics(
            self.counts,
            is_known,
            self.store,
            lambda: self.log.open,
            lambda: len(self.jobs.running) + len(self.chores.running),
        )
        if siblings is not None:
            stack.callback(siblings.answer_with(metrics.packed, self.chores))
        key = settings.telemetry.metrics_key
        return MetricsPage(metrics, siblings, key.get_secret_value() if key else None)


def instructions_of(chosen: SummarizerSettings) -> Instructions:
    """The instructions of summary prompts. SettingsError when the operator's prompt file cannot be read."""
    form = ""
    if chosen.prompt_file is not None:
        try:
            form = chosen.prompt_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = "it is not UTF-8" if isinstance(error, ValueError) else str(error.strerror)
            raise SettingsError(
                f"summarizer.prompt_file: {chosen.prompt_file} cannot be read: {why}."
            ) from error
        if not form:
            raise SettingsError(f"summarizer.prompt_file: {chosen.prompt_file} is empty.")
    return Instructions(form, chosen.extra_instructions.strip())


def web_origins(settings: Settings) -> WebOrigins:
    """The accepted Host names and the origins of web pages that may call the proxy."""
    given, has_keys = settings.server.allowed_hosts, settings.access.mode == "keys"
    is_any = "*" in given or (has_keys and not given)
    names = frozenset(name.lower() for name in (settings.server.host, *given))
    origins = frozenset(settings.server.cors_origins)
    return WebOrigins(None if is_any else names, not is_loopback(settings.server.host), origins)


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
    longer = await versioned(settings.upstream, settings.upstream, [key.header] if key else [])
    if longer is not None:
        advice = f"the upstream has no models at its base_url, but at {longer}: set upstream.base_url to that"
        _log.warning("upstream_base_url", advice=advice)


def new_id() -> str:
    """A time-ordered id (UUIDv7, RFC 9562): rows of the same time are adjacent in the index."""
    return str(uuid_utils.uuid7())
