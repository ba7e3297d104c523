"""The paper of the pages: templates, headers, and how a browser shows a key.

A browser cannot send a bearer token by itself, so on these pages the password of HTTP Basic (RFC 7617) is
accepted as one. Only here: a browser then sends it with every request, even for a foreign page, whose forms
the front door refuses by their origin. The templates escape every value.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Callable, Coroutine, Iterator, Mapping
from importlib.resources import files
from typing import Any, Literal

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup
from starlette.exceptions import HTTPException

from palimpsest.api.body import entry_of
from palimpsest.api.problems import new_request_id
from palimpsest.core.wire.credentials import FIRST_HEADERS
from palimpsest.errors import (
    InvalidParameter,
    MethodNotAllowed,
    PalimpsestError,
    RequestError,
    Unauthorized,
)
from palimpsest.proxy.archive import missing
from palimpsest.proxy.incoming import Headers

# How a key was sent: not at all, as a password, or in a header as programs send it.
Way = Literal["none", "password", "header"]
CHALLENGE = 'Basic realm="palimpsest", charset="UTF-8"'
ASKS = "Enter the key that your client sends, as the password. The user name may be anything."
_BASIC = b"basic"
_KEY_HEADERS = tuple(name.encode() for name in FIRST_HEADERS)


class PageRoute(APIRoute):
    """A route that accepts a password and answers errors with a page."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """As FastAPI calls the endpoint."""
        answered = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                request.state.way, request.scope["headers"] = presented(request.scope["headers"])
                return await answered(request)
            except (PalimpsestError, RequestValidationError, HTTPException) as error:
                paper: PageTemplates = request.app.state.parts.paper
                problem = problem_of(error)
                entry_of(request.scope).failed(problem)
                return paper.problem(problem)

        return handler


def problem_of(error: Exception) -> PalimpsestError:
    """Our own error as it is, one of the framework's translated."""
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
        case _:
            return RequestError("The request cannot be understood.")


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


# Expressions of a template in one piece of a streamed page.
_STREAM_BUFFER = 200
# Characters that change the writing direction, or that HTML does not allow, are shown by code point: a text
# must not look like another one (Unicode TR 36, 2.8; HTML standard, 13.2.3.5).
_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROLS = (*(set(range(0x20)) - {0x09, 0x0A, 0x0D}), *range(0x7F, 0xA0))
_SURROGATES = range(0xD800, 0xE000)
_SHOWN = {code: f"[U+{code:04X}]" for code in (*_DIRECTIONS, *_CONTROLS)} | dict.fromkeys(
    _SURROGATES, "\ufffd"
)


def _grouped(number: int | None) -> str:
    """12345 as 12,345; "?" for none."""
    return "?" if number is None else f"{number:,}"


class _Markdown:
    """Renders what models and users wrote: HTML in it is text, pictures are links, headings paragraphs."""

    def __init__(self) -> None:
        # Headings would stand among those of the page, and a picture would be fetched from elsewhere.
        self._reader = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
        self._reader.add_render_rule("heading_open", lambda *_: '<p class="heading">')
        self._reader.add_render_rule("heading_close", lambda *_: "</p>\n")

    def rendered(self, text: str) -> Markup:
        """The text as HTML."""
        return Markup(self._reader.render(_visible(text)))  # noqa: S704  # the renderer escapes all that it is given


class PageTemplates:
    """The templates, read once. Pages run our own script alone, load nothing else, and may not be framed."""

    def __init__(self) -> None:
        self._templates = Environment(
            loader=PackageLoader("palimpsest.api.ui"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_visible,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.filters["grouped"] = _grouped
        self._templates.filters["markdown"] = _Markdown().rendered
        style = self._templates.get_template("style.css").render()
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        self._headers = {
            "content-security-policy": f"default-src 'none'; style-src 'sha256-{digest}'; script-src 'self'; "
            "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
            "x-content-type-options": "nosniff",
            # A browser names the origin of a form only to where it may name the referrer.
            "referrer-policy": "same-origin",
            # A page that links here gets no reference to the window.
            "cross-origin-opener-policy": "same-origin",
            "cache-control": "no-store",
        }

        self._script = files("palimpsest.api.ui").joinpath("templates", "ui.js").read_bytes()

    def script(self) -> Response:
        """The pages' script."""
        kind = "text/javascript; charset=utf-8"
        return Response(
            self._script, 200, {"cache-control": "no-cache", "x-content-type-options": "nosniff"}, kind
        )

    async def page(self, way: Way, name: str, facts: Mapping[str, Any]) -> Response:
        """A template's page, rendered on another thread: summaries may be long.

        A browser shows a password to pages alone, so that its user cannot follow links to JSON.
        """
        facts = {**facts, "has_links": way != "password"}
        return self._response(await asyncio.to_thread(self._filled, name, facts), 200, {})

    def standalone(self, name: str, facts: Mapping[str, Any]) -> Iterator[bytes]:
        """A template's page in pieces, to be kept as a file."""
        stream = self._templates.get_template(name).stream(facts)
        stream.enable_buffering(_STREAM_BUFFER)
        return (piece.encode() for piece in stream)

    def problem(self, problem: PalimpsestError) -> Response:
        """The page of an error; a 401 makes the browser ask its user for a key."""
        asks = isinstance(problem, Unauthorized)
        headers = {"x-request-id": new_request_id()} | ({"www-authenticate": CHALLENGE} if asks else {})
        facts = {"message": problem.message, "code": problem.code, "param": problem.param, "asks": asks}
        return self._response(self._filled("problem.html", facts), problem.status, headers)

    def _filled(self, name: str, facts: Mapping[str, Any]) -> str:
        return self._templates.get_template(name).render(facts)

    def _response(self, text: str, status: int, headers: Mapping[str, str]) -> Response:
        return Response(text.encode(), status, {**self._headers, **headers}, "text/html; charset=utf-8")


def _visible(value: Any) -> Any:
    """A value as the templates print it."""
    return value.translate(_SHOWN) if isinstance(value, str) and not isinstance(value, Markup) else value


def way_of(request: Request) -> Way:
    """How the request's key was sent; a page that is open to anybody reads none."""
    way: Way = getattr(request.state, "way", "none")
    return way
