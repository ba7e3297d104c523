"""The front door: sends each request to the hot path, to the passthrough or to FastAPI.

The chat route is taken before FastAPI because routing and request objects would cost more than the
rest of the exchange (43 us against 108 us a request, measured). Knows nothing of what lies behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import unquote

from app.api.logged import entry_of
from app.api.problems import send_problem, unexpected
from app.core.wire.chat_request import Wire
from app.errors import HeadersTooLarge, MethodNotAllowed, NotFound, PalimpsestError, ServerBusy
from app.proxy.asgi import ASGIApp, Receive, Scope, Send

# What is answered by an exchange, by the path that it is sent to; Azure's clients name a deployment in it.
WIRES: Sequence[tuple[re.Pattern[str], Wire]] = (
    (re.compile(r"/v1(?:/deployments/[^/]+)?/chat/completions/*"), "chat"),
    (re.compile(r"/v1(?:/deployments/[^/]+)?/responses/*"), "responses"),
)
# Answered by an exchange where it may be answered here; else it is the upstream's.
COMPACT = re.compile(r"/v1/responses/compact/*")


class Crowd:
    """Requests being answered, at most `requests` of them, each with headers of at most `header_bytes`."""

    def __init__(self, *, requests: int, header_bytes: int) -> None:
        self._requests = requests
        self._header_bytes = header_bytes
        self._now = 0

    def objection(self, scope: Scope) -> PalimpsestError | None:
        """Why this request is not let in; None when it is. Looking at it costs 2 us."""
        if sum(len(name) + len(value) for name, value in scope["headers"]) > self._header_bytes:
            return HeadersTooLarge("The request's headers are too large.")
        if self._now >= self._requests:
            return ServerBusy("As many requests as are allowed at a time are being answered; try again soon.")
        return None

    @contextmanager
    def counted(self) -> Iterator[None]:
        """One more is being answered while it lasts."""
        self._now += 1
        try:
            yield
        finally:
            self._now -= 1


class Front:
    """An ASGI application made of three. `crowd` bounds what it answers at a time.

    `compacts`: requests for a compaction are not simply the upstream's.
    """

    def __init__(
        self,
        *,
        chat: ASGIApp,
        passthrough: ASGIApp,
        pages: ASGIApp,
        crowd: Crowd,
        compacts: bool = False,
    ) -> None:
        self._chat = chat
        self._passthrough = passthrough
        self._pages = pages
        self._crowd = crowd
        self._compacts = compacts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """HTTP below `/v1/` and `/s/{session}/v1/` goes upstream, all else is ours."""
        if scope["type"] != "http":
            await self._pages(scope, receive, send)
            return
        if _wants_websocket(scope):
            await send_problem(send, NotFound("WebSockets are not served here."))
            return
        if scope["method"] == "TRACE":
            # Its answer repeats the request's headers: to the caller, the operator's key among them.
            await send_problem(send, MethodNotAllowed("TRACE is not forwarded."))
            return
        if problem := self._crowd.objection(scope):
            await send_problem(send, problem)
            return
        session, path = split_session(_path_of(scope))
        if not path.startswith("/v1/"):
            await self._pages(scope, receive, send)
            return
        scope["palimpsest.session"] = session
        wire = wire_of(path) if scope["method"] == "POST" else None
        if self._compacts and scope["method"] == "POST" and COMPACT.fullmatch(path):
            wire = "responses"
        scope["palimpsest.wire"] = wire
        with self._crowd.counted():
            await guarded(self._chat if wire else self._passthrough, scope, receive, send)


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
        await _told(scope, send, error, started=started)
    except Exception as error:  # noqa: BLE001  # the outermost wall: a bug becomes a 500, never a traceback
        await _told(scope, send, unexpected(error), started=started)


async def _told(scope: Scope, send: Send, error: PalimpsestError, *, started: bool) -> None:
    entry_of(scope).failed(error)
    if not started:
        await send_problem(send, error)
