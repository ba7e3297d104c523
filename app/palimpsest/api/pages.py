"""The application of our own endpoints: everything that is not below `/v1/`."""

from __future__ import annotations

import re

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware

from palimpsest.api import (
    compactions,
    exchanges,
    journal,
    messages,
    overview,
    pins,
    recall,
    sessions,
    status,
    transfer,
    views,
)
from palimpsest.api.admin import AdminDoor, admin
from palimpsest.api.body import entry_of
from palimpsest.api.callers import ApiParts
from palimpsest.api.clients import base_url_of
from palimpsest.api.description import DescriptionPages
from palimpsest.api.front import guarded
from palimpsest.api.mcp.endpoint import McpPages
from palimpsest.api.paper import PageTemplates, problem_of
from palimpsest.api.problems import problem_reply, send_problem
from palimpsest.api.root import RootPages
from palimpsest.api.ui import pages, session_pages
from palimpsest.errors import NotFound, PalimpsestError, WrongBaseUrl
from palimpsest.proxy.incoming import ASGIApp, Receive, Scope, Send

# The paths of sessions come last: a session's name may have slashes, and matches what follows it.
_API = (
    *(messages, exchanges, overview, views, pins, status, compactions, journal, transfer, recall),
    sessions,
)
API_ROUTES = [route for module in _API for route in module.api.routes]
UI_ROUTES = [*pages.ui.routes, *session_pages.ui.routes]
# Paths that clients append to their base URL, also those of Ollama's own API.
_BELOW_V1 = re.compile(
    r"/(?:chat/completions|responses|completions|embeddings|models|messages|moderations|rerank|files|batches"
    r"|images/\w+|audio/\w+|v1/?$|api/(?:chat|generate|tags|show|embed|ps|version))(?:/|$)"
)


def pages_of(parts: ApiParts) -> FastAPI:
    """The ASGI application that serves our endpoints."""
    own = APIRouter(redirect_slashes=False)
    described = DescriptionPages(API_ROUTES, needs_key=parts.settings.access.mode == "keys")
    RootPages(described, parts.paper).on(own)
    McpPages(parts).on(own)
    # Not `include_router`: the first request would then build each route again (30 ms on the loop).
    own.routes.extend([*API_ROUTES, *UI_ROUTES, *admin.routes])
    kinds = (PalimpsestError, HTTPException, RequestValidationError)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.parts = parts
    # Not mounted: the pattern of a mount matches no path with a line break.
    behind_door = AdminDoor(own, parts.operator)
    app.router.default = Wall(ExceptionMiddleware(behind_door, dict.fromkeys(kinds, _answered)))
    return app


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
    entry_of(request.scope).failed(problem)
    if request.url.path.startswith("/ui/"):
        paper: PageTemplates = request.app.state.parts.paper
        return paper.problem(problem)
    return problem_reply(problem, error.headers if isinstance(error, HTTPException) else None)
