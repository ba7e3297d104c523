"""Our own endpoints, joined: everything that is not below `/v1/`.

Knows nothing of what the endpoints do.
"""

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

from app.api.callers import Doorkeeper
from app.api.clients import base_url_of
from app.api.context import ContextPages
from app.api.description import DescriptionPages
from app.api.front import guarded
from app.api.health import HealthPages
from app.api.mcp.endpoint import McpPages
from app.api.pins import PinPages
from app.api.problems import problem_body, problem_headers, problem_of, send_problem
from app.api.recall.search import SearchPages
from app.api.recall.tools import ToolPages
from app.api.replies import raw_reply
from app.api.root import RootPages
from app.api.session.checkpoints import CheckpointPages
from app.api.session.compactions import CompactionPages
from app.api.session.completion import Completes, CompletionPages
from app.api.session.erasure import ErasePages, Erases
from app.api.session.events import EventPages
from app.api.session.memory import MemoryPages
from app.api.session.moving import Moving, MovingPages
from app.api.session.settings import SettingsPages, Unindexes
from app.api.session.status import StatusPages
from app.api.session.stream import EventStreams
from app.api.sessions import SessionPages
from app.api.timeline.timeline import TimelinePages
from app.api.views import ViewPages
from app.api.windows import WindowPages
from app.errors import NotFound, PalimpsestError, WrongBaseUrl
from app.proxy.access.access import Access
from app.proxy.archive import Archive
from app.proxy.asgi import ASGIApp, Receive, Scope, Send
from app.proxy.compacting.scenes import Scenes
from app.proxy.compacting.viewing import Viewing
from app.proxy.compacting.windows import Windows
from app.proxy.memory_blocks import Asks, MemoryBlocks
from app.proxy.recall.searching import Searching
from app.proxy.recall.tools import RecallTools
from app.proxy.sessions.reader import MessageReader
from app.settings.settings import Settings
from app.storage.contract import Store

# What clients ask for below their base URL, wherever they think that it is.
_BELOW_V1 = re.compile(
    r"/(?:chat/completions|responses|completions|embeddings|models|messages|moderations|rerank|files|batches"
    r"|images/\w+|audio/\w+|v1/?$)(?:/|$)"
)


def _new_id() -> str:
    return str(uuid_utils.uuid7())


@dataclass(frozen=True, slots=True)
class Pages:
    """The parts of the application that the endpoints are made of.

    `completes` takes what is said to be complete. `summarizer` may be asked to fold a memory; without
    one code does. Streams of events end when `ended` is set: a server that stops sets it first, for it
    waits for what is open.
    """

    store: Store
    access: Access
    reader: MessageReader
    scenes: Scenes
    viewing: Viewing
    settings: Settings = field(default_factory=Settings)
    completes: Completes | None = None
    summarizer: Asks | None = None
    moving: Moving | None = None
    erases: Erases | None = None
    searching: Searching | None = None
    recall: RecallTools | None = None
    unindexes: Unindexes | None = None
    windows: Windows | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    new_id: Callable[[], str] = _new_id


def pages_of(app: FastAPI, pages: Pages) -> None:
    """`app` serves our endpoints; it may be running already.

    They stand behind a wall of their own, mounted: a running application takes no more error handlers.
    """
    own = APIRouter(redirect_slashes=False)
    HealthPages(pages.store).on(own)
    api = api_of(pages)
    # As they are: of a router that is included the first request makes each route again (30 ms on the loop).
    own.routes.extend(api.routes)
    RootPages(DescriptionPages(api)).on(own)
    if pages.recall is not None:
        McpPages(pages.access, Archive(pages.store, pages.reader), pages.recall).on(own)
    kinds = (PalimpsestError, HTTPException, RequestValidationError)
    app.mount("/", Wall(ExceptionMiddleware(own, dict.fromkeys(kinds, _answered))))


def api_of(pages: Pages) -> APIRouter:
    """Everything under `/api`; the doorkeeper stands before each route."""
    api = APIRouter(prefix="/api", dependencies=[Depends(Doorkeeper(pages.access).admit)])
    archive = Archive(pages.store, pages.reader)
    sessions = SessionPages(archive, pages.store)
    sessions.on(api)
    ViewPages(archive, pages.scenes, pages.viewing).on(api)
    PinPages(archive, pages.store, pages.scenes).on(api)
    ContextPages(archive).on(api)
    _on_session(api, pages, archive)
    DescriptionPages(api).on(api)
    if pages.windows is not None:
        WindowPages(pages.windows).on(api)
    sessions.on_last(api)
    if pages.erases is not None:
        ErasePages(pages.erases).on(api)
    return api


def _on_session(api: APIRouter, pages: Pages, archive: Archive) -> None:
    """What is about one session, and is not its messages."""
    store, scenes = pages.store, pages.scenes
    streams = EventStreams(store, pages.settings.limits.event_streams, pages.ended)
    SettingsPages(archive, store, pages.settings, pages.unindexes).on(api)
    StatusPages(archive, store, scenes, pages.viewing).on(api)
    CompactionPages(archive, store).on(api)
    CheckpointPages(archive, store).on(api)
    EventPages(archive, store, streams).on(api)
    MemoryPages(archive, store, scenes, MemoryBlocks(store, pages.summarizer, pages.new_id)).on(api)
    TimelinePages(archive, store, scenes).on(api)
    if pages.completes is not None:
        CompletionPages(archive, pages.completes).on(api)
    if pages.moving is not None:
        MovingPages(archive, pages.moving).on(api)
    if pages.searching is not None:
        SearchPages(archive, pages.searching).on(api)
    if pages.recall is not None:
        ToolPages(archive, pages.recall).on(api)


class Wall:
    """Says plainly that nothing here speaks WebSocket; a bug in `app` becomes an answer."""

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
    headers = {name.decode(): value.decode() for name, value in problem_headers(problem)}
    if isinstance(error, HTTPException):
        headers |= error.headers or {}
    return raw_reply(problem_body(problem), problem.status, headers)
