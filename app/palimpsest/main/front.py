"""Wires the front door and the endpoints from opened parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from urllib.parse import clear_cache as forget_addresses  # type: ignore[attr-defined]  # not in the stubs

from palimpsest.api.chat import ChatEndpoint, PassthroughEndpoint
from palimpsest.api.front import Admission, ConcurrencyLimit, Front, LazyPages
from palimpsest.api.health import HealthPages
from palimpsest.api.metrics import MetricsPage
from palimpsest.core.history.session_sources import SessionSources
from palimpsest.core.notes.reader import forget_conversations
from palimpsest.core.view.masking import forget_masked
from palimpsest.core.wire.request import RequestLimits
from palimpsest.core.wire.web_origins import WebOrigins
from palimpsest.main.features import (
    Policies,
    RecallParts,
    compactor_of,
    context_loader_of,
    journal_of,
    quotas_of,
    recall_of,
    writer_of,
)
from palimpsest.main.ground import new_id
from palimpsest.main.parts import Parts
from palimpsest.proxy.answering.delivery import Delivery, DeliveryParts
from palimpsest.proxy.answering.outcomes import Answered, Outcomes
from palimpsest.proxy.answering.overflow_recovery import CutPrompts, Recovery
from palimpsest.proxy.answering.own_compactions import CompactionMeans, OwnCompactions
from palimpsest.proxy.answering.passthrough import ModelList, Passthrough
from palimpsest.proxy.answering.relay import AnswerHooks, Relay, RelayLimits
from palimpsest.proxy.compacting.compactor import Compactor
from palimpsest.proxy.compacting.context_loader import ContextLoader
from palimpsest.proxy.compacting.summary_writer import SummaryWriter
from palimpsest.proxy.compacting.viewing import ViewPlanner
from palimpsest.proxy.erasing import Eraser
from palimpsest.proxy.exchange import Behaviour, Exchange
from palimpsest.proxy.forgetting import HeldInMemory
from palimpsest.proxy.incoming import ASGIApp
from palimpsest.proxy.journal.session_journal import Remembers, SessionJournal
from palimpsest.proxy.kept_answers import RefusalMemory
from palimpsest.proxy.memory_blocks import MemoryBlocks
from palimpsest.proxy.quotas import Quotas
from palimpsest.proxy.recall.indexing import Indexer
from palimpsest.proxy.retention import Retention
from palimpsest.proxy.sessions.delta import Deltas, References
from palimpsest.proxy.sessions.recorder import Recorder
from palimpsest.proxy.sessions.resolver import Resolver
from palimpsest.proxy.sessions.side_requests import SideRequests
from palimpsest.settings.settings import Settings, is_loopback
from palimpsest.storage.retention import RetentionLimits


@dataclass(frozen=True, slots=True)
class Composed:
    """A generation's front door and pages, what it holds of sessions, and what erases old ones."""

    front: Front
    pages: LazyPages
    memory: HeldInMemory
    retention: Retention


def composed_of(parts: Parts, metrics: MetricsPage | None) -> Composed:
    """The whole application, made of opened parts."""
    limits = parts.settings.limits
    policies = Policies(parts.settings)
    recall = recall_of(parts)
    contexts = context_loader_of(parts, policies, recall.replays)
    journal = journal_of(parts)
    writer = writer_of(parts)
    compactor = compactor_of(parts, writer, journal)
    viewing = ViewPlanner(
        contexts, compactor, parts.jobs, wait_seconds=parts.settings.compaction.deadline_seconds
    )
    quotas = quotas_of(parts)
    passthrough = Passthrough(parts.destinations, quotas, limits.body_bytes)
    models, idle = ModelList(parts.destinations), limits.body_idle_seconds
    remembers = _remembers(parts, writer, contexts)
    exchange = exchange_of(parts, viewing, passthrough, quotas, journal, recall, remembers)
    memory = memory_of(parts, exchange, compactor, journal, (policies.forget, recall.searching.forget))

    def pages() -> ASGIApp:
        from palimpsest.main.pages import own_pages

        return own_pages(parts, contexts, viewing, journal, writer, recall)

    def forget() -> None:
        from palimpsest.api.pages import forget_endpoints

        forget_endpoints()

    own = LazyPages(pages, forget)
    front = Front(
        chat=ChatEndpoint(exchange, new_id, body_bytes=limits.body_bytes, body_idle_seconds=idle),
        passthrough=PassthroughEndpoint(parts.access, quotas, models, passthrough, body_idle_seconds=idle),
        pages=metrics.before(own) if metrics else own,
        health=HealthPages(parts.store),
        origins=web_origins(parts.settings),
        admission=admission_of(parts),
        access=parts.access,
        compacts=parts.settings.upstream.compaction_requests != "upstream",
    )
    return Composed(front, own, memory, _retention(parts))


def _retention(parts: Parts) -> Retention:
    """What erases what is kept too long. Keys may get limits while the server runs."""
    general = RetentionLimits(parts.settings.retention.days, parts.settings.retention.max_bytes)
    return Retention(parts.store, Eraser(parts.ground.erasure), general)


def _remembers(parts: Parts, writer: SummaryWriter, contexts: ContextLoader) -> Remembers:
    """The function that adds results of a conversation to its session's memory."""
    return partial(MemoryBlocks(parts.store.journal, writer, new_id).remembers, contexts)


