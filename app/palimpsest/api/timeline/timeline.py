"""The timeline: read-only pages of a caller's sessions and their events, for browsers (A24).

A browser cannot send a bearer token by itself, so on these pages the password of HTTP Basic (RFC 7617) is
accepted as one. Only here: a browser then sends it with every request, even for a foreign page, and these
pages change nothing. The templates escape every value.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.exceptions import HTTPException

from palimpsest.api.callers import Admitted, credentials_of, problem_of
from palimpsest.api.clients import base_url_of, settings_lines
from palimpsest.api.events import MOST_SEQ
from palimpsest.api.problems import new_request_id
from palimpsest.api.sessions import IdText
from palimpsest.api.timeline.entries import (
    CHOICES,
    Use,
    days_of,
    entry_of,
    grouped,
    listed_of,
    moment,
    use_of,
)
from palimpsest.core.wire.credentials import FIRST_HEADERS
from palimpsest.errors import NotFound, PalimpsestError, Unauthorized
from palimpsest.proxy.archive import Archive
from palimpsest.proxy.compacting.context_loader import ContextLoader
from palimpsest.proxy.incoming import Headers
from palimpsest.storage.history import SessionRow
from palimpsest.storage.store import Store

# How a key was sent: not at all, as a password, or in a header as programs send it.
Way = Literal["none", "password", "header"]
CHALLENGE = 'Basic realm="palimpsest", charset="UTF-8"'
ASKS = "Enter the key that your client sends, as the password. The user name may be anything."
_BASIC = b"basic"
_KEY_HEADERS = tuple(name.encode() for name in FIRST_HEADERS)


def route_of(paper: PageTemplates) -> type[APIRoute]:
    """The class of routes that accept a password and answer errors with a page."""

    class PageRoute(APIRoute):
        """The route of a page."""

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            answered = super().get_route_handler()

            async def handler(request: Request) -> Response:
                try:
                    request.state.way, request.scope["headers"] = presented(request.scope["headers"])
                    return await answered(request)
                except (PalimpsestError, RequestValidationError, HTTPException) as error:
                    return problem_page(paper, problem_of(error))

            return handler

    return PageRoute


def presented(headers: Headers) -> tuple[Way, Headers]:
    """How a key was sent, and the headers as a program would have sent them.

    Cookies are dropped: a browser sends those of every program on this host. Unauthorized for a password that
    cannot be decoded. An empty password counts as no key.
    """
    headers = [header for header in headers if header[0] != b"cookie"]
    if not any(name in _KEY_HEADERS for name, _ in headers):
        return "none", headers
    if not any(_is_basic(name, value) for name, value in headers):
        return "header", headers
    rewritten = [(name, _as_bearer(value) if _is_basic(name, value) else value) for name, value in headers]
    kept = [(name, value) for name, value in rewritten if name != b"authorization" or value]
    has_any = any(name in _KEY_HEADERS for name, _ in kept)
    return ("password" if has_any else "none"), kept


def problem_page(paper: PageTemplates, problem: PalimpsestError) -> Response:
    """The error as a page; a 401 makes the browser ask its user for a key."""
    asks = isinstance(problem, Unauthorized)
    headers = {"x-request-id": new_request_id()} | ({"www-authenticate": CHALLENGE} if asks else {})
    facts = {"message": problem.message, "code": problem.code, "param": problem.param, "asks": asks}
    return paper.problem(facts, problem.status, headers)


def _is_basic(name: bytes, value: bytes) -> bool:
    return name == b"authorization" and value.partition(b" ")[0].lower() == _BASIC


def _as_bearer(value: bytes) -> bytes:
    """The header that a program would have sent, b"" for an empty password."""
    try:
        plain = base64.b64decode(value[len(_BASIC) :].strip(), validate=True)
    except binascii.Error:
        raise Unauthorized(ASKS) from None
    _, colon, password = plain.partition(b":")
    if not colon:
        raise Unauthorized(ASKS)
    return b"Bearer " + password if password else b""


# Characters that change the writing direction, or that HTML does not allow, are shown by code point: a text
# must not look like another one (Unicode TR 36, 2.8; HTML standard, 13.2.3.5).
_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROLS = (*(set(range(0x20)) - {0x09, 0x0A, 0x0D}), *range(0x7F, 0xA0))
_SURROGATES = range(0xD800, 0xE000)
_SHOWN = {code: f"[U+{code:04X}]" for code in (*_DIRECTIONS, *_CONTROLS)} | dict.fromkeys(
    _SURROGATES, "\ufffd"
)


class PageTemplates:
    """The templates, read once. Pages may not load or run anything, nor be framed."""

    def __init__(self) -> None:
        self._templates = Environment(
            loader=PackageLoader("palimpsest.api.timeline"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_visible,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.filters["grouped"] = grouped
        style = self._templates.get_template("style.css").render()
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        self._headers = {
            "content-security-policy": f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; "
            "form-action 'none'; frame-ancestors 'none'",
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            # A page that links here gets no reference to the window.
            "cross-origin-opener-policy": "same-origin",
            "cache-control": "no-store",
        }

    async def page(self, name: str, facts: Mapping[str, Any]) -> Response:
        """A template's page, rendered on another thread: summaries may be long."""
        return self._response(await asyncio.to_thread(self._filled, name, facts), 200, {})

    def problem(self, facts: Mapping[str, Any], status: int, headers: Mapping[str, str]) -> Response:
        """The page of an error."""
        return self._response(self._filled("problem.html", facts), status, headers)

    def _filled(self, name: str, facts: Mapping[str, Any]) -> str:
        return self._templates.get_template(name).render(facts)

    def _response(self, text: str, status: int, headers: Mapping[str, str]) -> Response:
        return Response(text.encode(), status, {**self._headers, **headers}, "text/html; charset=utf-8")


