"""What the modules of this folder share: one browser, and a server of other people's pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from tests.kit.serving import served

# Names that lead to this machine, as an attacker's do after DNS rebinding.
NAMES = ("evil.test", "rebound.test", "app.test")
_RULES = ",".join(f"MAP {name} 127.0.0.1" for name in NAMES)
# Chromium's own protection of loopback is not ours, and other browsers have none.
_UNGUARDED = "BlockInsecurePrivateNetworkRequests,LocalNetworkAccessChecks,PrivateNetworkAccessSendPreflights"
_ARGUMENTS = ("--no-sandbox", f"--host-resolver-rules={_RULES}", f"--disable-features={_UNGUARDED}")


@dataclass
class Elsewhere:
    """Another web server; every path is an empty page."""

    port: int

    def url(self, name: str) -> str:
        """The address of a page under one of `NAMES`."""
        return f"http://{name}:{self.port}/page"


async def _empty_page(scope: Any, receive: Any, send: Any) -> None:
    headers = [(b"content-type", b"text/html; charset=utf-8")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"<!doctype html><title>Elsewhere</title><body>"})


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path="/usr/bin/chromium", args=list(_ARGUMENTS))
        yield running
        await running.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def elsewhere() -> AsyncIterator[Elsewhere]:
    async with served(_empty_page, lifespan="off") as address:
        yield Elsewhere(int(address.rpartition(":")[2]))
