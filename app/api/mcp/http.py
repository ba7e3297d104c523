"""MCP over streamable HTTP: one POST is one exchange, nothing is remembered between two.

Imported when the first request comes, as `server.py`. Knows nothing of what tools do.
"""

from __future__ import annotations

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from app.api.callers import ORDER_BYTES
from app.api.mcp.server import Calls, server_of
from app.proxy.asgi import Receive, Scope, Send

# A browser names the page that asks: one of another host must not read what a caller without a key may.
_ORIGINS = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"]


async def answer(calls: Calls, is_exposed: bool, scope: Scope, receive: Receive, send: Send) -> None:
    """The request has its answer as JSON; `calls` is the caller's own, listed if `is_exposed`."""
    manager = StreamableHTTPSessionManager(
        server_of(calls, is_exposed=is_exposed),
        json_response=True,
        stateless=True,
        max_request_body_size=ORDER_BYTES,
        security_settings=TransportSecuritySettings(
            allowed_hosts=_hosts(scope),
            allowed_origins=_ORIGINS,
        ),
    )
    async with manager.run():
        await manager.handle_request(scope, receive, send)


def _hosts(scope: Scope) -> list[str]:
    """The host that was asked: whoever runs the proxy decides under which names it is reached."""
    return [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
