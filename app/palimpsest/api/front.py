"""The front door: checks each request, limits concurrency per caller and dispatches to the endpoints.

A request whose body is still arriving counts as an upload; once its body has arrived, as a request being
answered. So bodies that never arrive block no answers. The chat route is dispatched before FastAPI because
routing and request objects would cost more than the rest of the exchange (43 us against 108 us a request,
measured).
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from palimpsest.api.body import entry_of, is_unread
from palimpsest.api.problems import send_problem, unexpected
from palimpsest.core.urls import decoded
from palimpsest.core.wire.chat import CHAT
from palimpsest.core.wire.request import Wire
from palimpsest.core.wire.responses.request import RESPONSES
from palimpsest.core.wire.web_origins import WebOrigins
from palimpsest.errors import (
    HeadersTooLarge,
    HostNotAllowed,
    InvalidField,
    MethodNotAllowed,
    NotFound,
    OriginNotAllowed,
    PalimpsestError,
    ServerBusy,
)
from palimpsest.proxy.access import Access
from palimpsest.proxy.incoming import ASGIApp, ASGIMessage, Receive, Scope, Send, asking_of


class ConcurrencyLimit:
    """`total` slots or bytes, of which a single active caller may hold `share`.

    A caller may hold `share / (1 - share)` times as many slots as are free (dynamic thresholds: Choudhury and
    Hahne, 1998): with 0.8 one caller holds 4 of 5, two hold 4 of 9 each, and a slot is left for the next.
    """

    def __init__(self, total: int, share: float) -> None:
        self._total = total
        # Rounded: 0.8 / 0.2 is a little more than 4 in binary fractions.
        self._ratio = round(share / (1 - share), 9) if share < 1 else float("inf")
        self._held: Counter[Hashable] = Counter()
        self._taken = 0

    def has_room(self, caller: Hashable) -> bool:
        """True when one more request of the caller fits."""
        free = self._total - self._taken
        return free > 0 and self._held[caller] < max(1, self._ratio * free)

    def take(self, caller: Hashable, amount: int = 1) -> None:
        """Take a slot, or bytes, whose last piece may exceed the limit. ServerBusy when nothing is free."""
        if not self.has_room(caller):
            raise ServerBusy("As many requests as are allowed at a time are being answered; try again soon.")
        self._held[caller] += amount
        self._taken += amount

    def release(self, caller: Hashable, amount: int = 1) -> None:
        """Release a slot or bytes."""
        self._taken -= amount
        self._held[caller] -= amount
        if not self._held[caller]:
            del self._held[caller]


class AdmissionSlot:
    """One request's slot."""

    def __init__(self, arriving: ConcurrencyLimit, answered: ConcurrencyLimit, caller: Hashable) -> None:
        self._answered = answered
        self._caller = caller
        self._place = arriving
        arriving.take(caller)

    def start_answering(self) -> None:
        """Move from uploads to answers. ServerBusy when there is no slot for this caller."""
        if self._place is not self._answered:
            self._answered.take(self._caller)
            self._place.release(self._caller)
            self._place = self._answered

    def ends(self) -> None:
        """Release the slot."""
        self._place.release(self._caller)


@dataclass(frozen=True, slots=True)
class Admission:
    """The limits of answers and of uploads, and of bytes of unfinished bodies."""

    answered: ConcurrencyLimit
    arriving: ConcurrencyLimit
    body_bytes: ConcurrencyLimit

    def has_room(self, caller: Hashable) -> bool:
        """True when one more request of the caller would be accepted."""
        return self.arriving.has_room(caller) and self.answered.has_room(caller)

    def slot(self, caller: Hashable) -> AdmissionSlot:
        """A slot for the request, until its `ends`. ServerBusy when there is none."""
        if not self.answered.has_room(caller):
            # Raises: its body need not be read.
            self.answered.take(caller)
        return AdmissionSlot(self.arriving, self.answered, caller)


