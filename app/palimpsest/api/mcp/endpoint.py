"""The endpoint `/mcp`: the recall tools for MCP clients, with the same access as under `/api`.

The MCP SDK is loaded at the first request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any

import structlog
from fastapi import APIRouter

from palimpsest.api.body import read_body
from palimpsest.api.callers import ORDER_BYTES, ORDER_SECONDS, ApiParts
from palimpsest.core.recall.tool_calls import UnreadableCall, read_call
from palimpsest.core.recall.tool_results import error_result
from palimpsest.core.wire.json_text import encoded
from palimpsest.errors import InvalidParameter, NotFound, NotInstalled, RecallDisabled, StoreError
from palimpsest.proxy.incoming import ASGIMessage, Receive, Scope, Send, asking_of
from palimpsest.proxy.recall.tools import ToolCaller, Where

_log = structlog.get_logger("palimpsest.recall")


class McpPages:
    """The endpoint. The tools' argument `session` names the session; the default is the newest."""

    def __init__(self, parts: ApiParts) -> None:
        self._parts = parts

    def on(self, own: APIRouter) -> None:
        """Register the route."""
        own.add_route("/mcp", self, methods=["POST"])  # type: ignore[arg-type]  # an ASGI application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; callers are authenticated as on the chat endpoints."""
        caller = await self._parts.access.caller_of(asking_of(scope))
        # On another thread: the first import takes a second.
        try:
            http = await asyncio.to_thread(import_module, "palimpsest.api.mcp.server")
        except ModuleNotFoundError:
            raise NotInstalled(
                "MCP needs an extra: pip install 'palimpsest[mcp]', and start again."
            ) from None
        # Read here, so that one that is too large is refused as everywhere.
        body = await read_body(scope, receive, ORDER_BYTES, ORDER_SECONDS)
        is_exposed = await self._parts.recall.is_exposed(caller.namespace)
        arrived = _arrived(body, receive)
        await http.answer(partial(self.call, caller.namespace), is_exposed, scope, arrived, send)

    async def call(self, namespace: str, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """The result as JSON text, and whether it is an error; no input of a model raises."""
        asked = read_call(name, encoded(arguments).decode())
        if isinstance(asked, UnreadableCall):
            return error_result(asked.code, asked.message), True
        session = arguments.get("session")
        parts = self._parts
        try:
            if not (isinstance(session, str) and session):
                session = await parts.recall.newest(namespace)
            if session is None:
                return error_result("not_found", "Nothing is stored for this key yet."), True
            place = await parts.archive.place(namespace, session, None)
            where = Where(namespace, place.row.id, place.chain)
            return encoded(await parts.recall.answered(where, asked, ToolCaller("mcp"))).decode(), False
        except (NotFound, InvalidParameter, RecallDisabled) as error:
            return error_result(error.code, error.message), True
        except StoreError as error:
            _log.warning("recall_failed", error=type(error).__name__, tool=name)
            return error_result(error.code, "The archive could not be read; try again."), True


def _arrived(body: bytes, receive: Receive) -> Receive:
    """What gives the body, and then whether the client is still there."""
    messages: list[ASGIMessage] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> ASGIMessage:
        return messages.pop() if messages else await receive()

    return again
