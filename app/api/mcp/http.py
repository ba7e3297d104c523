"""MCP over streamable HTTP: one POST is one exchange, nothing is remembered between two.

Imported when the first request comes, as `server.py`. Knows nothing of what tools do.
"""

from __future__ import annotations

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from app.api.callers import ORDER_BYTES
from app.api.mcp.server import Calls, server_of
from app.proxy.asgi import Receive, Scope, Send


async def answer(calls: Calls, is_exposed: bool, scope: Scope, receive: Receive, send: Send) -> None:
    """The request has its answer as JSON; `calls` is the caller's own, listed if `is_exposed`."""
    manager = StreamableHTTPSessionManager(
        server_of(calls, is_exposed=is_exposed),
        json_response=True,
        stateless=True,
        max_request_body_size=ORDER_BYTES,
        # The front door has looked at the host and at the page that asks.
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    async with manager.run():
        await manager.handle_request(scope, receive, send)
