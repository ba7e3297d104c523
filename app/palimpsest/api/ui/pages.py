"""The pages about all of a caller's sessions: their list, the sums, search in all that was said.

Everything that pages show is also an endpoint under `/api`, which they name.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import Annotated, Any

from fastapi import Query, Response

from palimpsest.api.callers import Admitted, ApiCaller, at_most, page_router
from palimpsest.api.clients import base_url_of, settings_lines
from palimpsest.api.overview import configuration_of
from palimpsest.api.paper import ASKS, way_of
from palimpsest.api.replies import page_of
from palimpsest.api.sessions import IdText, OnlyWith
from palimpsest.api.ui.entries import line_of
from palimpsest.core.recall.filters import Filters
from palimpsest.core.utc import moment
from palimpsest.errors import NotFound, Unauthorized
from palimpsest.proxy.recall.tools import Where
from palimpsest.settings.settings import DEFAULT

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


ui = page_router()


@ui.get("/ui")
async def show_sessions(
    caller: Admitted,
    only: OnlyWith,
    limit: Annotated[int, at_most(50)] = 25,
    after: Annotated[IdText | None, Query()] = None,
    ask: bool = False,
    q: Annotated[str | None, Query(max_length=2_000)] = None,
    session: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """The caller's sessions as a page, newest first; or quotes of what was said, with `q` or `session`.

    `ask`: a browser without a key asks for one.
    """
    if q is not None or session:
        return await _found(caller, q or "", session)
    way, history, overviews = way_of(caller.request), caller.parts.store.history, caller.parts.overviews
    if ask and way == "none":
        raise Unauthorized(ASKS)
    total = await history.session_count(caller.namespace)
    if not total and way == "password":
        # The password may be mistyped.
        raise Unauthorized(f"Nothing is stored for you yet. {ASKS}")
    rows = await history.sessions(caller.namespace, limit + 1, after, only=only)
    page, more = page_of(rows, limit, "id")
    now = time.time()

    async def facts() -> dict[str, Any]:
        return {
            "sessions": [line_of(one, now) for one in await overviews.listed(caller.namespace, page)],
            "total": total,
            "limit": limit,
            "only": {_ASKED_AS.get(name, name): value for name, value in only.items()},
            "is_first": after is None,
            "next": more,
            "has_key": way != "none",
            "base_url": base_url_of(caller.request.scope),
            "clients": settings_lines(caller.request.scope),
        }

    # Ages are in minutes.
    return await caller.live_page("sessions.html", (rows, total, now // 60), facts)


@ui.get("/ui/overview")
async def show_overview(caller: Admitted, days: Annotated[int, Query(ge=1, le=90)] = 7) -> Response:
    """Sums of the last days, whose fault failures were, and the settings in force, as a page."""
    parts, findings = caller.parts, []
    found = await parts.overviews.of(caller.namespace, days, time.time())
    # What makes the newest sessions dearer than need be; of long ones their own pages tell it.
    for row in await parts.store.history.sessions(caller.namespace, _LOOKED_AT, None):
        if row.messages <= _SHORT and not row.is_side:
            # One that is erased meanwhile is left out.
            with suppress(NotFound):
                findings.append((row, await parts.exchanges.findings(caller.namespace, row)))
    facts = {
        "found": found,
        "widest": max([sums.tokens_full for sums in found.by_day.values()], default=0),
        "findings": [(row, of_session) for row, of_session in findings if of_session],
        "settings": configuration_of(parts.settings),
        "default": DEFAULT,
    }
    return await caller.page("overview.html", facts)


async def _found(caller: ApiCaller, q: str, session: str) -> Response:
    """Exact quotes of the caller's sessions, or of one, best first."""
    history = caller.parts.store.history
    newest = await history.sessions(caller.namespace, 1, None)
    row = await caller.parts.archive.session(caller.namespace, session) if session else None
    words, found, named = q.strip(), None, []
    if words and newest:
        base = row or newest[0]
        where = Where(caller.namespace, base.id, b"", "session" if row else "namespace")
        found = await caller.parts.searching.search(where, q, _MOST_HITS, Filters(None, None))
    if words and row is None:
        named = await history.sessions(caller.namespace, _MOST_NAMED, None, only={"named": words})
    return await caller.page(
        "search.html",
        {
            "q": q,
            "session": row,
            "named": named,
            "hits": [
                (quote.entry, moment(quote.entry.at), marked(quote.text, q))
                for quote in (hit.quote for hit in (found.hits if found else ()))
            ],
            "total": found.found if found else 0,
            "is_asked": found is not None,
        },
    )


def marked(text: str, asked: str) -> list[tuple[str, bool]]:
    """The text in pieces, each with whether it is a word that begins like one asked for."""
    stems = tuple({word[:_STEM_LETTERS].casefold() for word in _WORD.findall(asked)})
    pieces, end = [], 0
    for found in _WORD.finditer(text):
        if stems and found[0].casefold().startswith(stems):
            pieces += [(text[end : found.start()], False), (found[0], True)]
            end = found.end()
    return [piece for piece in (*pieces, (text[end:], False)) if piece[0]]
