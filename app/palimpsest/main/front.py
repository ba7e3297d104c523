"""Wires the front door: recall, the journal, compaction, and the exchange that answers chat requests."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache, partial
from urllib.parse import clear_cache as forget_addresses  # type: ignore[attr-defined]  # not in the stubs

from palimpsest.api.chat import ChatEndpoint, PassthroughEndpoint
from palimpsest.api.front import Admission, ConcurrencyLimit, Front, LazyPages
from palimpsest.api.health import HealthPages
from palimpsest.api.metrics import MetricsPage
from palimpsest.core.notes.reader import forget_conversations
from palimpsest.core.summary.prompt import Instructions
from palimpsest.core.view.masking import forget_masked
from palimpsest.core.wire.request import RequestLimits
from palimpsest.core.wire.web_origins import WebOrigins
from palimpsest.errors import SettingsError
from palimpsest.main.parts import Parts, new_id
from palimpsest.proxy.answering.delivery import Delivery
from palimpsest.proxy.answering.outcomes import Answered, Outcomes
from palimpsest.proxy.answering.overflow_recovery import CutPrompts, Recovery
from palimpsest.proxy.answering.own_compactions import OwnCompactions
from palimpsest.proxy.answering.passthrough import ModelList, Passthrough
from palimpsest.proxy.answering.relay import RelayMeans
from palimpsest.proxy.compacting.breaker import BREAKER_SECONDS, Breaker, LoopBreaker, SummaryGuard
from palimpsest.proxy.compacting.compactor import Adoption, Compactor
from palimpsest.proxy.compacting.context_loader import ContextLoader, ModelFacts
from palimpsest.proxy.compacting.leases import Leases
from palimpsest.proxy.compacting.questions import Prompts
from palimpsest.proxy.compacting.summaries import JobRules, SummaryJobs, SummaryMeans
from palimpsest.proxy.compacting.summary_writer import SummarizerChoice, SummaryWriter
from palimpsest.proxy.compacting.viewing import ViewPlanner
from palimpsest.proxy.exchange import Exchange
from palimpsest.proxy.incoming import ASGIApp
from palimpsest.proxy.journal.session_journal import SessionJournal
from palimpsest.proxy.kept_answers import RefusalMemory
from palimpsest.proxy.lookups.executing import MixedTurns, ToolExecutor
from palimpsest.proxy.lookups.hidden_rounds import Replays
from palimpsest.proxy.lookups.rounds import RecallRounds
from palimpsest.proxy.memory_blocks import MemoryBlocks
from palimpsest.proxy.quotas import Quotas
from palimpsest.proxy.recall.indexing import Indexer, RecallSwitch
from palimpsest.proxy.recall.searching import Searcher
from palimpsest.proxy.recall.tools import RecallTools
from palimpsest.proxy.retention import Retention
from palimpsest.proxy.sessions.delta import References, Transcripts
from palimpsest.proxy.sessions.recorder import Recorder
from palimpsest.proxy.sessions.resolver import Resolver
from palimpsest.proxy.sessions.side_requests import SideRequests
from palimpsest.proxy.token_counts import REMEMBERED_MODELS
from palimpsest.settings.session import recall_enabled, session_policy, session_recalls
from palimpsest.settings.settings import (
    Settings,
    is_loopback,
    merged,
)
from palimpsest.settings.upstreams import SummarizerSettings
from palimpsest.storage.retention import RetentionLimits

# A background summary may take this many times as long as a request would wait for one.
PATIENCE = 3
# Transcripts share their messages with the cache of messages: this bounds those that only they hold.
_TRANSCRIPTS_PART = 8


# Of the largest size, so many unfinished bodies are held in memory.
_BODIES = 4


def front_of(parts: Parts, metrics: MetricsPage | None) -> tuple[Front, Retention]:
    """The whole application, made of opened parts; and what erases sessions that are kept too long."""
    settings, limits = parts.settings, parts.settings.limits
    # Every request needs one. Bounded, since callers choose the models' names.
    policies = lru_cache(REMEMBERED_MODELS)(partial(session_policy, settings))
    recall = recall_of(parts)
    contexts = ContextLoader(
        parts.store,
        ModelFacts(parts.windows, parts.calibrations, parts.tokens, parts.prices),
        policies,
        parts.destinations.headers,
        recall.replays,
        text_pins_share=settings.compaction.text_pins_share,
    )
    journal = SessionJournal(parts.store, parts.jobs, time.time, new_id, parts.erasure.log)
    quotas = Quotas(parts.store.accounts, parts.jobs)
    writer = _writer(parts, quotas)
    compactor = _compactor(parts, writer, journal)
    viewing = ViewPlanner(contexts, compactor, parts.jobs, wait_seconds=settings.compaction.deadline_seconds)
    passthrough = Passthrough(parts.destinations, quotas, limits.body_bytes)
    # Adds results of a conversation to its session's memory.
    blocks = MemoryBlocks(parts.store.journal, writer, new_id)
    remembers = partial(blocks.remembers, contexts, parts.background)
    cuts = CutPrompts(parts.windows, parts.calibrations, journal, parts.jobs)
    answered = Answered(viewing, parts.windows, journal, recall.indexing, cuts, remembers)
    exchange = _exchange(parts, viewing, journal, recall, answered, passthrough, quotas)
    forgetting = parts.erasure.forgetting
    forgetting.sessions += [exchange.resolver.erased, exchange.recorder.erased, compactor.erased]
    forgetting.others += [
        parts.tokenizer.forget,
        parts.tokens.forget_tools,
        forget_conversations,
        forget_masked,
        # They hold names of sessions, and what was searched for.
        forget_addresses,
        policies.cache_clear,
        recall.searching.forget,
    ]

    def pages() -> ASGIApp:
        from palimpsest.main.pages import own_pages

        searching = recall.searching
        return own_pages(
            *(parts, contexts, viewing, journal, writer), searching, recall.tools, recall.indexing.drop
        )

    own, idle = LazyPages(pages), limits.body_idle_seconds
    models = ModelList(parts.destinations)
    front = Front(
        chat=ChatEndpoint(exchange, new_id, body_bytes=limits.body_bytes, body_idle_seconds=idle),
        passthrough=PassthroughEndpoint(parts.access, quotas, models, passthrough, body_idle_seconds=idle),
        pages=metrics.before(own) if metrics else own,
        health=HealthPages(parts.store),
        origins=web_origins(settings),
        admission=Admission(
            answered=ConcurrencyLimit(limits.concurrent_requests, limits.caller_share),
            arriving=ConcurrencyLimit(limits.concurrent_uploads, limits.caller_share),
            body_bytes=ConcurrencyLimit(_BODIES * limits.body_bytes, limits.caller_share),
        ),
        access=parts.access,
        compacts=settings.upstream.compaction_requests != "upstream",
    )
    # Keys may get limits while the server runs.
    general = RetentionLimits(settings.retention.days, settings.retention.max_bytes)
    return front, Retention(parts.store, parts.erasure, general)


@dataclass(frozen=True, slots=True)
class RecallParts:
    """The parts of recall, one of each."""

    indexing: Indexer
    searching: Searcher
    tools: RecallTools
    recalling: RecallRounds
    mixed: MixedTurns
    replays: Replays


def recall_of(parts: Parts) -> RecallParts:
    """The index, search, the recall tools, and the parts that offer them to models and run their calls."""
    settings, stopping = parts.settings, parts.stopping
    how, limits = settings.recall, settings.limits
    switch = RecallSwitch(parts.store.journal, partial(recall_enabled, settings))
    indexing = Indexer(
        *(parts.store.search, parts.jobs, parts.background, stopping, switch, how.search_wait_seconds)
    )
    searching = Searcher(parts.store.search, indexing, switch, how)
    tools = RecallTools(parts.store, searching, switch, new_id, how.large_payload_tokens)
    refusing = RefusalMemory()
    executing = ToolExecutor(
        tools,
        parts.access.still_admits,
        lambda model: parts.tokens.counter_of(model).count_message,
        how.result_chars,
    )
    # A search waits for the store and for the word index.
    wait_seconds = settings.database.store_deadline_seconds + how.search_wait_seconds
    return RecallParts(
        indexing=indexing,
        searching=searching,
        tools=tools,
        recalling=RecallRounds(parts.destinations, executing, refusing, limits, how.max_rounds),
        mixed=MixedTurns(parts.store.exchanges, parts.jobs, executing, wait_seconds),
        replays=Replays(
            *(parts.store.exchanges, parts.tokens, refusing),
            *(partial(recall_enabled, settings), session_recalls, how),
        ),
    )


def _writer(parts: Parts, quotas: Quotas) -> SummaryWriter:
    """The writer of summaries."""
    how = parts.settings.compaction
    chosen = parts.settings.summarizer
    choice = SummarizerChoice(
        model=chosen.model,
        window_tokens=chosen.window_tokens,
        may_reuse_prompt=chosen.base_url is None and chosen.model is None,
        call_seconds=max(1.0, PATIENCE * how.deadline_seconds),
        instructions=instructions_of(chosen),
    )
    restraint = SummaryGuard(
        Breaker(merged([parts.settings.policy]).breaker_failures, BREAKER_SECONDS, time.monotonic),
        LoopBreaker(BREAKER_SECONDS, time.monotonic),
    )
    prompts = Prompts(parts.kept, choice.instructions)
    return SummaryWriter(
        parts.summarizers, parts.worker, prompts, choice, restraint, parts.store.journal, quotas, new_id
    )


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


def _compactor(parts: Parts, writer: SummaryWriter, journal: SessionJournal) -> Compactor:
    """The executor of compaction plans."""
    how, counts, store = parts.settings.compaction, parts.counts, parts.store
    # Keys are kept at least as long as a request may wait for a summary.
    rules = JobRules(
        concurrent=how.concurrent_summaries,
        key_seconds=max(how.key_ttl_seconds, how.deadline_seconds),
        backoff_seconds=how.summary_backoff_seconds,
    )
    # A SQLite file has one server, which takes over the leases of a killed one at its restart.
    leases = Leases(store.journal, parts.jobs, store.journal.server or "sole", time.time)
    means = SummaryMeans(writer, store, parts.jobs, leases, journal.failed, parts.erasure.gone)
    return Compactor(
        Adoption(store, parts.jobs, journal, counts.compacted if counts else None),
        SummaryJobs(means, rules, new_id),
        deadline_seconds=how.deadline_seconds,
        background=how.background and how.key_ttl_seconds > 0,
        new_id=new_id,
    )


def _exchange(
    parts: Parts,
    viewing: ViewPlanner,
    journal: SessionJournal,
    recall: RecallParts,
    answered: Answered,
    passthrough: Passthrough,
    quotas: Quotas,
) -> Exchange:
    """The exchange that answers chat requests."""
    settings, limits, store = parts.settings, parts.settings.limits, parts.store
    in_flight, transcripts = parts.in_flight, Transcripts(limits.message_cache_bytes // _TRANSCRIPTS_PART)
    beside = SideRequests(store.history, in_flight)
    resolver = Resolver(
        *(store, parts.reader, beside, settings.sessions, transcripts),
        *(parts.calibrations, new_id, in_flight),
    )
    recorder = Recorder(store, parts.jobs, parts.newcomers, quotas)
    relaying = RelayMeans(
        *(
            recorder,
            Outcomes(parts.reader),
            parts.jobs,
            limits,
            settings.database.on_store_failure == "passthrough",
        ),
        *(answered, recall.mixed),
    )
    recovery = Recovery(
        viewing, parts.windows, parts.calibrations, journal, settings.compaction.overflow_retries
    )
    responder = settings.upstream.compaction_requests
    compactions = OwnCompactions(responder, viewing, parts.reader, recorder, new_id, RefusalMemory())
    return Exchange(
        access=parts.access,
        references=References(store.exchanges, parts.reader),
        resolver=resolver,
        tombstones=parts.erasure.tombstones,
        recorder=recorder,
        viewing=viewing,
        delivery=Delivery(
            *(parts.destinations, settings.compaction.notify, recall.recalling, parts.kept),
            *(compactions, recovery, relaying),
        ),
        passthrough=passthrough,
        quotas=quotas,
        mixed=recall.mixed,
        limits=RequestLimits(limits.json_depth, limits.messages),
        settings=settings,
    )


def web_origins(settings: Settings) -> WebOrigins:
    """The accepted Host names and the origins of web pages that may call the proxy."""
    given, has_keys = settings.server.allowed_hosts, settings.access.mode == "keys"
    is_any = "*" in given or (has_keys and not given)
    names = frozenset(name.lower() for name in (settings.server.host, *given))
    origins = frozenset(settings.server.cors_origins)
    return WebOrigins(None if is_any else names, not is_loopback(settings.server.host), origins)
