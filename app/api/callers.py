"""Who asks our own endpoints: the same credential as for the chat decides whose things are seen (rule 25).

Knows nothing of what is asked for.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel, ValidationError

from app.api.body import read_body
from app.errors import InvalidJson, InvalidParameter
from app.proxy.access.access import Access, Caller
from app.proxy.incoming import Headers, Incoming
from app.upstream.headers import CREDENTIALS

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
        incoming = Incoming(
            method=request.method,
            target="",
            headers=request.scope["headers"],
            body=b"",
            path_session=None,
        )
        request.state.caller = await self._access.caller_of(incoming)


def _admitted(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


# What an endpoint declares; it fails, closed, on a route that has no doorkeeper.
Admitted = Annotated[Caller, Depends(_admitted)]


def credentials_of(request: Request) -> Headers:
    """The caller's own key, for questions that are put to the upstream in its name."""
    return [(name, value) for name, value in request.scope["headers"] if name in CREDENTIALS]


async def order_of(request: Request, kind: type[Order]) -> Order:
    """The request's body as `kind`, an empty one as no fields at all.

    Read here and not by the framework: after the caller is known, bounded, whatever content type
    curl gives it.
    """
    body = await read_body(request.scope, request.receive, ORDER_BYTES, ORDER_SECONDS)
    try:
        return kind.model_validate_json(body or b"{}")
    except ValidationError as error:
        raise _invalid(error) from None


def _invalid(error: ValidationError) -> InvalidJson | InvalidParameter:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        return InvalidJson("The body is not valid JSON.")
    return InvalidParameter(f"{first['msg']}.", param=".".join(map(str, first["loc"])) or None)
