"""Browsers as callers: a key typed into their own question, and errors as pages.

A browser cannot send a bearer token by itself, so on these pages the password of HTTP Basic (RFC 7617)
stands for one. Nowhere else: a browser sends it by itself from then on, also for a stranger's page, and
these pages change nothing. Knows nothing of what the pages show.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from app.api.problems import new_request_id, problem_of
from app.api.timeline.paper import Paper
from app.core.wire.credentials import FIRST_HEADERS
from app.errors import PalimpsestError, Unauthorized
from app.proxy.incoming import Headers

# How a key was sent: not at all, as a password, or in a header as programs do.
Way = Literal["none", "password", "header"]
CHALLENGE = 'Basic realm="palimpsest", charset="UTF-8"'
ASKS = "Enter the key that your client sends, as the password. The user name may be anything."
_BASIC = b"basic"
_KEY_HEADERS = tuple(name.encode() for name in FIRST_HEADERS)


def route_of(paper: Paper) -> type[APIRoute]:
    """The kind of route that takes a password, and answers errors with a page."""

    class PageRoute(APIRoute):
        """A route of a page."""

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

    Without cookies: a browser has those of every program on this host. Unauthorized for a password that
    cannot be read. One without a password presents nothing.
    """
    headers = [header for header in headers if header[0] != b"cookie"]
    if not any(name in _KEY_HEADERS for name, _ in headers):
        return "none", headers
    if not any(_is_basic(name, value) for name, value in headers):
        return "header", headers
    told = [(name, _as_bearer(value) if _is_basic(name, value) else value) for name, value in headers]
    kept = [(name, value) for name, value in told if name != b"authorization" or value]
    has_any = any(name in _KEY_HEADERS for name, _ in kept)
    return ("password" if has_any else "none"), kept


def problem_page(paper: Paper, problem: PalimpsestError) -> Response:
    """The error as a page; a browser that is not known asks whoever sits before it for a key."""
    asks = isinstance(problem, Unauthorized)
    headers = {"x-request-id": new_request_id()} | ({"www-authenticate": CHALLENGE} if asks else {})
    facts = {"message": problem.message, "code": problem.code, "param": problem.param, "asks": asks}
    return paper.problem(facts, problem.status, headers)


def _is_basic(name: bytes, value: bytes) -> bool:
    return name == b"authorization" and value.partition(b" ")[0].lower() == _BASIC


def _as_bearer(value: bytes) -> bytes:
    """The header that a program would have sent, b"" where the password is empty."""
    try:
        plain = base64.b64decode(value[len(_BASIC) :].strip(), validate=True)
    except binascii.Error:
        raise Unauthorized(ASKS) from None
    _, colon, password = plain.partition(b":")
    if not colon:
        raise Unauthorized(ASKS)
    return b"Bearer " + password if password else b""