def admission_of(parts: Parts) -> Admission:
    """The limits on concurrent answers and uploads; those of earlier generations count, too."""
    limits, ground = parts.settings.limits, parts.ground
    return Admission(
        answered=ConcurrencyLimit(limits.concurrent_requests, limits.caller_share, ground.answered),
        arriving=ConcurrencyLimit(limits.concurrent_uploads, limits.caller_share, ground.arriving),
        header_bytes=limits.header_bytes,
    )


def web_origins(settings: Settings) -> WebOrigins:
    """The accepted Host names and the origins of web pages that may call the proxy."""
    given, has_keys = settings.server.allowed_hosts, settings.access.mode == "keys"
    is_any = "*" in given or (has_keys and not given)
    names = frozenset(name.lower() for name in (settings.server.host, *given))
    origins = frozenset(settings.server.cors_origins)
    return WebOrigins(None if is_any else names, not is_loopback(settings.server.host), origins)


def answered_of(
    parts: Parts, viewing: ViewPlanner, journal: SessionJournal, indexing: Indexer, remembers: Remembers
) -> Answered:
    """The actions after every finished answer."""
    cuts = CutPrompts(parts.windows, parts.calibrations, journal, parts.jobs)
    return Answered(viewing, parts.windows, journal, indexing, cuts, remembers)


def exchange_of(
    parts: Parts,
    viewing: ViewPlanner,
    passthrough: Passthrough,
    quotas: Quotas,
    journal: SessionJournal,
    recall: RecallParts,
    remembers: Remembers,
) -> Exchange:
    """The exchange that answers chat requests."""
    settings, limits = parts.settings, parts.settings.limits
    answered = answered_of(parts, viewing, journal, recall.indexing, remembers)
    recorder = Recorder(parts.store, parts.jobs, parts.newcomers, quotas)
    relay = _relay(parts, recorder, AnswerHooks(answered, recall.mixed))
    recovery = _recovery(parts, viewing, journal)
    return Exchange(
        access=parts.access,
        references=References(parts.store.exchanges, parts.reader),
        resolver=_resolver(parts),
        tombstones=parts.ground.erasure.tombstones,
        recorder=recorder,
        viewing=viewing,
        delivery=Delivery(_sending(parts, recall, viewing, recorder), recorder, relay, recovery),
        passthrough=passthrough,
        quotas=quotas,
        storage=parts.ground.storage,
        mixed=recall.mixed,
        behaviour=Behaviour(
            RequestLimits(limits.json_depth, limits.messages),
            limits.body_bytes,
            settings.access.allow_off,
            settings.database.on_store_failure,
        ),
    )


def _relay(parts: Parts, recorder: Recorder, follows: AnswerHooks) -> Relay:
    limits, on_failure = parts.settings.limits, parts.settings.database.on_store_failure
    bounds = RelayLimits(
        limits.frame_bytes, limits.answer_bytes, delivers_unstored=on_failure == "passthrough"
    )
    return Relay(recorder, Outcomes(parts.reader), parts.jobs, bounds, follows)


def _recovery(parts: Parts, viewing: ViewPlanner, journal: SessionJournal) -> Recovery:
    retries = parts.settings.compaction.overflow_retries
    return Recovery(viewing, parts.windows, parts.calibrations, journal, retries)


def _sending(parts: Parts, recall: RecallParts, viewing: ViewPlanner, recorder: Recorder) -> DeliveryParts:
    """The parts that send requests upstream."""
    settings = parts.settings
    means = CompactionMeans(viewing, parts.reader, recorder, new_id)
    compactions = OwnCompactions(settings.upstream.compaction_requests, means, RefusalMemory())
    return DeliveryParts(
        parts.destinations, settings.compaction.notify, recall.recalling, parts.kept, compactions
    )


def memory_of(
    parts: Parts,
    exchange: Exchange,
    compactor: Compactor,
    journal: SessionJournal,
    others: tuple[Callable[[], None], ...],
) -> HeldInMemory:
    """The parts that hold data of sessions in memory; an erase clears them."""
    return HeldInMemory(
        sessions=(exchange.resolver, exchange.recorder, compactor, journal),
        reader=parts.reader,
        others=(
            parts.ground.tokenizer.forget,
            parts.tokens.forget_tools,
            forget_conversations,
            forget_masked,
            # They hold names of sessions, and what was searched for.
            forget_addresses,
            # Policies of sessions, recent searches.
            *others,
        ),
        jobs=parts.jobs,
        log=parts.daily_log,
    )


# Transcripts share their messages with the cache of messages: this bounds those that only they hold.
_TRANSCRIPTS_PART = 8


def _resolver(parts: Parts) -> Resolver:
    how, in_flight = parts.settings.sessions, parts.ground.in_flight
    sources = SessionSources(how.headers, how.codex_headers, how.body_keys, how.metadata_keys)
    deltas = Deltas(
        parts.store.history,
        parts.reader,
        in_flight,
        default_mode=how.default_mode,
        waiting_appends=how.waiting_appends,
        transcript_bytes=parts.settings.limits.message_cache_bytes // _TRANSCRIPTS_PART,
    )
    beside = SideRequests(parts.store.history, parts.reader)
    return Resolver(
        *(parts.store, parts.reader, deltas, beside, sources, parts.calibrations, new_id, in_flight)
    )
