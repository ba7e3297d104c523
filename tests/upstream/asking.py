"""The smallest exchange, and waiting for what a test made happen."""

from __future__ import annotations

import asyncio
from typing import Any

from palimpsest.settings.upstreams import UpstreamSettings
from palimpsest.upstream.client import Upstream

from tests.upstream.scripted import Scripted

JSON = [(b"Content-Type", b"application/json")]


def at(url: str, queue_seconds: float = 30.0, **how: Any) -> Upstream:
    return Upstream(url, UpstreamSettings(**how), queue_seconds=queue_seconds)


def opened(server: Scripted, **how: Any) -> Upstream:
    return at(f"{server.url}/v1", **how)


async def whole(upstream: Upstream, method: str = "POST", path: str = "/chat", body: bytes = b"{}") -> bytes:
    async with upstream.open(method, path, JSON, body or None) as answer:
        return await answer.read(1_000_000)


async def until(condition: asyncio.Event) -> None:
    await asyncio.wait_for(condition.wait(), 10)
