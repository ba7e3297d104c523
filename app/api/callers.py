"""Who asks our own endpoints: the same credential as for the chat decides whose things are seen (rule 25).

Knows nothing of what is asked for.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel, ValidationError

from app.api.body import read_body
from app.errors import InvalidJson, InvalidParameter, UnsupportedMediaType
from app.proxy.access.access import Access, Caller
from app.proxy.asgi import Scope
from app.proxy.incoming import Headers, Incoming

Order = TypeVar("Order", bound=BaseModel)
# Requests of our own are a few fields; this bounds a focus in words and leaves room for any id.
ORDER_BYTES = 65_536
ORDER_SECONDS = 10.0


class Doorkeeper:
    """Lets in whoever the chat would let in, and remembers in the request who it is."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def admit(self, request: Request) -> None:
        """The caller is known. Every route under `/api` depends on this."""
        incoming = asking_of(request.scope)
        request.state.caller = await self._access.caller_of(incoming)
        request.state.credentials = self._access.credentials_of(incoming)


def _admitted(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


# What an endpoint declares; it fails, closed, on a route that has no doorkeeper.
Admitted = Annotated[Caller, Depends(_admitted)]


def credentials_of(request: Request) -> Headers:
    """The caller's own key, for questions that are put to the upstream in its name."""
    credentials: Headers = request.state.credentials
    return credentials


def asking_of(scope: Scope) -> Incoming:
    """A request of which only who asks is of interest: its headers and its query."""
    query = scope["query_string"].decode("latin-1")
    return Incoming(scope["method"], f"?{query}", scope["headers"], b"", None)


async def order_of(request: Request, kind: type[Order]) -> Order:
    """The request's body as `kind`, an empty one as no fields at all.

    Read here and not by the framework: after the caller is known, and bounded. UnsupportedMediaType for a
    body that is not said to be JSON.
    """
    require_json(request)
    body = await read_body(request.scope, request.receive, ORDER_BYTES, ORDER_SECONDS)
    try:
        return kind.model_validate_json(body or b"{}")
    except ValidationError as error:
        raise _invalid(error) from None


def require_json(request: Request) -> None:
    """UnsupportedMediaType for a body that is not said to be JSON: forms of web pages can send any other."""
    headers = request.headers
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise UnsupportedMediaType(
            "Bodies under /api are JSON and must say so: send content-type: application/json (with curl: "
            "-H 'content-type: application/json').",
            param="Content-Type",
        )


def _invalid(error: ValidationError) -> InvalidJson | InvalidParameter:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        return InvalidJson("The body is not valid JSON.")
    return InvalidParameter(f"{first['msg']}.", param=".".join(map(str, first["loc"])) or None)
