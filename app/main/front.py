"""The front door with everything behind it.

Knows nothing of what must be opened and closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from fastapi import FastAPI

from app.api.chat import ChatEndpoint
from app.api.front import Front
from app.api.pages import Pages, pages_of
from app.api.passthrough import PassthroughEndpoint
from app.api.places import Admission, Places
from app.core.history.carriers import Carriers
from app.core.wire.request_body import Limits
from app.core.wire.web_origins import WebOrigins
from app.main.compacting import chronicle_of, compactor_of, policies_of, scenes_of, writer_of
from app.main.moving import moving_of
from app.main.parts import Parts, new_id
from app.main.recalling import Recall, recall_of
from app.proxy.answering.answered import Answered
from app.proxy.answering.cut_prompts import CutPrompts
from app.proxy.answering.delivery import Delivery, Sending
from app.proxy.answering.model_list import ModelList
from app.proxy.answering.outcomes import Outcomes
from app.proxy.answering.own_compactions import Means as CompactionMeans
from app.proxy.answering.own_compactions import OwnCompactions
from app.proxy.answering.passthrough import Passthrough
from app.proxy.answering.recovering import Recovery
from app.proxy.answering.relay import Follows, Relay, RelayLimits
from app.proxy.chronicle.chronicle import Chronicle, Remembers
from app.proxy.compacting.compactor import Compactor
from app.proxy.compacting.scenes import Scenes
from app.proxy.compacting.summary_writer import SummaryWriter
from app.proxy.compacting.viewing import Viewing
from app.proxy.erasing import Erasing, Memory
from app.proxy.exchange import Behaviour, Exchange
from app.proxy.memory_blocks import MemoryBlocks
from app.proxy.recall.indexing import Indexing
from app.proxy.recall.refusing import Refusing
from app.proxy.sessions.beside import Beside
from app.proxy.sessions.delta import Deltas
from app.proxy.sessions.recorder import Recorder
from app.proxy.sessions.references import References
from app.proxy.sessions.resolver import Resolver
from app.settings.settings import Settings, is_loopback


def front_of(parts: Parts, pages: FastAPI, stopping: asyncio.Event) -> Front:
    """The front door with everything behind it; `stopping` is set when the server begins to stop."""
    limits = parts.settings.limits
    policies = policies_of(parts)
    recall = recall_of(parts, stopping)
    scenes = scenes_of(parts, policies, recall.replays)
    chronicle = chronicle_of(parts)
    writer = writer_of(parts)
    compactor = compactor_of(parts, writer, chronicle)
    viewing = Viewing(scenes, compactor, parts.jobs, wait_seconds=parts.settings.compaction.deadline_seconds)
    passthrough = Passthrough(parts.destinations, limits.body_bytes)
    models, idle = ModelList(parts.destinations), limits.body_idle_seconds
    exchange = exchange_of(parts, viewing, passthrough, chronicle, recall, _remembers(parts, writer, scenes))
    memory = memory_of(parts, exchange, compactor, chronicle, (policies.cache_clear, recall.searching.forget))
    served = Pages(
        parts.store,
        parts.access,
        parts.reader,
        scenes,
        viewing,
        parts.settings,
        completes=chronicle,
        summarizer=writer,
        moving=moving_of(parts, chronicle),
        searching=recall.searching,
        recall=recall.tools,
        unindexes=recall.indexing.drop,
        windows=parts.windows,
        erases=Erasing(parts.erasure, memory),
        ended=stopping,
    )
    pages_of(pages, served)
    return Front(
        chat=ChatEndpoint(exchange, new_id, body_bytes=limits.body_bytes, body_idle_seconds=idle),
        passthrough=PassthroughEndpoint(parts.access, models, passthrough, body_idle_seconds=idle),
        pages=pages,
        origins=web_origins(parts.settings),
        admission=admission_of(parts.settings),
        access=parts.access,
        compacts=parts.settings.upstream.compacts != "upstream",
    )


def _remembers(parts: Parts, writer: SummaryWriter, scenes: Scenes) -> Remembers:
    """Who makes entries of a session's memory of what its conversation came to."""
    return partial(MemoryBlocks(parts.store, writer, new_id).remembers, scenes)


