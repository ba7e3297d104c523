"""The proxy as it would be if it could not tell pages from programs: the control of tests about browsers.

Knows nothing of what pages try.
"""

from __future__ import annotations

from typing import Any

# What a browser tells of itself and of the page that asks.
_TOLD = (b"origin", b"referer")


def blind(app: Any) -> Any:
    """`app`, to which every request looks like a program's JSON, and whose answers any page may read."""

    async def blinded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        headers = scope["headers"]
        kept = [(n, v) for n, v in headers if n not in (*_TOLD, b"host") and not n.startswith(b"sec-fetch-")]
        asked = [(n, v) for n, v in kept if not n.startswith(b"access-control-") and n != b"content-type"]
        as_program = [*asked, (b"host", b"localhost"), (b"content-type", b"application/json")]
        cors = [
            (b"access-control-allow-origin", b"*"),
            (b"access-control-allow-headers", b"*"),
            (b"access-control-allow-methods", b"*"),
            (b"access-control-expose-headers", b"*"),
        ]

        async def shared(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *cors]}
            await send(message)

        if scope["method"] == "OPTIONS":
            await shared({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body"})
            return
        await app({**scope, "headers": as_program}, receive, shared)

    return blinded
