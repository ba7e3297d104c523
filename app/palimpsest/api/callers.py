"""What our own endpoints work with: the parts of the program, the caller, and the session that a path names.

Every route of `api_router` authenticates its caller (rule 25). Bodies are read after that, and bounded.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated, Any, TypeVar

import structlog
from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, ValidationError

from palimpsest.api.body import read_body
from palimpsest.api.paper import PageRoute, PageTemplates, way_of
from palimpsest.errors import InvalidJson, InvalidParameter, RequestError, UnsupportedMediaType
from palimpsest.proxy.access import Access
from palimpsest.proxy.archive import Archive, ExchangeViews, Place
from palimpsest.proxy.compacting.viewing import ViewPlanner
from palimpsest.proxy.compaction_context import CompactionContext, ContextLoader
from palimpsest.proxy.erasing import Eraser
from palimpsest.proxy.incoming import Headers, asking_of
from palimpsest.proxy.memory_blocks import MemoryBlocks
from palimpsest.proxy.model_facts import Windows
from palimpsest.proxy.operator import OperatorAccess
from palimpsest.proxy.overviews import Overviews
from palimpsest.proxy.quotas import Quota
from palimpsest.proxy.recall.indexing import Indexer
from palimpsest.proxy.recall.tools import RecallTools, Searcher
from palimpsest.proxy.reports import printable
from palimpsest.proxy.session_journal import Imports, RuntimeReader, SessionJournal
from palimpsest.proxy.turn import ReadBranch
from palimpsest.settings.settings import Settings
from palimpsest.storage.history import SessionRow
from palimpsest.storage.store import Store

Order = TypeVar("Order", bound=BaseModel)
# Parameters that several endpoints have.
SessionName = Annotated[str, Path(description="Our id of the session, or the client's own name for it.")]
Branch = Annotated[
    str | None,
    Query(
        max_length=100,
        description="Id of a branch or of a message in it, or the beginning of one; else the default branch.",
    ),
]
# Bodies of our own endpoints have a few fields; this leaves room for a focus and any id.
ORDER_BYTES = 65_536
ORDER_SECONDS = 10.0
# References to rows and rules of the specification in docstrings.
SPEC_ROW = re.compile(r" \((?:[A-Z]\d\d|rule \d+)\)")
_log = structlog.get_logger("palimpsest.operator")


def at_most(limit: int) -> Any:
    """The query parameter `limit` of a list."""
    return Query(ge=1, le=limit, description="At most so many.")


def order_like(**example: Any) -> ConfigDict:
    """The configuration of a body's model: no other fields, and an example for the description."""
    return ConfigDict(extra="forbid", json_schema_extra={"examples": [example]})


@dataclass(frozen=True, slots=True)
class ApiParts:
    """What the endpoints work with.

    Event streams end when `ended` is set: a stopping server sets it first, since it waits for open responses.
    """

    store: Store
    archive: Archive
    access: Access
    operator: OperatorAccess
    settings: Settings
    contexts: ContextLoader
    viewing: ViewPlanner
    states: RuntimeReader
    journal: SessionJournal
    blocks: MemoryBlocks
    imports: Imports
    erases: Eraser
    searching: Searcher
    recall: RecallTools
    indexing: Indexer
    windows: Windows
    exchanges: ExchangeViews
    overviews: Overviews
    ended: asyncio.Event
    paper: PageTemplates = field(default_factory=PageTemplates)
    # Open streams of events by namespace.
    streams: Counter[str] = field(default_factory=Counter)
    # Concurrent changes of one session's settings must not undo each other.
    patching: asyncio.Lock = field(default_factory=asyncio.Lock)


async def parts_of(request: Request) -> ApiParts:
    """The parts of the application that answers the request."""
    parts: ApiParts = request.app.state.parts
    return parts


Parts = Annotated[ApiParts, Depends(parts_of)]


@dataclass(frozen=True, slots=True)
class ApiCaller:
    """The caller of a request. `credentials` is its own key, for requests to the upstream on its behalf."""

    parts: ApiParts
    request: Request
    namespace: str
    quota: Quota | None
    credentials: Headers

    async def still_admitted(self) -> bool:
        """False once the caller may not read any more, as `Access.still_admits`."""
        incoming = asking_of(self.request.scope)
        try:
            read_as = await self.parts.operator.reader(self.request.url.path, incoming)
        except RequestError:
            return False
        return read_as is not None or await self.parts.access.still_admits(incoming, self.namespace)

    async def order(self, kind: type[Order]) -> Order:
        """The request's body as `kind`; an empty body is an empty object.

        Read here and not by the framework: after authentication, and bounded. UnsupportedMediaType for a body
        that is not declared as JSON.
        """
        require_json(self.request)
        body = await read_body(self.request.scope, self.request.receive, ORDER_BYTES, ORDER_SECONDS)
        try:
            return kind.model_validate_json(body or b"{}")
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise InvalidJson("The body is not valid JSON.")
        said = first["msg"]
        if first["type"] == "extra_forbidden":
            known = [one.alias or name for name, one in kind.model_fields.items()]
            said = f"There is no such field here; there are {', '.join(known)}"
        raise InvalidParameter(f"{said}.", param=".".join(map(str, first["loc"])) or None)

    async def page(self, template: str, facts: Mapping[str, Any]) -> Response:
        """A page for the caller's browser."""
        return await self.parts.paper.page(way_of(self.request), template, facts)

    async def live_page(
        self, template: str, version: object, facts: Callable[[], Awaitable[Mapping[str, Any]]]
    ) -> Response:
        """A page that its browser asks for again and again: 304, with nothing read, for the same version."""
        tag = f'"{sha256(repr(version).encode()).hexdigest()[:16]}"'
        if self.request.headers.get("if-none-match") == tag:
            return Response(status_code=304)
        return await self.page(template, {**await facts(), "version": tag})


