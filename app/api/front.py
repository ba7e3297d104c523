"""The front door: sends each request to the hot path, to the passthrough or to FastAPI.

The chat route is taken before FastAPI because routing and request objects would cost more than the
rest of the exchange (43 us against 108 us a request, measured). Knows nothing of what lies behind.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote

from app.api.body import is_unread
from app.api.callers import asking_of
from app.api.logged import entry_of
from app.api.places import Admission
from app.api.problems import send_problem, unexpected
from app.core.wire.chat_request import Wire
from app.core.wire.web_origins import WebOrigins
from app.errors import (
    HeadersTooLarge,
    HostNotAllowed,
    MethodNotAllowed,
    NotFound,
    OriginNotAllowed,
    PalimpsestError,
)
from app.proxy.access.access import Access
from app.proxy.asgi import ASGIApp, ASGIMessage, Receive, Scope, Send

# What is answered by an exchange, by the path that it is sent to; Azure's clients name a deployment in it.
WIRES: Sequence[tuple[re.Pattern[str], Wire]] = (
    (re.compile(r"/v1(?:/deployments/[^/]+)?/chat/completions/*"), "chat"),
    (re.compile(r"/v1(?:/deployments/[^/]+)?/responses/*"), "responses"),
)
# Whose places callers take whom the upstream has never accepted.
UNPROVEN = ""
_HOST_REFUSED = (
    "The proxy does not answer to the name in the Host header: without keys it answers to localhost, IP "
    "addresses and its own names only. Add the name to server.allowed_hosts."
)
_ORIGIN_REFUSED = (
    "The request comes from a web page of another origin. If the page may speak to this proxy, add what the "
    "Origin header says to server.cors_origins."
)
# Answered by an exchange where it may be answered here; else it is the upstream's.
COMPACT = re.compile(r"/v1/responses/compact/*")


# What supervisors ask; answered whatever else happens, under any name.
HEALTH = frozenset({"/healthz", "/readyz"})


class Front:
    """An ASGI application made of three, behind what may not come in.

    `origins` says which names are answered to and which pages may speak to it, `admission` how many requests
    are answered at a time; `access` knows who asks. `compacts`: requests for a compaction are not simply the
    upstream's.
    """

    def __init__(
        self,
        *,
        chat: ASGIApp,
        passthrough: ASGIApp,
        pages: ASGIApp,
        origins: WebOrigins,
        admission: Admission,
        access: Access,
        compacts: bool = False,
    ) -> None:
        self._chat = chat
        self._passthrough = passthrough
        self._pages = pages
        self._origins = origins
        self._admission = admission
        self._access = access
        self._compacts = compacts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """HTTP below `/v1/` and `/s/{session}/v1/` goes upstream, all else is ours."""
        if scope["type"] != "http" or scope["path"] in HEALTH:
            await self._pages(scope, receive, send)
            return
        if problem := self._objection(scope):
            await send_problem(send, problem)
            return
        if self._origins.origins:
            send = self._shared(scope, send)
        if self._origins.is_preflight(scope["method"], scope["headers"]):
            headers = self._origins.preflight(scope["headers"])
            await send({"type": "http.response.start", "status": 204, "headers": headers})
            await send({"type": "http.response.body"})
            return
        session, path = split_session(_path_of(scope))
        if not path.startswith("/v1/"):
            await self._pages(scope, receive, send)
            return
        scope["palimpsest.session"] = session
        scope["palimpsest.wire"] = self._wire(scope["method"], path)
        await guarded(self._admitted, scope, receive, send)

    def _objection(self, scope: Scope) -> PalimpsestError | None:
        """Why this request is not let in, whoever asks; None when it is. Looking at it costs a few us."""
        if sum(len(name) + len(value) for name, value in scope["headers"]) > self._admission.header_bytes:
            return HeadersTooLarge("The request's headers are too large.")
        match self._origins.refusal(scope["method"], scope["path"], scope["headers"]):
            case "host":
                return HostNotAllowed(_HOST_REFUSED)
            case "origin":
                return OriginNotAllowed(_ORIGIN_REFUSED)
        if _wants_websocket(scope):
            return NotFound("WebSockets are not served here.")
        if scope["method"] == "TRACE":
            # Its answer repeats the request's headers: to the caller, the operator's key among them.
            return MethodNotAllowed("TRACE is not forwarded.")
        return None

    def _shared(self, scope: Scope, send: Send) -> Send:
        """`send`, whose answers a page of a listed origin may read."""

        async def sharing(message: ASGIMessage) -> None:
            if message["type"] == "http.response.start":
                headers = list(message["headers"])
                has_own = any(name == b"access-control-allow-origin" for name, _ in headers)
                more = [] if has_own else self._origins.shared(scope["headers"], headers)
                message = {**message, "headers": [*headers, *more]}
            await send(message)

        return sharing

    def _wire(self, method: str, path: str) -> Wire | None:
        if method != "POST":
            return None
        return "responses" if self._compacts and COMPACT.fullmatch(path) else wire_of(path)

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The request in its place. Who asks is known before its body is waited for."""
        is_exchange = scope["palimpsest.wire"] is not None
        with self._admission.visit(await self._caller(scope)) as visit:

            async def noting() -> ASGIMessage:
                message = await receive()
                # What passes through holds a connection to the upstream from its first piece on.
                if message["type"] == "http.request" and not (is_exchange and message.get("more_body")):
                    visit.has_arrived()
                return message

            await (self._chat if is_exchange else self._passthrough)(scope, noting, send)

    async def _caller(self, scope: Scope) -> str:
        """Whose place the request takes: everybody who was never accepted upstream shares one caller's."""
        asking = asking_of(scope)
        caller = await self._access.standing_of(asking)
        if caller is None and not self._admission.has_room(UNPROVEN):
            # Since the start nobody may have asked the store about this one.
            caller = await self._access.standing_of(asking, asks_store=True)
        return UNPROVEN if caller is None else caller