def admission_of(settings: Settings) -> Admission:
    """How many requests are answered at a time, and how many arrive."""
    limits = settings.limits
    return Admission(
        answered=Places(limits.concurrent_requests, limits.caller_share),
        arriving=Places(limits.concurrent_uploads, limits.caller_share),
        header_bytes=limits.header_bytes,
    )


def web_origins(settings: Settings) -> WebOrigins:
    """Which names are answered to, and which pages may speak to the proxy."""
    given, has_keys = settings.server.allowed_hosts, settings.access.mode == "keys"
    is_any = "*" in given or (has_keys and not given)
    names = frozenset(name.lower() for name in (settings.server.host, *given))
    origins = frozenset(settings.server.cors_origins)
    return WebOrigins(None if is_any else names, not is_loopback(settings.server.host), origins)


def answered_of(
    parts: Parts, viewing: Viewing, chronicle: Chronicle, indexing: Indexing, remembers: Remembers
) -> Answered:
    """What is made of every answer that has ended."""
    cuts = CutPrompts(parts.windows, parts.calibrations, chronicle, parts.jobs)
    return Answered(viewing, parts.windows, chronicle, indexing, cuts, remembers)


def exchange_of(
    parts: Parts,
    viewing: Viewing,
    passthrough: Passthrough,
    chronicle: Chronicle,
    recall: Recall,
    remembers: Remembers,
) -> Exchange:
    """What answers chat requests."""
    settings, limits = parts.settings, parts.settings.limits
    answered = answered_of(parts, viewing, chronicle, recall.indexing, remembers)
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
        Follows(answered, recall.mixed),
    )
    recovery = _recovery(parts, viewing, chronicle)
    return Exchange(
        access=parts.access,
        references=References(parts.store, parts.reader),
        resolver=_resolver(parts),
        tombstones=parts.erasure.tombstones,
        recorder=recorder,
        viewing=viewing,
        delivery=Delivery(_sending(parts, recall, viewing, recorder), recorder, relay, recovery),
        passthrough=passthrough,
        mixed=recall.mixed,
        behaviour=Behaviour(
            Limits(limits.depth, limits.messages),
            limits.body_bytes,
            settings.access.allow_off,
            settings.database.on_store_failure,
        ),
    )


def _recovery(parts: Parts, viewing: Viewing, chronicle: Chronicle) -> Recovery:
    retries = parts.settings.compaction.overflow_retries
    return Recovery(viewing, parts.windows, parts.calibrations, chronicle, retries)


def _sending(parts: Parts, recall: Recall, viewing: Viewing, recorder: Recorder) -> Sending:
    """How requests go upstream."""
    settings = parts.settings
    means = CompactionMeans(viewing, parts.reader, recorder, new_id)
    compactions = OwnCompactions(settings.upstream.compacts, means, Refusing())
    return Sending(parts.destinations, settings.compaction.notify, recall.recalling, parts.kept, compactions)


def memory_of(
    parts: Parts,
    exchange: Exchange,
    compactor: Compactor,
    chronicle: Chronicle,
    others: tuple[Callable[[], None], ...],
) -> Memory:
    """Who holds something of sessions in memory."""
    return Memory(
        sessions=(exchange.resolver, exchange.recorder, compactor, chronicle),
        reader=parts.reader,
        # Tool schemas, settings of sessions, words that were looked for.
        others=(parts.tokens.forget_tools, *others),
    )


def _resolver(parts: Parts) -> Resolver:
    how = parts.settings.sessions
    carriers = Carriers(how.headers, how.codex_headers, how.body_keys, how.metadata_keys)
    deltas = Deltas(
        parts.store, parts.reader, default_mode=how.default_mode, waiting_appends=how.waiting_appends
    )
    beside = Beside(parts.store, parts.reader)
    return Resolver(parts.store, parts.reader, deltas, beside, carriers, parts.calibrations, new_id)
