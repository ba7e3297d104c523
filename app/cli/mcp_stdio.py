"""`palimpsest mcp`: the recall tools on standard input and output, answered by a running proxy.

Opens no database: whoever may ask the proxy by HTTP may ask it here, and nobody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from mcp.server.stdio import stdio_server

from app.api.mcp.server import server_of
from app.core.recall.tool_schemas import DESCRIBE, GREP, for_clients
from app.core.recall.tools.arguments import Unreadable
from app.core.recall.tools.results import error_result
from app.core.wire.json_text import encoded
from app.errors import UpstreamError
from app.upstream.own_api import OwnApi, own_api

_PATHS: Mapping[str, str] = {GREP: "context/grep", DESCRIBE: "context/describe"}
# What a tool takes; the endpoint behind it takes more, which is not a model's to ask for (rule 28).
_TAKEN: Mapping[str, frozenset[str]] = {
    tool["name"]: frozenset(tool["parameters"]["properties"]) for tool in for_clients()
}
_OK = 200


async def serve_stdio(url: str, key: str | None) -> None:
    """Answers until standard input ends."""
    async with own_api(url, key) as proxy, stdio_server() as (reading, writing):
        server = server_of(partial(_call, proxy))
        await server.run(reading, writing, server.create_initialization_options())


async def _call(proxy: OwnApi, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
    """What the proxy answers, as it answers it; that it cannot be reached is an error of the tool."""
    path = _PATHS.get(name)
    if path is None:
        return _error("unknown_tool", f"There is no tool of this name; there are {GREP} and {DESCRIBE}.")
    taken = {field: value for field, value in arguments.items() if field in _TAKEN[name]}
    try:
        reply = await proxy.post(path, {**taken, "via": "mcp"})
    except UpstreamError as error:
        return _error(error.code, error.message)
    return reply.body.decode("utf-8", "replace"), reply.status != _OK


def _error(code: str, message: str) -> tuple[str, bool]:
    return encoded(error_result(Unreadable(code, message))).decode(), True
