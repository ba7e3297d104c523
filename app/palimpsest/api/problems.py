"""Turns exceptions into error responses of the OpenAI API's form.

Pages for browsers show errors themselves (`palimpsest.api.paper`). Messages are ours and never
quote bodies, keys or paths.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import structlog
import uuid_utils
from starlette.responses import Response

from palimpsest.api.body import ERROR, linger
from palimpsest.api.replies import raw_reply
from palimpsest.core.text.fence import sendable
from palimpsest.errors import (
    AnswerNotStored,
    Conflict,
    PalimpsestError,
    QuotaExceeded,
    UnsupportedCoding,
)
from palimpsest.proxy.incoming import Receive, Send
from palimpsest.upstream.decoding import DECODABLE

_log = structlog.get_logger("palimpsest.problems")


def problem_body(error: PalimpsestError) -> bytes:
    """The OpenAI error object: message, type, param, code; what cannot be written as UTF-8 is replaced."""
    return msgspec.json.encode(
        {
            "error": {
                "message": sendable(error.message),
                "type": error.type,
                "param": None if error.param is None else sendable(error.param),
                "code": error.code,
            }
        }
    )


def problem_headers(error: PalimpsestError, request_id: str = "") -> list[tuple[bytes, bytes]]:
    """The headers of an error; `x-should-retry: false` where a retry cannot help, which the SDKs obey.

    `x-request-id`, which SDKs put into their exceptions, is the exchange's id or a new one. For an
    unsupported coding `accept-encoding` lists the supported ones (RFC 9110, 12.5.3). A used-up quota has
    both: no client waits until midnight, but a person may want to know. One that is only reserved is tried
    again.
    """
    ident = request_id or new_request_id()
    headers = [(b"content-type", b"application/json"), (b"x-request-id", ident.encode())]
    if isinstance(error, UnsupportedCoding):
        headers.append((b"accept-encoding", ", ".join(sorted(DECODABLE)).encode()))
    is_settled = error.status < 500 and not isinstance(error, Conflict)
    if isinstance(error, QuotaExceeded):
        is_settled = error.is_used
        headers.append((b"retry-after", str(error.retry_seconds).encode()))
    if is_settled or isinstance(error, AnswerNotStored):
        headers.append((b"x-should-retry", b"false"))
    elif error.status in (409, 503):
        headers.append((b"retry-after", b"1"))
    return headers


def problem_reply(error: PalimpsestError, more: Mapping[str, str] | None = None) -> Response:
    """The response to an error, with `more` headers."""
    headers = {name.decode(): value.decode() for name, value in problem_headers(error)}
    return raw_reply(problem_body(error), error.status, headers | dict(more or {}))


def new_request_id() -> str:
    """A new id for a request that is no exchange."""
    return str(uuid_utils.uuid7())


async def send_problem(
    send: Send, error: PalimpsestError, request_id: str = "", unread: Receive | None = None
) -> None:
    """Send the whole response of an error raised before anything was sent.

    `unread` receives the rest of the request's body, which the client may still be sending. The response is
    sent at once with `connection: close`, and the rest is discarded for a while: closing at once would reset
    the connection, and the response could be lost (RFC 9112, 9.6).
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


def unexpected(error: Exception) -> PalimpsestError:
    """The error shown to the client for a bug; the log gets its type and place, never its message."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = f"{frame.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.tb_lineno}" if frame else "?"
    _log.error("bug", error=type(error).__name__, place=place)
    return PalimpsestError("The proxy failed unexpectedly; nothing that was recorded is lost.")
