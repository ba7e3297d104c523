"""What the pages are made of, and the session that a page is about."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from palimpsest.api.pins import PinPages
from palimpsest.api.status import SettingsPages
from palimpsest.api.ui.paper import ASKS, PageTemplates, way_of
from palimpsest.errors import NotFound, Unauthorized
from palimpsest.proxy.archive import Archive
from palimpsest.proxy.compacting.context_loader import ContextLoader
from palimpsest.proxy.compaction_views import CompactionViews
from palimpsest.proxy.exchange_views import ExchangeViews
from palimpsest.proxy.overview import Overviews
from palimpsest.proxy.recall.searching import Searcher
from palimpsest.proxy.session_lists import SessionLists
from palimpsest.storage.history import SessionRow
from palimpsest.storage.store import Store


@dataclass(frozen=True, slots=True)
class UiParts:
    """What the pages read, and the paper that they are written on."""

    paper: PageTemplates
    archive: Archive
    store: Store
    contexts: ContextLoader
    exchanges: ExchangeViews
    compactions: CompactionViews
    overviews: Overviews
    lists: SessionLists
    pins: PinPages
    settings: SettingsPages
    searching: Searcher

    async def row(self, request: Request, namespace: str, name: str) -> SessionRow:
        """The session. NotFound; Unauthorized when a browser has sent no key, or perhaps a mistyped one."""
        try:
            return await self.archive.session(namespace, name)
        except NotFound as missing:
            if await self._is_known(request, namespace):
                raise
            raise Unauthorized(f"{missing.message} {ASKS}") from None

    async def _is_known(self, request: Request, namespace: str) -> bool:
        """False without a key, and for a password with which no session exists at all."""
        way = way_of(request)
        if way == "password":
            return await self.store.history.session_count(namespace) > 0
        return way == "header"
