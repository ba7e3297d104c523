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

from app.tokenizer.counting import Tokenizer


@functools.cache
def shared_tokenizer() -> Tokenizer:
    """One for all proxies of a test run."""
    return Tokenizer()


@asynccontextmanager
async def served(app: Any, *, lifespan: str = "on") -> AsyncIterator[str]:
    """The application's address (`http://127.0.0.1:port`) while it runs."""
    # Only with the protocol named does asyncio turn Nagle's algorithm off: 44 ms a request otherwise.
    listening = socket.socket(proto=socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        lifespan=lifespan,  # type: ignore[arg-type]
        loop="none",
        http="httptools",
        ws="none",
        access_log=False,
        log_level="error",
        timeout_graceful_shutdown=5,
        # A server that closes an idle connection just when it is used again is not what is tested.
        timeout_keep_alive=60,
    )
    server = uvicorn.Server(config)
    task = asyncio.ensure_future(server.serve(sockets=[listening]))
    try:
        while not server.started:
            if task.done():
                task.result()
                raise RuntimeError("the server did not start")
            await asyncio.sleep(0.001)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listening.close()
