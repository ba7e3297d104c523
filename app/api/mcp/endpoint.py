"""The endpoint `/mcp`: the recall tools for MCP clients, with the same access as under `/api`.

Loads what speaks MCP when the first request comes. Knows nothing of how entries are found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any

import structlog
from fastapi import APIRouter

from app.api.callers import asking_of
from app.core.recall.tools.arguments import Unreadable, read_call
from app.core.recall.tools.results import error_result
from app.core.wire.json_text import encoded
from app.errors import InvalidParameter, NotFound, RecallDisabled, StoreError
from app.proxy.access.access import Access
from app.proxy.archive import Archive
from app.proxy.asgi import Receive, Scope, Send
from app.proxy.recall.searching import Where
from app.proxy.recall.tools import Asking, RecallTools

_log = structlog.get_logger("palimpsest.recall")


class McpPages:
    """One for the application. The session is named by the argument `session`; else the newest is meant."""

    def __init__(self, access: Access, archive: Archive, tools: RecallTools) -> None:
        self._access = access
        self._archive = archive
        self._tools = tools

    def on(self, own: APIRouter) -> None:
        """The route is registered."""
        own.add_route("/mcp", self, methods=["POST"])  # type: ignore[arg-type]  # an ASGI application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request of a caller whom the chat would let in too."""
        caller = await self._access.caller_of(asking_of(scope))
        # Not in the loop: the first time it takes a second.
        http = await asyncio.to_thread(import_module, "app.api.mcp.http")
        told = await self._tools.is_exposed(caller.namespace)
        await http.answer(partial(self.call, caller.namespace), told, scope, receive, send)

    async def call(self, namespace: str, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """The result as JSON text, and whether it is an error; nothing a model writes is raised."""
        asked = read_call(name, encoded(arguments).decode())
        if isinstance(asked, Unreadable):
            return _error(asked.code, asked.message)
        session = arguments.get("session")
        try:
            wanted = session if isinstance(session, str) and session else await self._tools.newest(namespace)
            if wanted is None:
                return _error("not_found", "Nothing is stored for this key yet.")
            place = await self._archive.place(namespace, wanted, None)
            where = Where(namespace, place.row.id, place.chain)
            return encoded(await self._tools.answered(where, asked, Asking("mcp"))).decode(), False
        except (NotFound, InvalidParameter, RecallDisabled) as error:
            return _error(error.code, error.message)
        except StoreError as error:
            _log.warning("recall_failed", error=type(error).__name__, tool=name)
            return _error(error.code, "The archive could not be read; try again.")


def _error(code: str, message: str) -> tuple[str, bool]:
    return encoded(error_result(Unreadable(code, message))).decode(), True
