"""Wires our own endpoints; imported at the first request for one."""

from __future__ import annotations

import time

from fastapi import FastAPI

from palimpsest.api.callers import ApiParts
from palimpsest.api.pages import pages_of
from palimpsest.main.wiring import Parts, new_id
from palimpsest.proxy.archive import Archive, ExchangeViews
from palimpsest.proxy.overviews import Overviews
from palimpsest.proxy.session_journal import Imports, RuntimeReader


def own_pages(parts: Parts) -> FastAPI:
    """Everything that is not below `/v1/`, except health checks."""
    store, limits = parts.store, parts.settings.limits
    archive = Archive(store, parts.reader)
    exchanges = ExchangeViews(
        *(store, archive, parts.reader, parts.tokens, parts.calibrations, parts.windows)
    )
    overviews = Overviews(store, parts.calibrations, parts.windows)
    states = RuntimeReader(store, archive, parts.tokens)
    imports = Imports(
        store, parts.reader, parts.newcomers, parts.erasure.tombstones, limits, time.time, new_id
    )
    return pages_of(
        ApiParts(
            store=store,
            archive=archive,
            access=parts.access,
            operator=parts.operator,
            settings=parts.settings,
            contexts=parts.contexts,
            viewing=parts.viewing,
            states=states,
            journal=parts.journal,
            blocks=parts.blocks,
            imports=imports,
            erases=parts.erasure,
            searching=parts.searching,
            recall=parts.tools,
            indexing=parts.indexing,
            windows=parts.windows,
            exchanges=exchanges,
            overviews=overviews,
            ended=parts.stopping,
        )
    )
