"""The smallest exchange, and waiting for what a test made happen."""

from __future__ import annotations

import asyncio

from palimpsest.upstream.client import Upstream, UpstreamOptions

from tests.upstream.scripted import Scripted

SSE = [b"data: %d\n\n" % n for n in range(50)]


JSON = [(b"Content-Type", b"application/json")]


def options(server: Scripted, **changes: object) -> UpstreamOptions:
    return UpstreamOptions(base_url=server.url + "/v1", **changes)  # type: ignore[arg-type]


async def whole(upstream: Upstream, method: str = "POST", path: str = "/chat", body: bytes = b"{}") -> bytes:
    async with upstream.open(method, path, JSON, body or None) as answer:
        return await answer.read(1_000_000)


async def until(condition: asyncio.Event) -> None:
    await asyncio.wait_for(condition.wait(), 10)