# Of names and values. Other servers accept 8 to 32 kB; large cookies and traces still fit.
HEADER_BYTES = 64 * 1024
# The paths of recorded exchanges; Azure's clients put a deployment's name into them.
WIRES: Sequence[tuple[re.Pattern[str], Wire]] = (
    (re.compile(r"/v1/+(?:deployments/+[^/]+/+)?chat/+completions/*"), CHAT),
    (re.compile(r"/v1/+(?:deployments/+[^/]+/+)?responses/*"), RESPONSES),
    # Not one of every server.
    (re.compile(r"/v1/+responses/+compact/*"), RESPONSES),
)
# All callers that the upstream has never accepted share the slots of this one.
UNPROVEN = ""
# All who send bodies to our own endpoints share the bytes of this one.
_OWN_ENDPOINTS = "/"
_HOST_REFUSED = (
    "The proxy does not answer to the name in the Host header: without keys it answers to localhost, IP "
    "addresses and its own names only. Add the name to server.allowed_hosts."
)
_ORIGIN_REFUSED = (
    "The request comes from a web page of another origin. If the page may speak to this proxy, add what the "
    "Origin header says to server.cors_origins."
)
_SLASHES, _IGNORED = re.compile(r"[/\\]"), re.compile(r"[\x00-\x20\x7f]+")

# Health checks, answered in every state and for any Host header.
HEALTH = frozenset({"/healthz", "/readyz"})


class LazyPages:
    """Our own endpoints, loaded at the first request for one: a proxy that only answers chats needs none.

    Their web framework, pages and forms take a sixth of the processor time of a start (2026-11).
    """

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        """`make` loads them on another thread, which takes 0.5 s."""
        self._make = make
        self._making = asyncio.Lock()
        self._made: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection."""
        pages = self._made or await self._loaded()
        await pages(scope, receive, send)

    async def _loaded(self) -> ASGIApp:
        async with self._making:
            if self._made is None:
                self._made = await asyncio.to_thread(self._make)
            return self._made


@dataclass(frozen=True, slots=True)
class Front:
    """An ASGI application that admits requests and dispatches them to four others.

    `origins` checks Host and Origin headers, `admission` limits concurrent requests, `access` identifies
    callers.
    """

    chat: ASGIApp
    passthrough: ASGIApp
    pages: ASGIApp
    health: ASGIApp
    origins: WebOrigins
    admission: Admission
    access: Access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """HTTP below `/v1/` and `/s/{session}/v1/` goes upstream; all other paths are ours."""
        if scope["type"] != "http":
            await self.pages(scope, receive, send)
            return
        if scope["path"] in HEALTH:
            await guarded(self.health, scope, receive, send)
            return
        if problem := self._objection(scope):
            await send_problem(send, problem)
            return
        if self.origins.origins:
            send = self._shared(scope, send)
        if self.origins.is_preflight(scope["method"], scope["headers"]):
            headers = self.origins.preflight(scope["headers"])
            await send({"type": "http.response.start", "status": 204, "headers": headers})
            await send({"type": "http.response.body"})
            return
        session, path = split_session(_path_of(scope))
        if not path.startswith("/v1/"):
            await self._own(scope, receive, send)
            return
        scope["palimpsest.session"] = session
        scope["palimpsest.wire"] = wire_of(scope["method"], path)
        await guarded(self._admitted, scope, receive, send)

    async def _own(self, scope: Scope, receive: Receive, send: Send) -> None:
        bodies, held = self.admission.body_bytes, 0

        async def noting() -> ASGIMessage:
            nonlocal held
            message = await receive()
            if message.get("more_body"):
                bodies.take(_OWN_ENDPOINTS, len(message["body"]))
                held += len(message["body"])
            return message

        try:
            await self.pages(scope, noting, send)
        finally:
            if held:
                bodies.release(_OWN_ENDPOINTS, held)

    def _objection(self, scope: Scope) -> PalimpsestError | None:
        """Why the request is refused for any caller; None when it is not. Costs a few us."""
        if sum([len(name) + len(value) for name, value in scope["headers"]]) > HEADER_BYTES:
            return HeadersTooLarge("The request's headers are too large.")
        match self.origins.refusal(scope["method"], scope["path"], scope["headers"]):
            case "host":
                return HostNotAllowed(_HOST_REFUSED)
            case "origin":
                return OriginNotAllowed(_ORIGIN_REFUSED)
        # The server hands on a refused upgrade as an ordinary GET, which must not be forwarded.
        asks = scope["headers"] if scope["method"] == "GET" else ()
        if any(name == b"upgrade" and value.lower() == b"websocket" for name, value in asks):
            return NotFound("WebSockets are not served here.")
        if scope["method"] == "TRACE":
            # Its answer repeats the request's headers, which would show the operator's key to the caller.
            return MethodNotAllowed("TRACE is not forwarded.")
        return None

    def _shared(self, scope: Scope, send: Send) -> Send:
        """`send` with CORS headers, so that pages of listed origins may read the answers."""

        async def sharing(message: ASGIMessage) -> None:
            if message["type"] == "http.response.start":
                headers = list(message["headers"])
                has_own = any(name == b"access-control-allow-origin" for name, _ in headers)
                more = [] if has_own else self.origins.shared(scope["headers"], headers)
                message = {**message, "headers": [*headers, *more]}
            await send(message)

        return sharing

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request in a slot. Its caller is identified before its body is read."""
        is_exchange = scope["palimpsest.wire"] is not None
        caller = await self._caller(scope)
        slot, bodies, held = self.admission.slot(caller), self.admission.body_bytes, 0

        async def noting() -> ASGIMessage:
            nonlocal held
            message = await receive()
            # A request that is passed through uses an upstream connection from its first piece on.
            if is_exchange and message.get("more_body"):
                bodies.take(caller, len(message["body"]))
                held += len(message["body"])
            elif message["type"] == "http.request":
                slot.start_answering()
                if held:
                    bodies.release(caller, held)
                    held = 0
            return message

        try:
            await (self.chat if is_exchange else self.passthrough)(scope, noting, send)
        finally:
            slot.ends()
            if held:
                bodies.release(caller, held)

    async def _caller(self, scope: Scope) -> str:
        """The caller that the slot is counted for; `UNPROVEN` for one never accepted upstream."""
        asking = asking_of(scope)
        scope["palimpsest.credentials"] = digest = self.access.digest_of(asking)
        caller = await self.access.known_namespace(asking, digest)
        if caller is None and not self.admission.has_room(UNPROVEN):
            # The caller may be proven without this process having read it from the store yet.
            caller = await self.access.known_namespace(asking, digest, asks_store=True)
        return UNPROVEN if caller is None else caller


