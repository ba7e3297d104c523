"""The pages for browsers: a caller's sessions, their turns, what the model saw at one, and events (A24).

Everything that they show is also an endpoint under `/api`, which the pages name.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response

from palimpsest.api.callers import Admitted, credentials_of
from palimpsest.api.clients import base_url_of, settings_lines
from palimpsest.api.events import MOST_SEQ
from palimpsest.api.exchanges import followed_fields
from palimpsest.api.overview import Days
from palimpsest.api.pins import PinPages
from palimpsest.api.sessions import IdText, compaction_fields
from palimpsest.api.status import SettingsPages
from palimpsest.api.ui.entries import (
    CHOICES,
    Listed,
    Use,
    days_of,
    entry_of,
    listed_of,
    moment,
    use_of,
)
from palimpsest.api.ui.kept import hits_of, lines_of
from palimpsest.api.ui.paper import ASKS, PageTemplates, way_of
from palimpsest.api.ui.turns import message_rows, turn_facts, turns_of
from palimpsest.core.recall.filters import Filters
from palimpsest.core.summary.styles import state_fields
from palimpsest.errors import NotFound, Unauthorized
from palimpsest.proxy.archive import Archive
from palimpsest.proxy.compacting.context_loader import ContextLoader
from palimpsest.proxy.compaction_context import CompactionContext
from palimpsest.proxy.exchange_views import ExchangeViews
from palimpsest.proxy.journal_rows import text_of
from palimpsest.proxy.overview import Overviews
from palimpsest.proxy.recall.searching import Searcher, Where
from palimpsest.storage.exchange_log import NEWEST
from palimpsest.storage.history import SessionRow
from palimpsest.storage.store import Store

_MOST_SESSIONS = 50
_MOST_EVENTS = 500
# Hits of a search, and kept memories and checkpoints, on one page.
_MOST_HITS, _MOST_KEPT = 20, 50
# Nobody reads more branches than these: a chat front end leaves three for every question.
_MOST_BRANCHES = 40
# Turns on one page of the rail.
_MOST_TURNS = 200
Show = Literal["all", "compactions", "trouble"]


@dataclass(frozen=True, slots=True)
class UiParts:
    """What the pages are made of."""

    paper: PageTemplates
    archive: Archive
    store: Store
    contexts: ContextLoader
    views: ExchangeViews
    overviews: Overviews
    pins: PinPages
    settings: SettingsPages
    searching: Searcher | None


class UiPages:
    """The pages below `/ui`."""

    def __init__(self, parts: UiParts) -> None:
        self._archive = parts.archive
        self._store = parts.store
        self._contexts = parts.contexts
        self._views = parts.views
        self._overviews = parts.overviews
        self._pins = parts.pins
        self._settings = parts.settings
        self._searching = parts.searching
        self._paper = parts.paper

    def on(self, ui: APIRouter) -> None:
        """Register the routes; names of sessions may have slashes."""
        ui.add_api_route("/ui", self.sessions, methods=["GET"])
        ui.add_api_route("/ui/overview", self.overview, methods=["GET"])
        ui.add_api_route("/ui/search", self.search, methods=["GET"])
        ui.add_api_route("/ui/sessions/{name:path}/state", self.state, methods=["GET"])
        ui.add_api_route("/ui/sessions/{name:path}/settings", self.settings, methods=["GET"])
        ui.add_api_route("/ui/sessions/{name:path}/events", self.events, methods=["GET"])
        ui.add_api_route("/ui/sessions/{name:path}/turns", self.chosen, methods=["GET"])
        ui.add_api_route("/ui/sessions/{name:path}/turns/{n}", self.turn, methods=["GET"])
        ui.add_api_route("/ui/sessions/{name:path}", self.session, methods=["GET"])

    async def sessions(
        self,
        request: Request,
        caller: Admitted,
        limit: Annotated[int, Query(ge=1, le=_MOST_SESSIONS)] = 25,
        before: Annotated[IdText | None, Query()] = None,
        ask: bool = False,
    ) -> Response:
        """The caller's sessions as a page, newest first. `ask`: a browser without a key asks for one."""
        way = way_of(request)
        if ask and way == "none":
            raise Unauthorized(ASKS)
        total = await self._store.history.session_count(caller.namespace, "")
        if not total and way == "password":
            # The password may be mistyped.
            raise Unauthorized(f"Nothing is stored for you yet. {ASKS}")
        rows = await self._store.history.sessions(caller.namespace, limit + 1, before, with_side=False)
        page = rows[:limit]
        return await self._paper.page(
            "sessions.html",
            {
                "sessions": await self._listed(caller.namespace, page),
                "total": total,
                "limit": limit,
                "is_first": before is None,
                "next": page[-1].id if len(rows) > limit else None,
                "has_links": way != "password",
                "has_key": way != "none",
                "base_url": base_url_of(request.scope),
                "clients": settings_lines(request.scope),
            },
        )

    async def overview(self, request: Request, caller: Admitted, days: Days = 7) -> Response:
        """What the turns of the last days add up to, and whose fault failures were, as a page."""
        found = await self._overviews.of(caller.namespace, days, time.time())
        widest = max([sums.tokens_full for sums in found.by_day.values()], default=0)
        facts = {"found": found, "widest": widest, "has_links": way_of(request) != "password"}
        return await self._paper.page("overview.html", facts)

    async def _listed(self, namespace: str, page: Sequence[SessionRow]) -> list[Listed]:
        names = [row.id for row in page]
        asked = await self._store.exchanges.newest_finished(namespace, names)
        newest = await self._store.exchange_log.newest(namespace, names)
        openings = await self._store.exchange_log.openings(namespace, names)
        ratio_of = partial(self._contexts.ratio_of, namespace)
        return listed_of(page, asked, newest, openings, time.time(), ratio_of)

    async def session(
        self,
        request: Request,
        caller: Admitted,
        name: str,
        before: Annotated[int, Query(ge=0, le=NEWEST)] = NEWEST,
        limit: Annotated[int, Query(ge=1, le=_MOST_TURNS)] = 50,
        nothing: bool = False,
    ) -> Response:
        """One session as a page: how full its window is, its compactions, and its turns, newest first.

        `nothing`: a compaction by hand has just found nothing to fold.
        """
        row = await self._row(request, caller.namespace, name)
        made = await self._store.compactions.of_session(caller.namespace, row.id)
        followed = await self._views.followed(caller.namespace, row) if made else ()
        standing = [one.compaction.id for one in made if one.undone_at is None]
        return await self._paper.page(
            "session.html",
            {
                **await self._about(request, caller.namespace, row),
                **await self._rail(caller.namespace, row, before, limit),
                "findings": await self._views.findings(caller.namespace, row),
                "followed": {one.compaction.id: followed_fields(one) for one in followed},
                "force": standing[-1] if standing else None,
                "nothing": nothing,
                "made": {one.compaction.id: compaction_fields(one.compaction) for one in made},
                "has_links": way_of(request) != "password",
            },
        )

    async def _rail(self, namespace: str, row: SessionRow, before: int, limit: int) -> dict[str, Any]:
        """The turns of a session's page."""
        found = await self._views.page(namespace, row.id, before, limit + 1)
        page = [
            (n, one, self._views.ratio_of(namespace, one), await self._views.cost_of(namespace, one))
            for n, one in found[:limit]
        ]
        after = page[-1][1].arrival if len(found) > limit else None
        return {"turns": turns_of(page), "is_newest": before == NEWEST, "next": after}

    async def chosen(self, name: str, n: Annotated[int, Query(ge=1, le=10**11)] = 1) -> Response:
        """Redirect the form that asks for a turn by its number."""
        return Response(status_code=303, headers={"location": f"/ui/sessions/{quote(name)}/turns/{n}"})

    async def turn(
        self,
        request: Request,
        caller: Admitted,
        name: str,
        n: str,
        start: Annotated[int | None, Query(alias="from", ge=0, le=10**9)] = None,
    ) -> Response:
        """One turn as a page: left what was said, right what was sent. `from`: the first message shown."""
        row = await self._row(request, caller.namespace, name)
        seen = await self._views.seen(caller.namespace, row, n)
        context = await self._contexts.of(seen.branch)
        cost = await self._views.cost_of(caller.namespace, seen.exchange)
        lost = await self._views.lost(seen) if seen.force else []
        before = None
        if seen.number > 1:
            before = (await self._views.seen(caller.namespace, row, str(seen.number - 1))).shown
        facts = await asyncio.to_thread(
            lambda: turn_facts(seen, self._views.shares(seen), context, cost, before, start)
        )
        more = {"session": row, "lost": lost, "has_links": way_of(request) != "password"}
        return await self._paper.page("turn.html", facts | more)

    async def state(self, request: Request, caller: Admitted, name: str) -> Response:
        """What is kept beside a session's messages, as a page: working state, pins, memory, checkpoints."""
        row = await self._row(request, caller.namespace, name)
        place = await self._archive.place(caller.namespace, row.id, None)
        context = await self._contexts.of(await self._archive.branch(place, credentials_of(request)))
        kept = await context.done(CompactionContext.kept_state)
        at = caller.namespace, row.id
        pins = await self._pins.pins(request, caller.namespace, row)
        texts = [(await self._archive.message(caller.namespace, pin["message"]))[1].body for pin in pins]
        return await self._paper.page(
            "state.html",
            {
                "session": row,
                "strategy": context.policy.name,
                "state": lines_of(state_fields(kept)),
                "pins": list(zip(pins, message_rows(texts), strict=True)),
                "memories": [
                    (kept.memory.kind, text_of(kept), moment(kept.memory.created_at))
                    for kept in await self._store.journal.memories(*at, _MOST_KEPT)
                ],
                "checkpoints": [
                    (one.checkpoint.kind, one.checkpoint.id, moment(one.checkpoint.created_at))
                    for one in await self._store.journal.checkpoints(*at, _MOST_KEPT)
                ],
                "has_links": way_of(request) != "password",
            },
        )

    async def settings(self, request: Request, caller: Admitted, name: str) -> Response:
        """A session's own settings as a page, and its policy: each number and where it comes from."""
        row = await self._row(request, caller.namespace, name)
        fields = await self._settings.fields(caller.namespace, row)
        facts = {"own": json.dumps(fields["settings"], indent=2, ensure_ascii=False)}
        return await self._paper.page(
            "settings.html",
            {
                "session": row,
                "policy": fields["policy"],
                "has_links": way_of(request) != "password",
                **facts,
            },
        )

    async def search(
        self,
        request: Request,
        caller: Admitted,
        q: Annotated[str, Query(max_length=2_000)] = "",
        session: Annotated[str, Query(max_length=200)] = "",
    ) -> Response:
        """Exact quotes of the caller's sessions, or of one, as a page, best first."""
        newest = await self._store.history.sessions(caller.namespace, 1, None)
        row = await self._row(request, caller.namespace, session) if session else None
        found = None
        if q.strip() and newest and self._searching is not None:
            base = row or newest[0]
            where = Where(caller.namespace, base.id, b"", "session" if row else "namespace")
            found = await self._searching.search(where, q, _MOST_HITS, Filters(None, None))
        return await self._paper.page(
            "search.html",
            {
                "q": q,
                "session": row,
                "hits": hits_of(found, q) if found else [],
                "total": found.found if found else 0,
                "is_asked": found is not None,
                "can_search": self._searching is not None,
                "has_links": way_of(request) != "password",
            },
        )

    async def events(
        self,
        request: Request,
        caller: Admitted,
        name: str,
        after: Annotated[int, Query(ge=0, le=MOST_SEQ)] = 0,
        limit: Annotated[int, Query(ge=1, le=_MOST_EVENTS)] = 100,
        show: Show = "all",
    ) -> Response:
        """The events of a session as a page: those after `after`, oldest first."""
        row = await self._row(request, caller.namespace, name)
        events = await self._store.journal.events(caller.namespace, row.id, after, limit + 1, CHOICES[show])
        page = events[:limit]
        return await self._paper.page(
            "events.html",
            {
                **await self._about(request, caller.namespace, row),
                "days": days_of([entry_of(one) for one in page]),
                "show": show,
                "choices": tuple(CHOICES),
                "limit": limit,
                "after": after,
                "next": page[-1].seq if len(events) > limit else None,
                "has_links": way_of(request) != "password",
            },
        )

    async def _row(self, request: Request, namespace: str, name: str) -> SessionRow:
        """The session. NotFound; Unauthorized when a browser has sent no key, or perhaps a mistyped one."""
        try:
            return await self._archive.session(namespace, name)
        except NotFound as missing:
            if await self._is_known(request, namespace):
                raise
            raise Unauthorized(f"{missing.message} {ASKS}") from None

    async def _is_known(self, request: Request, namespace: str) -> bool:
        """False without a key, and for a password with which no session exists at all."""
        way = way_of(request)
        if way == "password":
            return await self._store.history.session_count(namespace, "") > 0
        return way == "header"

    async def _about(self, request: Request, namespace: str, row: SessionRow) -> dict[str, Any]:
        """What the pages of a session's turns and events say of it above them."""
        return {
            "session": row,
            "use": await self._use(request, namespace, row),
            "started": moment(row.created_at),
            "touched": moment(row.updated_at),
            "branches": (await self._archive.branches(namespace, row))[:_MOST_BRANCHES],
        }

    async def _use(self, request: Request, namespace: str, row: SessionRow) -> Use:
        place = await self._archive.place(namespace, row.id, None)
        subject = await self._archive.branch(place, credentials_of(request))
        context = await self._contexts.of(subject, by_hand=True)
        return await context.done(use_of)
