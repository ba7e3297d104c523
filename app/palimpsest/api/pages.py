"""The application of our own endpoints: everything that is not below `/v1/`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware

from palimpsest.api.admin import AdminDoor, AdminPages, admin_router
from palimpsest.api.callers import CallerAuthentication, problem_of
from palimpsest.api.clients import base_url_of
from palimpsest.api.compactions import CompactionPages
from palimpsest.api.description import DescriptionPages, OperationRoute
from palimpsest.api.events import MOST_STREAMS, EventPages, EventStreams
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
from palimpsest.proxy.compacting.summary_writer import SummaryWriter
from palimpsest.proxy.compacting.viewing import ViewPlanner
from palimpsest.proxy.compacting.windows import Windows
from palimpsest.proxy.compaction_views import CompactionViews
from palimpsest.proxy.exchange_views import ExchangeViews
from palimpsest.proxy.incoming import ASGIApp, Receive, Scope, Send
from palimpsest.proxy.journal.runtime import RuntimeReader
from palimpsest.proxy.memory_blocks import MemoryBlocks
from palimpsest.proxy.namespace_views import NamespaceViews
from palimpsest.proxy.operator import OperatorAccess
from palimpsest.proxy.overview import Overviews
from palimpsest.proxy.recall.searching import Searcher
from palimpsest.proxy.recall.tools import RecallTools
from palimpsest.proxy.session_lists import SessionLists
from palimpsest.settings.settings import Settings
from palimpsest.storage.store import Store

# Paths that clients append to their base URL.
_BELOW_V1 = re.compile(
    r"/(?:chat/completions|responses|completions|embeddings|models|messages|moderations|rerank|files|batches"
    r"|images/\w+|audio/\w+|v1/?$)(?:/|$)"
)


@dataclass(frozen=True, slots=True)
class Pages:
    """What the endpoints work with.

    `completes` writes completion checkpoints, `summarizer` may fold memories. Event streams end when `ended`
    is set: a stopping server sets it first, since it waits for open responses.
    """

    store: Store
    archive: Archive
    access: Access
    operator: OperatorAccess
    settings: Settings
    contexts: ContextLoader
    viewing: ViewPlanner
    states: RuntimeReader
    completes: CompletionWriter
    summarizer: SummaryWriter
    moving: SessionTransfer
    erases: SessionEraser
    searching: Searcher
    recall: RecallTools
    unindexes: IndexRemoval
    windows: Windows
    exchanges: ExchangeViews
    compactions: CompactionViews
    overviews: Overviews
    lists: SessionLists
    namespaces: NamespaceViews
    ended: asyncio.Event
    new_id: Callable[[], str]


def pages_of(pages: Pages) -> FastAPI:
    """The ASGI application that serves our endpoints."""
    own = APIRouter(redirect_slashes=False)
    # Concurrent changes of one session's settings take turns, wherever they were asked for.
    settings = SettingsPages(pages.archive, pages.store.journal, pages.settings, pages.unindexes)
    paper = PageTemplates()
    api, ui, admin = api_of(pages, settings, paper), ui_of(pages, settings, paper), admin_router()
    RootPages(DescriptionPages(api, needs_key=pages.settings.access.mode == "keys"), paper).on(own)
    McpPages(pages.access, pages.archive, pages.recall).on(own)
    AdminPages(pages.namespaces, pages.erases).on(admin)
    # Not `include_router`: the first request would then build each route again (30 ms on the loop).
    for router in (api, ui, admin):
        own.routes.extend(router.routes)
    kinds = (PalimpsestError, HTTPException, RequestValidationError)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    # Not mounted: the pattern of a mount matches no path with a line break.
    behind_door = AdminDoor(own, pages.operator)
    app.router.default = Wall(ExceptionMiddleware(behind_door, dict.fromkeys(kinds, _answered)))
    return app


def api_of(pages: Pages, settings: SettingsPages, paper: PageTemplates) -> APIRouter:
    """Everything under `/api`; every route authenticates its caller."""
    asked = [Depends(CallerAuthentication(pages.access, pages.operator).refuse_unknown)]
    api = APIRouter(
        prefix="/api",
        dependencies=[Depends(CallerAuthentication(pages.access, pages.operator).admit), *asked],
        route_class=OperationRoute,
    )
    archive, store, contexts, journal = pages.archive, pages.store, pages.contexts, pages.store.journal
    sessions = SessionPages(archive, store, pages.lists)
    sessions.on(api)
    MessagePages(archive, store).on(api)
    ExchangePages(archive, pages.exchanges).on(api)
    OverviewPages(pages.overviews).on(api)
    ViewPages(archive, contexts, pages.viewing).on(api)
    PinPages(archive, store.history, contexts).on(api)
    ContextPages(archive).on(api)
    settings.on(api)
    StatusPages(archive, store, contexts, pages.viewing).on(api)
    CompactionPages(archive, store, pages.compactions, pages.exchanges).on(api)
    UndoPages(archive, store).on(api)
    CheckpointPages(archive, journal, pages.states).on(api)
    streams = EventStreams(journal, pages.states, MOST_STREAMS, pages.ended)
    EventPages(archive, journal, pages.states, streams).on(api)
    blocks = MemoryBlocks(journal, pages.summarizer, pages.new_id)
    MemoryPages(archive, journal, contexts, blocks).on(api)
    CompletionPages(archive, pages.completes).on(api)
    TransferPages(archive, pages.moving, paper).on(api)
    SearchPages(archive, pages.searching).on(api)
    ToolPages(archive, pages.recall).on(api)
    WindowPages(pages.windows).on(api)
    sessions.on_last(api)
    ErasePages(pages.erases).on(api)
    return api


def ui_of(pages: Pages, settings: SettingsPages, paper: PageTemplates) -> APIRouter:
    """Everything under `/ui`; every route authenticates its caller."""
    ui = APIRouter(
        dependencies=[Depends(CallerAuthentication(pages.access, pages.operator).admit)],
        route_class=route_of(paper),
    )
    archive, store = pages.archive, pages.store
    pins = PinPages(archive, store.history, pages.contexts)
    ActionPages(archive, UndoPages(archive, store), pins, settings, pages.viewing).on(ui)
    parts = UiParts(
        *(paper, archive, store, pages.contexts, pages.exchanges, pages.compactions),
        *(pages.overviews, pages.lists, pins, settings, pages.searching),
    )
    UiPages(parts, configuration_of(pages.settings)).on(ui)
    SessionUi(parts).on(ui)
    return ui


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
