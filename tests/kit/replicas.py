"""Several server processes on one PostgreSQL database, in front of a scripted model server.

async with replicated(ModelServer(window=4_000), tmp_path) as both:
    chat = both.chat()
    await chat.says("answered by the first")
    await chat.says("answered by the second")
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from palimpsest.storage.migrate import migrate

from benchmarks.kill_loop import Server, server
from tests.kit.chat import Chat
from tests.kit.model import ModelServer
from tests.kit.postgres import empty_database, server_address
from tests.kit.serving import served

# Whoever asks on and on takes the CPU of those that are to change what he asks for.
_PAUSE_SECONDS = 0.02
_ASKED = 3_000


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """It holds by now; within a minute."""
    for _ in range(_ASKED):
        if await holds():
            return
        await asyncio.sleep(_PAUSE_SECONDS)
    raise AssertionError("it never held")


class Switch(httpx.AsyncBaseTransport):
    """Carries each request to the server whose turn it is: a load balancer without a memory.

    Only POSTs move the turn on, so that reading something back changes nothing.
    """

    def __init__(self, urls: list[str]) -> None:
        self._urls = [httpx.URL(url) for url in urls]
        self._sending = httpx.AsyncHTTPTransport(verify=False)
        self.turn = 0
        self.only: int | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The answer of the server that is next, or of the `only` one."""
        at = self.turn % len(self._urls) if self.only is None else self.only
        if request.method == "POST" and self.only is None:
            self.turn += 1
        url = self._urls[at]
        request.url = request.url.copy_with(host=url.host, port=url.port)
        request.headers["host"] = url.netloc.decode()
        return await self._sending.handle_async_request(request)

    async def aclose(self) -> None:
        """No connection is left."""
        await self._sending.aclose()


@dataclass
class Replicas:
    """Running servers. `clients` speak to one each, `http` to each in turn."""

    model: ModelServer
    servers: list[Server]
    clients: list[httpx.AsyncClient]
    http: httpx.AsyncClient
    switch: Switch
    database: str
    started: Callable[[], AbstractAsyncContextManager[Server]]

    def chat(self, at: int | None = None, **options: Any) -> Chat:
        """A client of the server `at`, or of all of them in turn; options as in `Chat`."""
        return Chat(self.http if at is None else self.clients[at], **options)

    @asynccontextmanager
    async def one_more(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client of a third server, while that runs. It stops as it is told to."""
        async with (
            self.started() as running,
            httpx.AsyncClient(base_url=running.url, timeout=60, trust_env=False, verify=False) as http,
        ):
            yield http
            running.process.terminate()
            await running.process.wait()


@asynccontextmanager
async def replicated(
    model: ModelServer,
    folder: Path,
    environment: dict[str, str] | None = None,
    *,
    window: int | None = 4_000,
    shares: bool = True,
) -> AsyncIterator[Replicas]:
    """Two processes of `palimpsest serve`; `environment` are settings as the environment names them.

    `window` None: it is found out. Without `shares` each has a database of its own, which is wrong: for
    controls.
    """
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(served(model, lifespan="off"))
        databases = [
            await stack.enter_async_context(empty_database(server_address()))
            for _ in range(1 if shares else 2)
        ]
        for database in databases:
            await migrate(database)

        def started(database: str = databases[0]) -> AbstractAsyncContextManager[Server]:
            settings = {"PALIMPSEST_DATABASE__URL": database, **(environment or {})}
            return server(folder, upstream, window, **settings)

        servers = [
            await stack.enter_async_context(started(database)) for database in (databases[0], databases[-1])
        ]
        switch = Switch([running.url for running in servers])
        clients = [
            await stack.enter_async_context(
                httpx.AsyncClient(base_url=running.url, timeout=60, trust_env=False, verify=False)
            )
            for running in servers
        ]
        http = await stack.enter_async_context(
            httpx.AsyncClient(base_url="http://localhost", transport=switch, timeout=60, verify=False)
        )
        yield Replicas(model, servers, clients, http, switch, databases[0], started)
