"""The timeline: a caller's sessions, and what happened in one of them, for people with a browser (A24).

Reads only. Knows nothing of how anything is decided; numbers are those of the events.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from app.api.callers import Admitted, credentials_of
from app.api.clients import base_url_of, settings_lines
from app.api.session.events import MOST_SEQ
from app.api.sessions import IdText
from app.api.timeline.browser import ASKS, Way, route_of
from app.api.timeline.entries import Use, days_of, entry_of, listed_of, moment, use_of
from app.api.timeline.paper import Paper
from app.api.timeline.sentences import CHOICES
from app.errors import NotFound, Unauthorized
from app.proxy.archive import Archive
from app.proxy.compacting.scenes import Scenes
from app.storage.contract import SessionRow, Store

_MOST_SESSIONS = 50
_MOST_EVENTS = 500
# More branches than these nobody reads one by one: a chat front end leaves three for every question.
_MOST_BRANCHES = 40
Show = Literal["all", "compactions", "trouble"]


class TimelinePages:
    """The two pages."""

    def __init__(self, archive: Archive, store: Store, scenes: Scenes) -> None:
        self._archive = archive
        self._store = store
        self._scenes = scenes
        self._paper = Paper()

    def on(self, api: APIRouter) -> None:
        """The routes are registered; they answer with pages whatever happens."""
        kind = route_of(self._paper)
        api.add_api_route("/timeline", self.sessions, methods=["GET"], route_class_override=kind)
        api.add_api_route(
            "/sessions/{name:path}/timeline", self.session, methods=["GET"], route_class_override=kind
        )

    async def sessions(
        self,
        request: Request,
        caller: Admitted,
        limit: Annotated[int, Query(ge=1, le=_MOST_SESSIONS)] = 25,
        before: Annotated[IdText | None, Query()] = None,
        ask: bool = False,
    ) -> Response:
        """The caller's sessions, newest first. `ask`: a browser that sends no key shall ask for one."""
        way = _way(request)
        if ask and way == "none":
            raise Unauthorized(ASKS)
        total = await self._store.session_count(caller.namespace, "")
        if not total and way == "password":
            # It may be mistyped.
            raise Unauthorized(f"Nothing is stored for you yet. {ASKS}")
        rows = await self._store.sessions(caller.namespace, limit + 1, before, with_side=False)
        page = rows[:limit]
        asked = await self._store.newest_asked(caller.namespace, [row.id for row in page])
        return await self._paper.page(
            "sessions.html",
            {
                "sessions": listed_of(
                    page, asked, time.time(), partial(self._scenes.ratio_of, caller.namespace)
                ),
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

    async def session(
        self,
        request: Request,
        caller: Admitted,
        name: str,
        after: Annotated[int, Query(ge=0, le=MOST_SEQ)] = 0,
        limit: Annotated[int, Query(ge=1, le=_MOST_EVENTS)] = 100,
        show: Show = "all",
    ) -> Response:
        """One session: how it stands, and its events, oldest first, those behind `after`."""
        row = await self._row(request, caller.namespace, name)
        events = await self._store.events(caller.namespace, row.id, after, limit + 1, CHOICES[show])
        page = events[:limit]
        return await self._paper.page(
            "session.html",
            {
                "session": row,
                "use": await self._use(request, caller.namespace, row),
                "started": moment(row.created_at),
                "touched": moment(row.updated_at),
                "branches": (await self._archive.branches(caller.namespace, row))[:_MOST_BRANCHES],
                "days": days_of([entry_of(one) for one in page]),
                "show": show,
                "choices": tuple(CHOICES),
                "limit": limit,
                "after": after,
                "next": page[-1].seq if len(events) > limit else None,
                "has_links": _way(request) != "password",
            },
        )

    async def _row(self, request: Request, namespace: str, name: str) -> SessionRow:
        """The session. NotFound; Unauthorized where a browser has yet to say whose sessions it means."""
        try:
            return await self._archive.session(namespace, name)
        except NotFound as missing:
            if await self._is_known(request, namespace):
                raise
            raise Unauthorized(f"{missing.message} {ASKS}") from None

    async def _is_known(self, request: Request, namespace: str) -> bool:
        """False where a password may be mistyped, or should be asked for: nothing at all is found with it."""
        way = _way(request)
        if way == "password":
            return await self._store.session_count(namespace, "") > 0
        return way == "header"

    async def _use(self, request: Request, namespace: str, row: SessionRow) -> Use:
        place = await self._archive.place(namespace, row.id, None)
        subject = await self._archive.branch(place, credentials_of(request))
        scene = await self._scenes.of(subject)
        return await scene.done(use_of)


def _way(request: Request) -> Way:
    way: Way = request.state.way
    return way