def wire_of(method: str, path: str) -> Wire | None:
    """The wire of an exchange; None for any other request."""
    if method != "POST":
        return None
    return next((wire for pattern, wire in WIRES if pattern.fullmatch(path)), None)


def split_session(path: str) -> tuple[str | None, str]:
    """`/s/{session}/v1/x` as (session, "/v1/x"); any other path as (None, path).

    The path is undecoded: a session's name may contain an escaped slash.
    """
    if not path.startswith("/s/"):
        return None, path
    session, slash, rest = path[3:].partition("/")
    return (unquote(session), slash + rest) if session and rest else (None, path)


def target_of(scope: Scope) -> str:
    """Path and query below `/v1`, as the client spelled them. InvalidField for dot segments.

    Dot segments could leave the operator's base path while the operator's key is sent. Also behind repeated
    percent-encoding, which an upstream may decode more than once; and as servers read them that take a
    backslash for a slash, or drop what follows a semicolon (Tomcat), blanks and controls.
    """
    _, path = split_session(_path_of(scope))
    segments = _SLASHES.split(decoded(path))
    if any(_IGNORED.sub("", segment.partition(";")[0]) in (".", "..") for segment in segments):
        raise InvalidField("A path with dot segments is not forwarded.")
    query = scope["query_string"].decode("latin-1")
    return path.removeprefix("/v1") + (f"?{query}" if query else "")


def _path_of(scope: Scope) -> str:
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.decode("latin-1")


async def guarded(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Run `app`; an error raised before the response begins becomes an OpenAI-shaped one.

    After that no error can be sent: the server cuts the connection of an application that returns before its
    response is complete, which clients notice.
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