def wire_of(path: str) -> Wire | None:
    """What is spoken at a path that an exchange answers; None for any other."""
    return next((wire for pattern, wire in WIRES if pattern.fullmatch(path)), None)


def split_session(path: str) -> tuple[str | None, str]:
    """`/s/{session}/v1/x` as (session, "/v1/x"); any other path as (None, path).

    The path is the client's own spelling: a session's name may hold an escaped slash.
    """
    if not path.startswith("/s/"):
        return None, path
    session, slash, rest = path[3:].partition("/")
    return (unquote(session), slash + rest) if session and rest else (None, path)


def target_of(scope: Scope) -> str:
    """Path and query below `/v1`, as the client spelled them. NotFound for dot segments.

    Dot segments would let a caller leave the operator's base path while the operator's key is sent.
    """
    _, path = split_session(_path_of(scope))
    if _has_dot_segment(path):
        raise NotFound("A path with dot segments is not forwarded.")
    query = scope["query_string"].decode("latin-1")
    return path.removeprefix("/v1") + (f"?{query}" if query else "")


def _path_of(scope: Scope) -> str:
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.decode("latin-1")


def _has_dot_segment(path: str) -> bool:
    """Also behind escaped slashes and escaped escapes: nobody knows how often the other side decodes."""
    while (plain := unquote(path)) != path:
        path = plain
    return any(segment in (".", "..") for segment in path.replace("\\", "/").split("/"))


def _wants_websocket(scope: Scope) -> bool:
    """The server hands on what it does not upgrade as an ordinary GET, which an upstream would not mean."""
    headers = scope["headers"] if scope["method"] == "GET" else ()
    return any(name == b"upgrade" and value.lower() == b"websocket" for name, value in headers)


async def guarded(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Runs `app`; an error raised before the response began becomes an OpenAI-shaped one.

    After it began nothing can be said any more: the server cuts the connection of an application that
    returns before its response is complete, which clients notice.
    """
    started = False

    async def noting(message: dict[str, object]) -> None:
        nonlocal started
        started = started or message["type"] == "http.response.start"
        await send(message)

    try:
        await app(scope, receive, noting)  # type: ignore[arg-type]
    except PalimpsestError as error:
        await _told(scope, receive, send, error, started=started)
    except Exception as error:  # noqa: BLE001  # the outermost wall: a bug becomes a 500, never a traceback
        await _told(scope, receive, send, unexpected(error), started=started)


async def _told(scope: Scope, receive: Receive, send: Send, error: PalimpsestError, *, started: bool) -> None:
    entry_of(scope).failed(error)
    if not started:
        ident = scope.get("palimpsest.exchange", "")
        await send_problem(send, error, ident, receive if is_unread(scope) else None)
