"""Errors as clients of the OpenAI API expect them: the place where an exception becomes a response.

Pages for browsers tell them in their own way (`app.api.timeline.browser`).

Knows nothing of how an error came about. Messages are ours and never quote bodies, keys or paths.
"""

from __future__ import annotations

import msgspec
import structlog
import uuid_utils
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from app.api.body import linger
from app.api.logged import ERROR
from app.errors import (
    AnswerNotStored,
    Conflict,
    InvalidParameter,
    MethodNotAllowed,
    PalimpsestError,
    RequestError,
    UnsupportedCoding,
)
from app.proxy.archive import missing
from app.proxy.asgi import Receive, Send
from app.upstream.decoding import DECODABLE

_log = structlog.get_logger("palimpsest.problems")


def problem_body(error: PalimpsestError) -> bytes:
    """The OpenAI error object: message, type, param, code."""
    return msgspec.json.encode(
        {
            "error": {
                "message": error.message,
                "type": error.type,
                "param": error.param,
                "code": error.code,
            }
        }
    )


def problem_headers(error: PalimpsestError, request_id: str = "") -> list[tuple[bytes, bytes]]:
    """`x-should-retry: false` where trying again cannot help: the SDKs obey it.

    `x-request-id`, which SDKs put into what they raise, is the exchange's id or a new one. Codings that may
    be sent instead of an unsupported one stand in `accept-encoding` (RFC 9110, 12.5.3).
    """
    ident = request_id or new_request_id()
    headers = [(b"content-type", b"application/json"), (b"x-request-id", ident.encode())]
    if isinstance(error, UnsupportedCoding):
        headers.append((b"accept-encoding", ", ".join(sorted(DECODABLE)).encode()))
    is_settled = error.status < 500 and not isinstance(error, Conflict)
    if is_settled or isinstance(error, AnswerNotStored):
        headers.append((b"x-should-retry", b"false"))
    elif error.status in (409, 503):
        headers.append((b"retry-after", b"1"))
    return headers


def new_request_id() -> str:
    """The id of a request that is no exchange's."""
    return str(uuid_utils.uuid7())


async def send_problem(
    send: Send, error: PalimpsestError, request_id: str = "", unread: Receive | None = None
) -> None:
    """The whole response for an error raised before anything was sent.

    `unread`: where the rest of the request's body comes from, which its client may still be sending. The
    answer goes out at once, with the news that the connection ends with it, and the rest is passed over for
    a while: closed at once, the connection would be reset, and the answer lost with it (RFC 9112, 9.6).
    """
    body = problem_body(error)
    headers = [*problem_headers(error, request_id), (b"content-length", str(len(body)).encode())]
    if unread is not None:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": error.status, "headers": headers, ERROR: error})
    await send({"type": "http.response.body", "body": body, "more_body": unread is not None})
    if unread is not None:
        await linger(unread)
        await send({"type": "http.response.body", "body": b""})


def problem_of(error: Exception) -> PalimpsestError:
    """An error of ours as it is, one of the framework's as ours."""
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


def unexpected(error: Exception) -> PalimpsestError:
    """A bug, as the client may see it; the log has its name and place, never its text."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = f"{frame.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.tb_lineno}" if frame else "?"
    _log.error("bug", error=type(error).__name__, place=place)
    return PalimpsestError("The proxy failed unexpectedly; nothing that was recorded is lost.")
