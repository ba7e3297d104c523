"""Our own endpoints, joined: everything that is not below `/v1/`.

The only place that turns the framework's own errors into ours. Knows nothing of what the endpoints do.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from app.api.callers import Doorkeeper
from app.api.context import ContextPages
from app.api.health import HealthPages
from app.api.pins import PinPages
from app.api.problems import problem_body, problem_headers, send_problem, unexpected
from app.api.replies import raw_reply
from app.api.sessions import SessionPages
from app.api.views import ViewPages
from app.errors import InvalidParameter, MethodNotAllowed, NotFound, PalimpsestError, RequestError
from app.proxy.access import Access
from app.proxy.archive import Archive, missing
from app.proxy.asgi import ASGIApp, Receive, Scope, Send
from app.proxy.reader import MessageReader
from app.proxy.scenes import Scenes
from app.proxy.viewing import Viewing
from app.storage.contract import Store


@dataclass(frozen=True, slots=True)
class Pages:
    """The parts of the application that the endpoints are made of."""

    store: Store
    access: Access
    reader: MessageReader
    scenes: Scenes
    viewing: Viewing


def pages_of(app: FastAPI, pages: Pages) -> None:
    """`app` serves our endpoints; it may be running already.

    They are an application of their own, mounted: a running one takes no more error handlers.
    """
    own = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    # Registered for BaseException, as the framework re-raises what a handler for Exception answered.
    for kind in (BaseException, HTTPException, RequestValidationError):
        own.exception_handlers[kind] = _answered
    HealthPages(pages.store).on(own.router)
    own.include_router(api_of(pages))
    app.mount("/", WebSocketsRefused(own))


def api_of(pages: Pages) -> APIRouter:
    """Everything under `/api`; the doorkeeper stands before each route."""
    api = APIRouter(prefix="/api", dependencies=[Depends(Doorkeeper(pages.access).admit)])
    archive = Archive(pages.store, pages.reader)
    sessions = SessionPages(archive, pages.store)
    sessions.on(api)
    ViewPages(archive, pages.scenes, pages.viewing).on(api)
    PinPages(archive, pages.store, pages.scenes).on(api)
    ContextPages(archive).on(api)
    sessions.on_last(api)
    return api


class WebSocketsRefused:
    """Says plainly that nothing here speaks WebSocket; all else goes on to `app`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection."""
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
        elif "websocket.http.response" in scope.get("extensions", {}):
            await send_problem(_as_denial(send), NotFound("WebSockets are not served here."))
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": "not served here"})


def _as_denial(send: Send) -> Send:
    """`send` for a response in place of the handshake (ASGI extension `websocket.http.response`)."""

    async def denying(message: dict[str, object]) -> None:
        await send({**message, "type": f"websocket.{message['type']}"})

    return denying  # type: ignore[return-value]


async def _answered(_: Request, error: Exception) -> Response:
    problem = _problem(error)
    headers = {name.decode(): value.decode() for name, value in problem_headers(problem)}
    if isinstance(error, HTTPException):
        headers |= error.headers or {}
    return raw_reply(problem_body(problem), problem.status, headers)


def _problem(error: Exception) -> PalimpsestError:
    match error:
        case PalimpsestError():
            return error
        case RequestValidationError():
            first = error.errors()[0]
            return InvalidParameter(f"{first['msg']}.", param=str(first["loc"][-1]))
        case HTTPException(status_code=404):
            return missing()
        case HTTPException(status_code=405):
            return MethodNotAllowed("This path exists, but not with this method.")
        case HTTPException():
            return RequestError("The request cannot be understood.")
        case _:
            return unexpected(error)
