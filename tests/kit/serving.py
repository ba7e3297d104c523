"""ASGI applications on real sockets, in the test's own event loop.

Knows nothing of what they serve.
"""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from palimpsest.tokenizer.counting import Tokenizer

# Between two looks whether all answers have ended.
_LOOK_SECONDS = 0.002


@functools.cache
def shared_tokenizer() -> Tokenizer:
    """One for all proxies of a test run."""
    return Tokenizer()


class _Server(uvicorn.Server):
    """uvicorn's, without its naps: 0.1 s between two looks whether it shall stop, and 0.1 s in every stop.

    A thousand tests stop two servers each.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.stopping = asyncio.Event()

    async def main_loop(self) -> None:
        """Waits until it is told to stop."""
        await self.on_tick(0)
        await self.stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answers under way end, or are cut off; then the application closes."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        for _ in range(round((self.config.timeout_graceful_shutdown or 0) / _LOOK_SECONDS)):
            if not (self.server_state.connections or self.server_state.tasks):
                break
            await asyncio.sleep(_LOOK_SECONDS)
        for task in self.server_state.tasks:
            task.cancel()
        await self.lifespan.shutdown()


@asynccontextmanager
async def served(app: Any, *, lifespan: str = "on") -> AsyncIterator[str]:
    """The application's address (`http://127.0.0.1:port`) while it runs."""
    # Only with the protocol named does asyncio turn Nagle's algorithm off: 44 ms a request otherwise.
    with socket.socket(proto=socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            app,
            lifespan=lifespan,  # type: ignore[arg-type]
            loop="none",
            http="httptools",
            ws="none",
            # As where it is served: what a front end says is the program's own to read.
            proxy_headers=False,
            access_log=False,
            log_level="error",
            timeout_graceful_shutdown=5,
            # A server that closes an idle connection just when it is used again is not what is tested.
            timeout_keep_alive=60,
        )
        async with listening_on(listening, config):
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"


async def _serving(server: _Server, listening: socket.socket) -> None:
    try:
        await server.serve(sockets=[listening])
    except SystemExit as left:
        # It would leave the loop in the middle of a test, and with it the fixtures of every later one.
        raise RuntimeError("The server did not start.") from left


@asynccontextmanager
async def listening_on(listening: socket.socket, config: uvicorn.Config) -> AsyncIterator[None]:
    """What `config` describes answers on this socket while it runs."""
    server = _Server(config)
    task = asyncio.ensure_future(_serving(server, listening))
    try:
        while not server.started:
            if task.done():
                task.result()
                raise RuntimeError("the server did not start")
            await asyncio.sleep(0.001)
        yield
    finally:
        server.stopping.set()
        await task
