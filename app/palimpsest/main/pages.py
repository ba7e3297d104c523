"""Wires our own endpoints; imported at the first request for one."""

from __future__ import annotations

import time

from fastapi import FastAPI

from palimpsest.api.pages import Pages, Views, pages_of
from palimpsest.api.transfer import SessionTransfer
from palimpsest.core.runtime.session_import import RecordLimits
from palimpsest.main.features import RecallParts, costs_of
from palimpsest.main.ground import new_id
from palimpsest.main.parts import Parts
from palimpsest.proxy.archive import Archive
from palimpsest.proxy.compacting.context_loader import ContextLoader
from palimpsest.proxy.compacting.summary_writer import SummaryWriter
from palimpsest.proxy.compacting.viewing import ViewPlanner
from palimpsest.proxy.compaction_views import CompactionViews
from palimpsest.proxy.erasing import Eraser
from palimpsest.proxy.exchange_views import ExchangeViews
from palimpsest.proxy.journal.runtime import Readings
from palimpsest.proxy.journal.session_journal import SessionJournal
from palimpsest.proxy.journal.transfer import ImportLimits, ImportParts, Imports
from palimpsest.proxy.namespace_views import NamespaceViews
from palimpsest.proxy.overview import Overviews
from palimpsest.proxy.session_lists import SessionLists


def own_pages(
    parts: Parts,
    contexts: ContextLoader,
    viewing: ViewPlanner,
    journal: SessionJournal,
    writer: SummaryWriter,
    recall: RecallParts,
) -> FastAPI:
    """Everything that is not below `/v1/`, except health checks."""
    return pages_of(
        Pages(
            parts.store,
            parts.access,
            parts.reader,
            contexts,
            viewing,
            parts.settings,
            parts.operator,
            completes=journal,
            summarizer=writer,
            moving=transfer_of(parts, journal),
            searching=recall.searching,
            recall=recall.tools,
            unindexes=recall.indexing.drop,
            windows=parts.windows,
            views=views_of(parts),
            erases=Eraser(parts.ground.erasure),
            reload=parts.ground.reload,
            ended=parts.stopping,
        )
    )


def views_of(parts: Parts) -> Views:
    """What reads stored turns and compactions for people."""
    costs = costs_of(parts.settings, parts.jobs)
    archive = Archive(parts.store, parts.reader)
    exchanges = ExchangeViews(
        *(parts.store, archive, parts.reader, parts.tokens, parts.calibrations, costs, parts.windows)
    )
    compactions = CompactionViews(parts.store, archive, exchanges, costs)
    overviews = Overviews(parts.store, parts.calibrations, costs)
    lists = SessionLists(parts.store, overviews, parts.calibrations, parts.windows)
    namespaces = NamespaceViews(parts.store, costs)
    return Views(exchanges, compactions, overviews, lists, namespaces)


def transfer_of(parts: Parts, journal: SessionJournal) -> SessionTransfer:
    """Export and import of sessions."""
    limits = parts.settings.limits
    readings = Readings(parts.store, parts.reader, parts.tokens)
    made_of = ImportParts(
        store=parts.store,
        reader=parts.reader,
        readings=readings,
        newcomers=parts.newcomers,
        tombstones=parts.ground.erasure.tombstones,
        clock=time.time,
        new_id=new_id,
    )
    bounds = ImportLimits(RecordLimits(limits.json_depth, limits.import_events), limits.messages)
    imports = Imports(made_of, bounds)
    return SessionTransfer(
        journal, imports, parts.ground.storage, limits.body_bytes, limits.body_idle_seconds
    )