def _visible(value: Any) -> Any:
    """A value as the templates print it."""
    return value.translate(_SHOWN) if isinstance(value, str) and not isinstance(value, Markup) else value


_MOST_SESSIONS = 50
_MOST_EVENTS = 500
# Nobody reads more branches than these: a chat front end leaves three for every question.
_MOST_BRANCHES = 40
Show = Literal["all", "compactions", "trouble"]


class TimelinePages:
    """The two pages."""

    def __init__(self, archive: Archive, store: Store, contexts: ContextLoader) -> None:
        self._archive = archive
        self._store = store
        self._contexts = contexts
        self._paper = PageTemplates()

    def on(self, api: APIRouter) -> None:
        """Register the routes, which also answer errors with pages."""
        kind = route_of(self._paper)
        api.add_api_route("/timeline", self.sessions, methods=["GET"], route_class_override=kind)
        api.add_api_route(
            "/sessions/{name:path}/timeline", self.session, methods=["GET"], route_class_override=kind
        )

    async def sessions(
        self,
        request: Request,
        caller: Admitted,
        limit: Annotated[int, Query(ge=1, le=_MOST_SESSIONS)] = 25,
        before: Annotated[IdText | None, Query()] = None,
        ask: bool = False,
    ) -> Response:
        """The caller's sessions as a page, newest first. `ask`: a browser without a key asks for one."""
        way = _way(request)
        if ask and way == "none":
            raise Unauthorized(ASKS)
        total = await self._store.history.session_count(caller.namespace, "")
        if not total and way == "password":
            # The password may be mistyped.
            raise Unauthorized(f"Nothing is stored for you yet. {ASKS}")
        rows = await self._store.history.sessions(caller.namespace, limit + 1, before, with_side=False)
        page = rows[:limit]
        asked = await self._store.exchanges.newest_finished(caller.namespace, [row.id for row in page])
        return await self._paper.page(
            "sessions.html",
            {
                "sessions": listed_of(
                    page, asked, time.time(), partial(self._contexts.ratio_of, caller.namespace)
                ),
                "total": total,
                "limit": limit,
                "is_first": before is None,
                "next": page[-1].id if len(rows) > limit else None,
                "has_links": way != "password",
                "has_key": way != "none",
                "base_url": base_url_of(request.scope),
                "clients": settings_lines(request.scope),
            },
        )

    async def session(
        self,
        request: Request,
        caller: Admitted,
        name: str,
        after: Annotated[int, Query(ge=0, le=MOST_SEQ)] = 0,
        limit: Annotated[int, Query(ge=1, le=_MOST_EVENTS)] = 100,
        show: Show = "all",
    ) -> Response:
        """One session as a page: its state, and its events after `after`, oldest first."""
        row = await self._row(request, caller.namespace, name)
        events = await self._store.journal.events(caller.namespace, row.id, after, limit + 1, CHOICES[show])
        page = events[:limit]
        return await self._paper.page(
            "session.html",
            {
                "session": row,
                "use": await self._use(request, caller.namespace, row),
                "started": moment(row.created_at),
                "touched": moment(row.updated_at),
                "branches": (await self._archive.branches(caller.namespace, row))[:_MOST_BRANCHES],
                "days": days_of([entry_of(one) for one in page]),
                "show": show,
                "choices": tuple(CHOICES),
                "limit": limit,
                "after": after,
                "next": page[-1].seq if len(events) > limit else None,
                "has_links": _way(request) != "password",
            },
        )

    async def _row(self, request: Request, namespace: str, name: str) -> SessionRow:
        """The session. NotFound; Unauthorized when a browser has sent no key, or perhaps a mistyped one."""
        try:
            return await self._archive.session(namespace, name)
        except NotFound as missing:
            if await self._is_known(request, namespace):
                raise
            raise Unauthorized(f"{missing.message} {ASKS}") from None

    async def _is_known(self, request: Request, namespace: str) -> bool:
        """False without a key, and for a password with which no session exists at all."""
        way = _way(request)
        if way == "password":
            return await self._store.history.session_count(namespace, "") > 0
        return way == "header"

    async def _use(self, request: Request, namespace: str, row: SessionRow) -> Use:
        place = await self._archive.place(namespace, row.id, None)
        subject = await self._archive.branch(place, credentials_of(request))
        context = await self._contexts.of(subject)
        return await context.done(use_of)


def _way(request: Request) -> Way:
    way: Way = request.state.way
    return way