async def admit(request: Request) -> ApiCaller:
    """The caller, authenticated as on the chat endpoints.

    The operator may read as another caller, where `OperatorAccess` allows it; no credential goes upstream
    then.
    """
    parts = await parts_of(request)
    incoming, path = asking_of(request.scope), request.url.path
    if read_as := await parts.operator.reader(path, incoming):
        _log.info("admin_read", namespace=read_as.namespace, path=printable(path))
        return ApiCaller(parts, request, read_as.namespace, read_as.quota, ())
    caller = await parts.access.caller_of(incoming)
    credentials = parts.access.credentials_of(incoming)
    return ApiCaller(parts, request, caller.namespace, caller.quota, credentials)


# The caller of an endpoint.
Admitted = Annotated[ApiCaller, Depends(admit)]


@dataclass(frozen=True, slots=True)
class CallersSession(ApiCaller):
    """The caller's session with this id or name; nothing is read before a method is called.

    Each raises NotFound for a session that does not exist or is another caller's.
    """

    name: str

    async def row(self) -> SessionRow:
        """The session."""
        return await self.parts.archive.session(self.namespace, self.name)

    async def place(self, branch: str | None = None) -> Place:
        """The default branch, or the one that `branch` names."""
        return await self.parts.archive.place(self.namespace, self.name, branch)

    async def branch(self, place: Place) -> ReadBranch:
        """The branch, for which a model may be asked with the caller's key and quota."""
        return await self.parts.archive.branch(place, self.credentials, self.quota)

    async def context(
        self, branch: str | None = None, *, by_hand: bool = False
    ) -> tuple[Place, CompactionContext]:
        """The branch, and what a compaction of it depends on now; see `ContextLoader.of`."""
        place = await self.place(branch)
        return place, await self.parts.contexts.of(await self.branch(place), by_hand=by_hand)


async def session_of(caller: Admitted, name: SessionName) -> CallersSession:
    """The session that the path names."""
    fields = caller.parts, caller.request, caller.namespace, caller.quota, caller.credentials
    return CallersSession(*fields, name)


# The session of an endpoint, with its caller.
AskedSession = Annotated[CallersSession, Depends(session_of)]


async def refuse_unknown(request: Request, parts: Parts) -> None:
    """InvalidParameter for a query field that neither the endpoint nor a client's way to identify has."""
    check_fields(request, parts.access.is_expected_field)


def check_fields(request: Request, is_expected: Callable[[str], bool]) -> None:
    """InvalidParameter for a query field that is neither the endpoint's nor expected."""
    known = request.scope["route"].query_fields
    for name in request.query_params:
        if name not in known and not is_expected(name):
            takes = f"takes {', '.join(known)}" if known else "takes none"
            raise InvalidParameter(f"There is no such parameter here; this endpoint {takes}.", param=name)


class OperationRoute(APIRoute):
    """A route that is named like its function and described by its docstring."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        named = {"response_model": None, "operation_id": endpoint.__name__}
        super().__init__(path, endpoint, **options | named)
        summary, _, text = SPEC_ROW.sub("", inspect.cleandoc(endpoint.__doc__ or "")).partition("\n\n")
        self.summary, self.description = summary.removesuffix("."), text or summary
        self.query_fields = list(_query_fields(self.dependant))


def _query_fields(dependant: Dependant) -> Iterator[str]:
    yield from (one.alias for one in dependant.query_params)
    for below in dependant.dependencies:
        yield from _query_fields(below)


def api_router() -> APIRouter:
    """A router of endpoints under `/api`, which authenticate their callers."""
    return APIRouter(
        prefix="/api", dependencies=[Depends(admit), Depends(refuse_unknown)], route_class=OperationRoute
    )


def page_router() -> APIRouter:
    """A router of pages, which authenticate their callers."""
    return APIRouter(dependencies=[Depends(admit)], route_class=PageRoute)


def require_json(request: Request) -> None:
    """UnsupportedMediaType for a body not declared as JSON: HTML forms can send the other types."""
    headers = request.headers
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise UnsupportedMediaType(
            "Bodies under /api are JSON and must say so: send content-type: application/json (with curl: "
            "-H 'content-type: application/json').",
            param="Content-Type",
        )
