"""Authentication of our own endpoints' callers (rule 25), and parsing and refusal of their bodies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, TypeVar

import structlog
from fastapi import Depends, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from palimpsest.api.body import read_body
from palimpsest.errors import (
    InvalidJson,
    InvalidParameter,
    MethodNotAllowed,
    PalimpsestError,
    RequestError,
    UnsupportedMediaType,
)
from palimpsest.proxy.access import Access, Caller
from palimpsest.proxy.archive import missing
from palimpsest.proxy.incoming import Headers, asking_of
from palimpsest.proxy.operator import OperatorAccess
from palimpsest.proxy.reports import printable

Order = TypeVar("Order", bound=BaseModel)
# Parameters that several endpoints have.
SessionName = Annotated[str, Path(description="Our id of the session, or the client's own name for it.")]
Branch = Annotated[
    str | None,
    Query(
        max_length=100,
        description="Id of a branch or of a message in it, or the beginning of one; else the default branch.",
    ),
]
# Bodies of our own endpoints have a few fields; this leaves room for a focus and any id.
ORDER_BYTES = 65_536
ORDER_SECONDS = 10.0
_log = structlog.get_logger("palimpsest.operator")


class CallerAuthentication:
    """Authenticates callers as the chat endpoints do, and stores the caller in the request's state.

    The operator may read as another caller, where `operator` allows it; no credential goes upstream then.
    """

    def __init__(self, access: Access, operator: OperatorAccess) -> None:
        self._access = access
        self._operator = operator

    async def admit(self, request: Request) -> None:
        """Identify the caller. Every route under `/api` depends on this."""
        incoming, path = asking_of(request.scope), request.url.path
        read_as = await self._operator.reader(path, incoming)
        request.state.caller = read_as or await self._access.caller_of(incoming)
        request.state.credentials = () if read_as else self._access.credentials_of(incoming)
        request.state.is_admitted = partial(self._is_admitted, request)
        if read_as:
            _log.info("admin_read", namespace=read_as.namespace, path=printable(path))

    async def _is_admitted(self, request: Request) -> bool:
        incoming, namespace = asking_of(request.scope), _admitted(request).namespace
        try:
            read_as = await self._operator.reader(request.url.path, incoming)
        except RequestError:
            return False
        return read_as is not None or await self._access.still_admits(incoming, namespace)

    async def refuse_unknown(self, request: Request) -> None:
        """InvalidParameter for a query field that neither the endpoint nor a client's way to identify has."""
        check_fields(request, self._access.is_expected_field)


def check_fields(request: Request, is_expected: Callable[[str], bool]) -> None:
    """InvalidParameter for a query field that is neither the endpoint's nor expected."""
    known = request.scope["route"].query_fields
    for name in request.query_params:
        if name not in known and not is_expected(name):
            takes = f"takes {', '.join(known)}" if known else "takes none"
            raise InvalidParameter(f"There is no such parameter here; this endpoint {takes}.", param=name)


def _admitted(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


# The caller parameter of an endpoint; a route without authentication fails closed.
Admitted = Annotated[Caller, Depends(_admitted)]


def credentials_of(request: Request) -> Headers:
    """The caller's own key, for requests to the upstream on its behalf."""
    credentials: Headers = request.state.credentials
    return credentials


def still_admitted(request: Request) -> Callable[[], Awaitable[bool]]:
    """Asks again whether the caller may read, as `Access.still_admits`."""
    asks: Callable[[], Awaitable[bool]] = request.state.is_admitted
    return asks


async def order_of(request: Request, kind: type[Order]) -> Order:
    """The request's body as `kind`; an empty body is an empty object.

    Read here and not by the framework: after authentication, and bounded. UnsupportedMediaType for a body
    that is not declared as JSON.
    """
    require_json(request)
    body = await read_body(request.scope, request.receive, ORDER_BYTES, ORDER_SECONDS)
    try:
        return kind.model_validate_json(body or b"{}")
    except ValidationError as error:
        raise _invalid(error, kind) from None


def require_json(request: Request) -> None:
    """UnsupportedMediaType for a body not declared as JSON: HTML forms can send the other types."""
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


def _invalid(error: ValidationError, kind: type[BaseModel]) -> InvalidJson | InvalidParameter:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        return InvalidJson("The body is not valid JSON.")
    said = first["msg"]
    if first["type"] == "extra_forbidden":
        known = [field.alias or name for name, field in kind.model_fields.items()]
        said = f"There is no such field here; there are {', '.join(known)}"
    return InvalidParameter(f"{said}.", param=".".join(map(str, first["loc"])) or None)


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
