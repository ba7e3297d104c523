"""The pages about all of a caller's sessions: their list, the sums, search in all that was said.

Everything that pages show is also an endpoint under `/api`, which they name.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from palimpsest.api.callers import Admitted
from palimpsest.api.clients import base_url_of, settings_lines
from palimpsest.api.overview import Days
from palimpsest.api.sessions import IdText, OnlyWith
from palimpsest.api.ui.entries import lines_of
from palimpsest.api.ui.paper import ASKS, way_of
from palimpsest.api.ui.parts import UiParts
from palimpsest.core.recall.filters import Filters
from palimpsest.core.utc import moment
from palimpsest.core.view.findings import Found
from palimpsest.errors import NotFound, Unauthorized
from palimpsest.proxy.recall.searching import SearchAnswer, Where
from palimpsest.settings.settings import DEFAULT
from palimpsest.storage.history import SessionRow

_MOST_SESSIONS = 50
# Hits of a search on one page.
_MOST_HITS = 20
# The newest sessions whose findings the overview has, and the most messages of one: 0.1 s each.
_LOOKED_AT, _SHORT = 5, 2_000
# The names under which fields of an exchange are asked for.
_ASKED_AS = {"code": "error", "status": "error"}
# Sessions whose name or id begins with what is looked for.
_MOST_NAMED = 5

_WORD = re.compile(r"\w+")
# Of a word with more letters any form of it is marked, as the index finds it.
_STEM_LETTERS = 5


class UiPages:
    """The pages below `/ui` that are about no single session."""

    def __init__(self, parts: UiParts, configuration: Sequence[Mapping[str, Any]]) -> None:
        self._of = parts
        self._configuration = configuration

    def on(self, ui: APIRouter) -> None:
        """Register the routes."""
        ui.add_api_route("/ui", self.sessions, methods=["GET"])
        ui.add_api_route("/ui/overview", self.overview, methods=["GET"])

    async def sessions(
        self,
        request: Request,
        caller: Admitted,
        only: OnlyWith,
        limit: Annotated[int, Query(ge=1, le=_MOST_SESSIONS)] = 25,
        after: Annotated[IdText | None, Query()] = None,
        ask: bool = False,
        q: Annotated[str | None, Query(max_length=2_000)] = None,
        session: Annotated[str, Query(max_length=200)] = "",
    ) -> Response:
        """The caller's sessions as a page, newest first; or quotes of what was said, with `q` or `session`.

        `ask`: a browser without a key asks for one.
        """
        if q is not None or session:
            return await self._search(request, caller, q or "", session)
        way = way_of(request)
        if ask and way == "none":
            raise Unauthorized(ASKS)
        total = await self._of.store.history.session_count(caller.namespace)
        if not total and way == "password":
            # The password may be mistyped.
            raise Unauthorized(f"Nothing is stored for you yet. {ASKS}")
        history = self._of.store.history
        rows = await history.sessions(caller.namespace, limit + 1, after, only=only)
        page = rows[:limit]
        return await self._of.paper.page(
            request,
            "sessions.html",
            {
                "sessions": lines_of(await self._of.lists.of(caller.namespace, page), time.time()),
                "total": total,
                "limit": limit,
                "only": {_ASKED_AS.get(name, name): value for name, value in only.items()},
                "is_first": after is None,
                "next": page[-1].id if len(rows) > limit else None,
                "has_key": way != "none",
                "base_url": base_url_of(request.scope),
                "clients": settings_lines(request.scope),
            },
        )

    async def overview(self, request: Request, caller: Admitted, days: Days = 7) -> Response:
        """Sums of the last days, whose fault failures were, and the settings in force, as a page."""
        found = await self._of.overviews.of(caller.namespace, days, time.time())
        widest = max([sums.tokens_full for sums in found.by_day.values()], default=0)
        facts = {"found": found, "widest": widest, "findings": await self._findings(caller.namespace)}
        facts |= {"settings": self._configuration, "default": DEFAULT}
        return await self._of.paper.page(request, "overview.html", facts)

    async def _findings(self, namespace: str) -> list[tuple[SessionRow, Sequence[Found]]]:
        """What makes the newest sessions dearer than need be; of long ones their own pages tell it."""
        rows = await self._of.store.history.sessions(namespace, _LOOKED_AT, None)
        every = []
        for row in (row for row in rows if row.messages <= _SHORT and not row.is_side):
            # One that is erased meanwhile is left out.
            with suppress(NotFound):
                every.append((row, await self._of.exchanges.findings(namespace, row)))
        return [(row, found) for row, found in every if found]

    async def _search(self, request: Request, caller: Admitted, q: str, session: str) -> Response:
        """Exact quotes of the caller's sessions, or of one, best first."""
        history = self._of.store.history
        newest = await history.sessions(caller.namespace, 1, None)
        row = await self._of.row(request, caller.namespace, session) if session else None
        words, found, named = q.strip(), None, []
        if words and newest:
            base = row or newest[0]
            where = Where(caller.namespace, base.id, b"", "session" if row else "namespace")
            found = await self._of.searching.search(where, q, _MOST_HITS, Filters(None, None))
        if words and row is None:
            named = await history.sessions(caller.namespace, _MOST_NAMED, None, only={"named": words})
        return await self._of.paper.page(
            request,
            "search.html",
            {
                "q": q,
                "session": row,
                "named": named,
                "hits": hits_of(found, q) if found else [],
                "total": found.found if found else 0,
                "is_asked": found is not None,
            },
        )


@dataclass(frozen=True, slots=True)
class FoundText:
    """A hit: `pieces` are its text in order, each with whether it is one of the words asked for."""

    id: str
    role: str
    at: datetime
    session: str
    pieces: Sequence[tuple[str, bool]]


def hits_of(answer: SearchAnswer, asked: str) -> list[FoundText]:
    """The hits, best first."""
    return [
        FoundText(
            hit.quote.entry.id,
            hit.quote.entry.role or hit.quote.entry.kind,
            moment(hit.quote.entry.at),
            answer.rows[hit.quote.entry.id].session,
            marked(hit.quote.text, asked),
        )
        for hit in answer.hits
    ]


def marked(text: str, asked: str) -> list[tuple[str, bool]]:
    """The text in pieces; words that begin like one asked for are marked."""
    stems = tuple({word[:_STEM_LETTERS].casefold() for word in _WORD.findall(asked)})
    pieces, end = [], 0
    for found in _WORD.finditer(text):
        if stems and found[0].casefold().startswith(stems):
            pieces += [(text[end : found.start()], False), (found[0], True)]
            end = found.end()
    return [piece for piece in (*pieces, (text[end:], False)) if piece[0]]
