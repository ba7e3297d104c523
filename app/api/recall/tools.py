"""The recall tools by HTTP: what a model can look up, a person or a program of the same caller can.

Knows nothing of how entries are found or shown.
"""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from app.api.callers import Admitted, order_of
from app.api.replies import raw_reply
from app.core.recall.filters import Filters, Holding, Speaker
from app.core.recall.tools.arguments import (
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
from app.core.wire.json_text import encoded
from app.proxy.archive import Archive, missing
from app.proxy.recall.searching import Scope, Where
from app.proxy.recall.tools import Asking, RecallTools

_ID_CHARS = 200


class _Placed(BaseModel):
    """Where: the caller's newest session unless one is named, its default branch unless one is named."""

    session: str | None = Field(default=None, max_length=_ID_CHARS)
    branch: str | None = Field(default=None, max_length=_ID_CHARS)
    scope: Scope = "branch"
    via: Literal["rest", "mcp"] = "rest"


class GrepOrder(_Placed):
    """What is looked for, and how many hits are wanted."""

    query: str = Field(min_length=1, max_length=QUERY_CHARS)
    limit: int = GREP_LIMIT
    role: Speaker | None = None
    kind: Holding | None = None


class DescribeOrder(_Placed):
    """The entry to be read, and which part of it."""

    id: str = Field(min_length=1, max_length=_ID_CHARS)
    source_limit: int = Field(default=SOURCE_LIMIT, alias="sourceLimit")
    offset: int | None = Field(default=None, ge=0)
    limit: int | None = None


class ToolPages:
    """The endpoints of both tools. Whoever calls them names the session; the key bounds what there is."""

    def __init__(self, archive: Archive, tools: RecallTools) -> None:
        self._archive = archive
        self._tools = tools

    def on(self, api: APIRouter) -> None:
        """The routes are registered."""
        api.add_api_route("/context/grep", self.grep, methods=["POST"])
        api.add_api_route("/context/describe", self.describe, methods=["POST"])

    async def grep(self, caller: Admitted, request: Request) -> Response:
        """The hits, best first: at least one is asked for and at most 50 (C04)."""
        order = await order_of(request, GrepOrder)
        limit, only = max(1, min(order.limit, MOST_HITS)), Filters(order.role, order.kind)
        asked = Grep(order.query, limit, only=only)
        return await self._answer(caller.namespace, order, asked)

    async def describe(self, caller: Admitted, request: Request) -> Response:
        """One entry, or null where the scope has none of this id (C05)."""
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
        return raw_reply(encoded(await self._tools.answered(where, asked, Asking(order.via))))
