"""A running proxy's own endpoints, as a command of this program asks them.

Knows nothing of what is asked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from app.core.wire.json_text import encoded
from app.errors import UpstreamTimeout, UpstreamUnreachable
from app.upstream.http import Reply

# A search waits up to ten seconds for the index, and then reads.
_SECONDS = 30.0
# Erasing waits up to two minutes for the database, and then a little for its files.
_ERASE_SECONDS = 150.0


class OwnApi:
    """A proxy at an address; made by `own_api`."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def post(self, path: str, order: Mapping[str, Any]) -> Reply:
        """The answer of `/api/{path}`, whatever its status. UpstreamError when none comes."""
        return await self._answer(self._http.build_request("POST", f"/api/{path}", content=encoded(order)))

    async def get(self, path: str) -> Reply:
        """As `post`."""
        return await self._answer(self._http.build_request("GET", f"/api/{path}"))

    async def delete(self, path: str) -> Reply:
        """As `post`, after minutes if need be."""
        request = self._http.build_request("DELETE", f"/api/{path}", timeout=_ERASE_SECONDS)
        return await self._answer(request)

    async def _answer(self, request: httpx.Request) -> Reply:
        try:
            reply = await self._http.send(request)
        except httpx.TimeoutException:
            raise UpstreamTimeout("The proxy did not answer in time.") from None
        except httpx.HTTPError:
            raise UpstreamUnreachable("The proxy cannot be reached.") from None
        return Reply(reply.status_code, tuple(reply.headers.raw), reply.content)


@asynccontextmanager
async def own_api(url: str, key: str | None) -> AsyncIterator[OwnApi]:
    """The proxy at `url`, a base URL with or without `/v1`; `key` decides whose conversations there are."""
    headers = {"content-type": "application/json"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    base = url.rstrip("/").removesuffix("/v1")
    async with httpx.AsyncClient(base_url=base, headers=headers, timeout=_SECONDS) as http:
        yield OwnApi(http)
