"""Looks on while a request under /v1 is answered, and has it logged at its end.

Knows nothing of what is asked; whoever answers adds what it knows to the entry in the scope.
"""

from __future__ import annotations

from app.proxy.asgi import ASGIApp, ASGIMessage, Receive, Scope, Send
from app.proxy.request_log import RequestEntry, RequestLog, printable

# Where the entry stands in a scope, and an error of ours in the message that tells of it.
ENTRY = "palimpsest.entry"
ERROR = "palimpsest.error"


class LoggedRequests:
    """An ASGI application around another one: requests for other paths are not its business."""

    def __init__(self, app: ASGIApp, log: RequestLog) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The request is answered; its line follows."""
        if scope["type"] != "http" or not scope["path"].startswith(("/v1/", "/s/")):
            await self._app(scope, receive, send)
            return
        entry = scope[ENTRY] = RequestEntry(method=printable(scope["method"]), path=_path(scope["path"]))
        self._log.begun()
        try:
            await self._app(scope, _hearing(entry, receive), _seeing(entry, send))
        finally:
            if scope.get("palimpsest.wire"):
                entry.event = "exchange"
            self._log.note(entry)


def entry_of(scope: Scope) -> RequestEntry:
    """The request's entry; one that nobody reads where requests are not logged."""
    entry = scope.get(ENTRY)
    return entry if isinstance(entry, RequestEntry) else RequestEntry()


def _path(path: str) -> str:
    """Without the name of a session, which is somebody's words."""
    return printable("/v1/" + path.partition("/v1/")[2] if path.startswith("/s/") else path)


def _hearing(entry: RequestEntry, receive: Receive) -> Receive:
    async def heard() -> ASGIMessage:
        message = await receive()
        if message["type"] == "http.disconnect" and entry.end != "whole":
            entry.end = "left"
        return message

    return heard


def _seeing(entry: RequestEntry, send: Send) -> Send:
    async def seen(message: ASGIMessage) -> None:
        if message["type"] == "http.response.start":
            entry.status = message["status"]
            entry.request_id = _request_id(message)
            if error := message.pop(ERROR, None):
                entry.failed(error)
        elif message["type"] == "http.response.body":
            entry.bytes += len(message.get("body", b""))
            if not message.get("more_body", False) and entry.end != "left":
                entry.end = "whole"
        await send(message)

    return seen


def _request_id(message: ASGIMessage) -> str | None:
    for name, value in message.get("headers", ()):
        if name.lower() == b"x-request-id":
            return printable(value.decode("latin-1"), 100)
    return None
