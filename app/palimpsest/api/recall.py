"""HTTP endpoints for search in a session, and for the recall tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field

from palimpsest.api.callers import Admitted, order_of
from palimpsest.api.replies import raw_reply, reply
from palimpsest.core.recall.filters import ContentKind, Filters, Speaker
from palimpsest.core.recall.quotes import Hit, Quote
from palimpsest.core.recall.tool_calls import (
    GREP_LIMIT,
    MOST_HITS,
    MOST_PAGE_CHARS,
    MOST_SOURCES,
    PAGE_CHARS,
    QUERY_CHARS,
    SOURCE_LIMIT,
    Describe,
    Grep,
)
from palimpsest.core.recall.tool_results import month_of, reference, time_of
from palimpsest.core.wire.json_text import encoded
from palimpsest.proxy.archive import Archive, missing
from palimpsest.proxy.recall.searching import Scope, Searcher, Where
from palimpsest.proxy.recall.tools import RecallTools, ToolCaller
from palimpsest.storage.search import RecallRow

# C04.
_MOST_HITS = 50
_QUERY_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The number of hits and their filters."""

    limit: int
    only: Filters


def _wanted(limit: int = 10, role: Speaker | None = None, kind: ContentKind | None = None) -> _Wanted:
    return _Wanted(max(1, min(limit, _MOST_HITS)), Filters(role, kind))


class SearchPages:
    """The search endpoint."""

    def __init__(self, archive: Archive, searching: Searcher) -> None:
        self._archive = archive
        self._searching = searching

    def on(self, api: APIRouter) -> None:
        """Register the route."""
        api.add_api_route("/sessions/{name:path}/search", self.search, methods=["GET"])

    async def search(
        self,
        caller: Admitted,
        name: str,
        q: Annotated[str, Query(max_length=_QUERY_CHARS)],
        wanted: Annotated[_Wanted, Depends(_wanted)],
        branch: str | None = None,
        scope: Scope = "branch",
    ) -> Response:
        """The hits for `q`, a question in free text; `limit` is clamped to 1 to 50 (C04).

        Messages that the client has edited away are found with `scope=session` only, other sessions with
        `scope=namespace` only (rule 5). `role` and `kind` filter the hits.
        """
        place = await self._archive.place(caller.namespace, name, branch)
        where = Where(caller.namespace, place.row.id, place.chain, scope)
        answer = await self._searching.search(where, q, wanted.limit, wanted.only)
        is_elsewhere = scope == "namespace"
        return reply(
            {
                "session": place.row.id,
                "branch": place.chain.hex() or None,
                "scope": scope,
                "total_found": answer.found,
                "total_is_counted": answer.is_counted,
                "is_current": answer.is_current,
                "results": [
                    _fields(hit, answer.rows[hit.quote.entry.id], is_elsewhere) for hit in answer.hits
                ],
            }
        )


def _fields(hit: Hit, row: RecallRow, is_elsewhere: bool) -> dict[str, Any]:
    entry = hit.quote.entry
    fields = {
        "id": entry.id,
        "kind": entry.kind,
        "role": entry.role,
        "time": time_of(entry.at),
        "month": month_of(entry.at),
        "depth": entry.place,
        "text": hit.quote.text,
        "start": hit.quote.start,
        "chars": len(entry.text),
        "before": [_beside(quote) for quote in hit.before],
        "after": [_beside(quote) for quote in hit.after],
    }
    if entry.kind == "payload":
        large = reference(entry, row.tokens)
        fields |= {"tokens": large["tokens"], "summary": large["summary"]}
    return fields | ({"session": row.session} if is_elsewhere else {})


def _beside(quote: Quote) -> dict[str, Any]:
    return {"role": quote.entry.role, "text": quote.text}


_ID_CHARS = 200


class _Placed(BaseModel):
    """The place: by default the caller's newest session and its default branch."""

    session: str | None = Field(default=None, max_length=_ID_CHARS)
    branch: str | None = Field(default=None, max_length=_ID_CHARS)
    scope: Scope = "branch"
    via: Literal["rest", "mcp"] = "rest"


class GrepOrder(_Placed):
    """A search with its number of hits."""

    query: str = Field(min_length=1, max_length=QUERY_CHARS)
    limit: int = GREP_LIMIT
    role: Speaker | None = None
    kind: ContentKind | None = None


class DescribeOrder(_Placed):
    """The entry to read, and which part of it."""

    id: str = Field(min_length=1, max_length=_ID_CHARS)
    source_limit: int = Field(default=SOURCE_LIMIT, alias="sourceLimit")
    offset: int | None = Field(default=None, ge=0)
    limit: int | None = None


class ToolPages:
    """The endpoints of both tools. The caller names the session; its key limits what can be found."""

    def __init__(self, archive: Archive, tools: RecallTools) -> None:
        self._archive = archive
        self._tools = tools

    def on(self, api: APIRouter) -> None:
        """Register the routes."""
        api.add_api_route("/context/grep", self.grep, methods=["POST"])
        api.add_api_route("/context/describe", self.describe, methods=["POST"])

    async def grep(self, caller: Admitted, request: Request) -> Response:
        """The hits, best first; `limit` is clamped to 1 to 50 (C04)."""
        order = await order_of(request, GrepOrder)
        limit, only = max(1, min(order.limit, MOST_HITS)), Filters(order.role, order.kind)
        asked = Grep(order.query, limit, only=only)
        return await self._answer(caller.namespace, order, asked)

    async def describe(self, caller: Admitted, request: Request) -> Response:
        """One entry, or null when the scope has none with this id (C05)."""
        order = await order_of(request, DescribeOrder)
        page = None
        if order.offset is not None or order.limit is not None:
            limit = PAGE_CHARS if order.limit is None else order.limit
            page = order.offset or 0, max(1, min(limit, MOST_PAGE_CHARS))
        asked = Describe(order.id, max(1, min(order.source_limit, MOST_SOURCES)), page)
        return await self._answer(caller.namespace, order, asked)

    async def _answer(self, namespace: str, order: _Placed, asked: Grep | Describe) -> Response:
        name = order.session or await self._tools.newest(namespace)
        if name is None:
            raise missing()
        place = await self._archive.place(namespace, name, order.branch)
        where = Where(namespace, place.row.id, place.chain, order.scope)
        return raw_reply(encoded(await self._tools.answered(where, asked, ToolCaller(order.via))))
