"""A relay between the proxy and the model that keeps the requests it passes on.

Knows nothing of what they say.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
from starlette.requests import Request
from starlette.responses import StreamingResponse

Json = dict[str, Any]


@dataclass
class Listening:
    """An ASGI application before the server at `url`; `bodies` are the chat requests, oldest first."""

    url: str
    http: httpx.AsyncClient
    bodies: list[Json] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request, and its answer piece by piece."""
        request = Request(scope, receive)
        body = await request.body()
        if request.url.path.endswith("/chat/completions"):
            self.bodies.append(json.loads(body))
        path = request.url.path.removeprefix("/v1")
        headers = {"content-type": "application/json"}
        passed = self.http.build_request(request.method, f"{self.url}{path}", content=body, headers=headers)
        reply = await self.http.send(passed, stream=True)

        async def pieces() -> AsyncIterator[bytes]:
            try:
                async for piece in reply.aiter_bytes():
                    yield piece
            finally:
                await reply.aclose()

        kind = {"content-type": reply.headers["content-type"]}
        await StreamingResponse(pieces(), reply.status_code, kind)(scope, receive, send)
