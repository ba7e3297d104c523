"""The recall tools as a stateless MCP server over streamable HTTP.

Imported at the first MCP request: the SDK takes a second to load.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any

from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from palimpsest.api.callers import ORDER_BYTES
from palimpsest.core.recall.tool_calls import for_clients
from palimpsest.proxy.incoming import Receive, Scope, Send

# Takes a tool's name and arguments; returns the result as JSON text, and whether it is an error.
Calls = Callable[[str, Mapping[str, Any]], Awaitable[tuple[str, bool]]]
_INSTRUCTIONS = (
    "Conversations that went through this proxy, word for word. Search with context_grep, then read what it "
    "names with context_describe. Both only read."
)


def server_of(calls: Calls, *, is_exposed: bool = True) -> Server[Any]:
    """A server of two read-only tools whose calls `calls` answers; it lists them where `is_exposed`."""

    async def listed(_: object, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[_tool(one) for one in for_clients()] if is_exposed else [])

    async def called(_: object, params: CallToolRequestParams) -> CallToolResult:
        text, is_error = await calls(params.name, params.arguments or {})
        return CallToolResult(content=[TextContent(text=text)], is_error=is_error)

    return Server(
        "palimpsest",
        version=version("palimpsest"),
        instructions=_INSTRUCTIONS,
        on_list_tools=listed,
        on_call_tool=called,
    )


def _tool(described: Mapping[str, Any]) -> Tool:
    return Tool(
        name=described["name"],
        description=described["description"],
        input_schema=described["parameters"],
        annotations=ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False),
    )


async def answer(calls: Calls, is_exposed: bool, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer the request as JSON; `calls` runs the caller's tool calls, listed if `is_exposed`."""
    manager = StreamableHTTPSessionManager(
        server_of(calls, is_exposed=is_exposed),
        json_response=True,
        stateless=True,
        max_request_body_size=ORDER_BYTES,
        # The front door has checked Host and Origin.
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    async with manager.run():
        await manager.handle_request(scope, receive, send)
