"""The application of our own endpoints: everything that is not below `/v1/`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import uuid_utils
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware

from palimpsest.api.admin import AdminDoor, AdminPages, admin_router
from palimpsest.api.callers import CallerAuthentication, problem_of
from palimpsest.api.clients import base_url_of
from palimpsest.api.compaction_reports import CompactionReports
from palimpsest.api.compactions import CompactionPages
from palimpsest.api.description import DescriptionPages, OperationRoute
from palimpsest.api.events import EventPages, EventStreams
from palimpsest.api.exchanges import ExchangePages
from palimpsest.api.front import guarded
from palimpsest.api.journal import CheckpointPages, CompletionPages, CompletionWriter, MemoryPages
from palimpsest.api.mcp.endpoint import McpPages
from palimpsest.api.messages import MessagePages
from palimpsest.api.overview import OverviewPages, configuration_of
from palimpsest.api.pins import PinPages
from palimpsest.api.problems import problem_reply, send_problem
from palimpsest.api.recall import SearchPages, ToolPages
from palimpsest.api.root import RootPages
from palimpsest.api.sessions import SessionPages
from palimpsest.api.status import IndexRemoval, SettingsPages, StatusPages
from palimpsest.api.transfer import ErasePages, SessionEraser, SessionTransfer, TransferPages
from palimpsest.api.ui.actions import ActionPages
from palimpsest.api.ui.pages import UiPages
from palimpsest.api.ui.paper import PageTemplates, route_of
from palimpsest.api.ui.parts import UiParts
from palimpsest.api.ui.session_pages import SessionUi
from palimpsest.api.undoing import UndoPages
from palimpsest.api.views import ContextPages, ViewPages
from palimpsest.api.windows import WindowPages
from palimpsest.errors import NotFound, PalimpsestError, WrongBaseUrl
from palimpsest.proxy.access import Access
from palimpsest.proxy.archive import Archive
from palimpsest.proxy.compacting.context_loader import ContextLoader
from palimpsest.proxy.compacting.viewing import ViewPlanner
from palimpsest.proxy.compacting.windows import Windows
from palimpsest.proxy.compaction_views import CompactionViews
from palimpsest.proxy.exchange_views import ExchangeViews
from palimpsest.proxy.incoming import ASGIApp, Receive, Scope, Send
from palimpsest.proxy.journal.runtime import RuntimeReader
from palimpsest.proxy.memory_blocks import Asks, MemoryBlocks
from palimpsest.proxy.namespace_views import NamespaceViews
from palimpsest.proxy.operator import OperatorAccess
from palimpsest.proxy.overview import Overviews
from palimpsest.proxy.recall.searching import Searcher
from palimpsest.proxy.recall.tools import RecallTools
from palimpsest.proxy.session_lists import SessionLists
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.settings.settings import Settings
from palimpsest.storage.store import Store

# Paths that clients append to their base URL.
_BELOW_V1 = re.compile(
    r"/(?:chat/completions|responses|completions|embeddings|models|messages|moderations|rerank|files|batches"
    r"|images/\w+|audio/\w+|v1/?$)(?:/|$)"
)


def _new_id() -> str:
    return str(uuid_utils.uuid7())


@dataclass(frozen=True, slots=True)
class Views:
    """What reads stored turns and compactions for people."""

    exchanges: ExchangeViews
    compactions: CompactionViews
    overviews: Overviews
    lists: SessionLists
    namespaces: NamespaceViews


@dataclass(frozen=True, slots=True)
class Pages:
    """The dependencies of the endpoints.

    `operator` decides about the admin key. `completes` writes completion checkpoints. `summarizer` may fold
    memories; without one code does. Event streams end when `ended` is set: a stopping server sets it first,
    since it waits for open responses.
    """

    store: Store
    access: Access
    reader: MessageReader
    contexts: ContextLoader
    viewing: ViewPlanner
    states: RuntimeReader
    settings: Settings = field(default_factory=Settings)
    operator: OperatorAccess = field(default_factory=OperatorAccess)
    completes: CompletionWriter | None = None
    summarizer: Asks | None = None
    moving: SessionTransfer | None = None
    erases: SessionEraser | None = None
    searching: Searcher | None = None
    recall: RecallTools | None = None
    unindexes: IndexRemoval | None = None
    windows: Windows | None = None
    views: Views | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    new_id: Callable[[], str] = _new_id


def pages_of(pages: Pages) -> FastAPI:
    """The ASGI application that serves our endpoints."""
    own = APIRouter(redirect_slashes=False)
    # Concurrent changes of one session's settings take turns, wherever they were asked for.
    settings = settings_of(pages)
    api = api_of(pages, settings)
    # Not `include_router`: the first request would then build each route again (30 ms on the loop).
    own.routes.extend(api.routes)
    own.routes.extend(ui_of(pages, settings).routes)
    RootPages(_description(api, pages)).on(own)
    if pages.recall is not None:
        McpPages(pages.access, Archive(pages.store, pages.reader), pages.recall).on(own)
    if pages.views is not None:
        admin = admin_router()
        AdminPages(pages.views.namespaces, pages.erases).on(admin)
        own.routes.extend(admin.routes)
    kinds = (PalimpsestError, HTTPException, RequestValidationError)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    # Not mounted: the pattern of a mount matches no path with a line break.
    behind_door = AdminDoor(own, pages.operator)
    app.router.default = Wall(ExceptionMiddleware(behind_door, dict.fromkeys(kinds, _answered)))
    return app


def settings_of(pages: Pages) -> SettingsPages:
    """The settings of sessions."""
    archive = Archive(pages.store, pages.reader)
    return SettingsPages(archive, pages.store.journal, pages.settings, pages.unindexes)


def api_of(pages: Pages, settings: SettingsPages) -> APIRouter:
    """Everything under `/api`; every route authenticates its caller."""
    asked = [Depends(CallerAuthentication(pages.access, pages.operator).refuse_unknown)]
    api = APIRouter(
        prefix="/api",
        dependencies=[Depends(CallerAuthentication(pages.access, pages.operator).admit), *asked],
        route_class=OperationRoute,
    )
    archive = Archive(pages.store, pages.reader)
    views = pages.views
    sessions = SessionPages(archive, pages.store, views.lists if views else None)
    sessions.on(api)
    MessagePages(archive, pages.store).on(api)
    if views is not None:
        # Before `/sessions/{name}/view`, which would match too.
        ExchangePages(archive, views.exchanges).on(api)
        CompactionReports(archive, views.compactions, views.exchanges).on(api)
        OverviewPages(views.overviews).on(api)
    ViewPages(archive, pages.contexts, pages.viewing).on(api)
    PinPages(archive, pages.store.history, pages.contexts).on(api)
    ContextPages(archive).on(api)
    settings.on(api)
    _on_session(api, pages, archive)
    if pages.windows is not None:
        WindowPages(pages.windows).on(api)
    sessions.on_last(api)
    if pages.erases is not None:
        ErasePages(pages.erases).on(api)
    return api


def _description(api: APIRouter, pages: Pages) -> DescriptionPages:
    return DescriptionPages(api, needs_key=pages.settings.access.mode == "keys")


def ui_of(pages: Pages, settings: SettingsPages) -> APIRouter:
    """Everything under `/ui`; every route authenticates its caller."""
    paper = PageTemplates()
    ui = APIRouter(
        dependencies=[Depends(CallerAuthentication(pages.access, pages.operator).admit)],
        route_class=route_of(paper),
    )
    if (views := pages.views) is not None:
        archive = Archive(pages.store, pages.reader)
        pins = PinPages(archive, pages.store.history, pages.contexts)
        ActionPages(archive, UndoPages(archive, pages.store), pins, settings, pages.viewing).on(ui)
        parts = UiParts(
            *(paper, archive, pages.store, pages.contexts, views.exchanges, views.compactions),
            *(views.overviews, views.lists, pins, settings, pages.searching),
        )
        UiPages(parts, configuration_of(pages.settings)).on(ui)
        SessionUi(parts).on(ui)
    return ui


def _on_session(api: APIRouter, pages: Pages, archive: Archive) -> None:
    """Register the endpoints of one session other than its messages."""
    store, contexts = pages.store, pages.contexts
    most_streams = pages.settings.limits.event_streams
    streams = EventStreams(store.journal, pages.states, most_streams, pages.ended)
    StatusPages(archive, store, contexts, pages.viewing).on(api)
    CompactionPages(archive, store).on(api)
    UndoPages(archive, store).on(api)
    CheckpointPages(archive, store.journal, pages.states).on(api)
    EventPages(archive, store.journal, pages.states, streams).on(api)
    MemoryPages(
        archive, store.journal, contexts, MemoryBlocks(store.journal, pages.summarizer, pages.new_id)
    ).on(api)
    if pages.completes is not None:
        CompletionPages(archive, pages.completes).on(api)
    if pages.moving is not None:
        TransferPages(archive, pages.moving, PageTemplates()).on(api)
    if pages.searching is not None:
        SearchPages(archive, pages.searching).on(api)
    if pages.recall is not None:
        ToolPages(archive, pages.recall).on(api)


class Wall:
    """Refuses WebSockets with an error; turns a bug in `app` into an error response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection."""
        if scope["type"] != "websocket":
            await guarded(self._app, scope, receive, send)
        elif "websocket.http.response" in scope.get("extensions", {}):
            await send_problem(_as_denial(send), NotFound("WebSockets are not served here."))
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": "not served here"})


def _as_denial(send: Send) -> Send:
    """`send` for a response in place of the handshake (ASGI extension `websocket.http.response`)."""

    async def denying(message: dict[str, object]) -> None:
        await send({**message, "type": f"websocket.{message['type']}"})

    return denying  # type: ignore[return-value]


async def _answered(request: Request, error: Exception) -> Response:
    problem = problem_of(error)
    if isinstance(error, HTTPException) and error.status_code == 404 and _BELOW_V1.search(request.url.path):
        problem = WrongBaseUrl(f"The API stands under /v1: set base_url to {base_url_of(request.scope)}")
    return problem_reply(problem, error.headers if isinstance(error, HTTPException) else None)
