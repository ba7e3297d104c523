"""`palimpsest mcp`: the recall tools on standard input and output, answered by a running proxy.

It calls the proxy by HTTP and opens no database, so the key's access is the same as there.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from mcp.server.stdio import stdio_server

from palimpsest.api.mcp.server import server_of
from palimpsest.core.recall.tool_calls import DESCRIBE, GREP, for_clients
from palimpsest.core.recall.tool_results import error_result
from palimpsest.errors import UpstreamError
from palimpsest.upstream.own_api import OwnApi

_PATHS: Mapping[str, str] = {GREP: "context/grep", DESCRIBE: "context/describe"}
# The parameters of each tool; the endpoint accepts more, which models may not set (rule 28).
_TAKEN: Mapping[str, frozenset[str]] = {
    tool["name"]: frozenset(tool["parameters"]["properties"]) for tool in for_clients()
}
_OK = 200


async def serve_stdio(proxy: OwnApi) -> None:
    """Serve until standard input ends."""
    try:
        async with stdio_server() as (reading, writing):
            server = server_of(partial(_call, proxy))
            await server.run(reading, writing, server.create_initialization_options())
    except* BrokenPipeError:
        # The client has left.
        pass
    except* OSError as failures:
        first: BaseException = failures
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None


async def _call(proxy: OwnApi, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
    """The proxy's response unchanged; a proxy that cannot be reached is a tool error."""
    path = _PATHS.get(name)
    if path is None:
        said = f"There is no tool of this name; there are {GREP} and {DESCRIBE}."
        return error_result("unknown_tool", said), True
    taken = {field: value for field, value in arguments.items() if field in _TAKEN[name]}
    try:
        reply = await proxy.answer(path, "POST", {**taken, "via": "mcp"})
    except UpstreamError as error:
        return error_result(error.code, error.message), True
    return reply.content.decode("utf-8", "replace"), reply.status_code != _OK
