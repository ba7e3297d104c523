"""The front door with everything behind it.

Knows nothing of what must be opened and closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from fastapi import FastAPI

from app.api.chat import ChatEndpoint
from app.api.front import Crowd, Front
from app.api.pages import Pages, pages_of
from app.api.passthrough import PassthroughEndpoint
from app.core.history.carriers import Carriers
from app.core.wire.chat_request import Limits
from app.main.compacting import chronicle_of, compactor_of, policies_of, scenes_of, writer_of
from app.main.moving import moving_of
from app.main.parts import Parts, new_id
from app.proxy.answering.answered import Answered
from app.proxy.answering.delivery import Delivery, Sending
from app.proxy.answering.outcomes import Outcomes
from app.proxy.answering.passthrough import Passthrough
from app.proxy.answering.recovering import Recovery
from app.proxy.answering.relay import Relay, RelayLimits
from app.proxy.chronicle.chronicle import Chronicle
from app.proxy.compacting.compactor import Compactor
from app.proxy.compacting.viewing import Viewing
from app.proxy.erasing import Erasing, Memory
from app.proxy.exchange import Behaviour, Exchange
from app.proxy.recall.describing import Describing
from app.proxy.recall.indexing import Indexing
from app.proxy.recall.offering import Recalling
from app.proxy.recall.refusing import Refusing
from app.proxy.recall.rounds import RoundMeans
from app.proxy.recall.searching import Searching
from app.proxy.recall.streaming import RoundLimits
from app.proxy.recall.tools import RecallTools
from app.proxy.reports import ExchangeLog
from app.proxy.sessions.delta import Deltas
from app.proxy.sessions.recorder import Recorder
from app.proxy.sessions.resolver import Resolver
from app.settings.session import session_recalls


def front_of(parts: Parts, pages: FastAPI, stopping: asyncio.Event) -> Front:
    """The front door with everything behind it; `stopping` is set when the server begins to stop."""
    limits = parts.settings.limits
    policies = policies_of(parts)
    scenes = scenes_of(parts, policies)
    chronicle = chronicle_of(parts)
    writer = writer_of(parts)
    compactor = compactor_of(parts, writer, chronicle)
    deadline_seconds = parts.settings.compaction.deadline_seconds
    viewing = Viewing(scenes, compactor, parts.jobs, wait_seconds=deadline_seconds)
    passthrough = Passthrough(parts.upstream, parts.outgoing)
    indexing = Indexing(parts.store, parts.jobs, stopping)
    searching = Searching(parts.store, indexing)
    answered = Answered(viewing, parts.windows, parts.calibrations, chronicle, indexing)
    recall = recall_of(parts, searching)
    exchange = exchange_of(parts, viewing, passthrough, chronicle, answered, recalling_of(parts, recall))
    memory = memory_of(parts, exchange, compactor, chronicle, (policies.cache_clear, searching.forget))
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
        searching=searching,
        recall=recall,
        erases=Erasing(parts.erasure, memory),
        ended=stopping,
    )
    pages_of(pages, served)
    return Front(
        chat=ChatEndpoint(exchange, body_bytes=limits.body_bytes, body_seconds=limits.body_seconds),
        passthrough=PassthroughEndpoint(parts.access, passthrough, body_bytes=limits.body_bytes),
        pages=pages,
        crowd=Crowd(requests=limits.concurrent_requests, header_bytes=limits.header_bytes),
    )


def exchange_of(
    parts: Parts,
    viewing: Viewing,
    passthrough: Passthrough,
    chronicle: Chronicle,
    answered: Answered,
    recalling: Recalling,
) -> Exchange:
    """What answers chat requests."""
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
        answered,
    )
    how = settings.compaction
    sending = Sending(parts.upstream, parts.outgoing, how.notify, recalling)
    recovery = Recovery(viewing, parts.windows, chronicle, how.overflow_retries)
    return Exchange(
        access=parts.access,
        resolver=_resolver(parts),
        tombstones=parts.erasure.tombstones,
        recorder=recorder,
        viewing=viewing,
        delivery=Delivery(sending, recorder, relay, recovery),
        passthrough=passthrough,
        behaviour=Behaviour(
            Limits(limits.depth, limits.messages),
            limits.body_bytes,
            settings.access.allow_off,
            settings.database.on_store_failure,
        ),
        log=ExchangeLog(parts.jobs),
    )


def recalling_of(parts: Parts, tools: RecallTools) -> Recalling:
    """Who offers models our tools, and has their calls carried out."""
    how, limits = parts.settings.recall, parts.settings.limits
    bounds = RoundLimits(how.rounds, how.result_chars, limits.frame_bytes, limits.answer_bytes)
    means = RoundMeans(parts.upstream, tools, Refusing(), bounds)
    return Recalling(means, partial(session_recalls, parts.settings))


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


def recall_of(parts: Parts, searching: Searching) -> RecallTools:
    """The tools with which what was said is read again."""
    describing = Describing(parts.store, parts.settings.recall.large_payload_tokens)
    return RecallTools(parts.store, searching, describing, new_id)


def _resolver(parts: Parts) -> Resolver:
    how = parts.settings.sessions
    carriers = Carriers(how.headers, how.codex_headers, how.body_keys, how.metadata_keys)
    deltas = Deltas(
        parts.store, parts.reader, default_mode=how.default_mode, waiting_appends=how.waiting_appends
    )
    return Resolver(parts.store, parts.reader, deltas, carriers, parts.tokens, new_id)
