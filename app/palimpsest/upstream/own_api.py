"""A client for the `/api` endpoints of a running proxy, for this program's commands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from palimpsest.core.wire.json_text import decoded, encoded
from palimpsest.errors import InvalidJson, NotFound, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from palimpsest.upstream.http import HttpReply

# A search waits up to ten seconds for the index before it reads.
_SECONDS = 30.0
_OK, _UNKNOWN = 200, 404
# Erasing waits up to two minutes for the database, and a little longer for its files.
_ERASE_SECONDS = 150.0


class OwnApi:
    """A proxy's endpoints; made by `own_api`."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def post(self, path: str, order: Mapping[str, Any]) -> HttpReply:
        """The answer of `POST /api/{path}`, whatever its status. Raises UpstreamError without one."""
        return await self._answer(self._http.build_request("POST", f"/api/{path}", content=encoded(order)))

    async def get(self, path: str) -> HttpReply:
        """As `post`, with GET."""
        return await self._answer(self._http.build_request("GET", f"/api/{path}"))

    async def delete(self, path: str) -> HttpReply:
        """As `post`, with DELETE; may take minutes."""
        request = self._http.build_request("DELETE", f"/api/{path}", timeout=_ERASE_SECONDS)
        return await self._answer(request)

    async def _answer(self, request: httpx.Request) -> HttpReply:
        try:
            reply = await self._http.send(request)
        except httpx.TimeoutException:
            raise UpstreamTimeout("The proxy did not answer in time.") from None
        except httpx.HTTPError:
            raise UpstreamUnreachable("The proxy cannot be reached.") from None
        return HttpReply(reply.status_code, tuple(reply.headers.raw), reply.content)


def fields_of(reply: HttpReply) -> dict[str, Any]:
    """The object that the proxy answered. NotFound for a 404 of its own, else UpstreamError."""
    try:
        fields = decoded(reply.body)
    except InvalidJson:
        fields = None
    if reply.status == _OK and isinstance(fields, dict):
        return fields
    error = fields.get("error") if isinstance(fields, dict) else None
    said = error.get("message") if isinstance(error, dict) else None
    if reply.status == _UNKNOWN and said:
        raise NotFound(said)
    where = f"{error['param']}: " if isinstance(error, dict) and error.get("param") else ""
    raise UpstreamError(f"The proxy answered {reply.status}: {where}{said or 'nothing that can be read'}")


@asynccontextmanager
async def own_api(url: str, key: str | None) -> AsyncIterator[OwnApi]:
    """A client of the proxy at `url`, with or without `/v1`; `key` determines the namespace."""
    headers = {"content-type": "application/json"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    base = url.rstrip("/").removesuffix("/v1")
    async with httpx.AsyncClient(base_url=base, headers=headers, timeout=_SECONDS) as http:
        yield OwnApi(http)
