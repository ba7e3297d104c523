"""What a request pays for routing, before anything is done with it: python -m benchmarks routing

The same handler reads a body and answers it: found by its path alone, as `app/palimpsest/api/front.py` finds
the chat, and behind FastAPI. ASGI calls in one process, without a server; processor time, the best of five.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from time import process_time
from typing import Any

from fastapi import FastAPI, Request, Response

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]
PATH = "/v1/chat/completions"
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Is the harbour open?"}]}).encode()
HEADERS = [
    (b"host", b"127.0.0.1:8000"),
    (b"content-type", b"application/json"),
    (b"authorization", b"Bearer k"),
]
ROUNDS = 5


async def directly(scope: Any, receive: Receive, send: Send) -> None:
    """The handler, chosen by a look at the path."""
    assert scope["path"] == PATH
    await receive()
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})


def routed() -> App:
    """The same behind FastAPI, with a request and a response object."""
    app = FastAPI()

    @app.post(PATH)
    async def chat(request: Request) -> Response:
        await request.body()
        return Response(BODY, media_type="application/json")

    return app


async def microseconds(app: App, requests: int) -> float:
    """Processor time of one request."""

    async def receive() -> Message:
        return {"type": "http.request", "body": BODY, "more_body": False}

    async def send(_: Message) -> None:
        return

    begun = process_time()
    for _ in range(requests):
        scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
                 "path": PATH, "raw_path": PATH.encode(), "query_string": b"", "root_path": "",
                 "scheme": "http", "headers": HEADERS, "client": None, "server": None}  # fmt: skip
        await app(scope, receive, send)
    return (process_time() - begun) / requests * 1e6


def main() -> None:
    """Print the figures."""
    given = argparse.ArgumentParser()
    given.add_argument("--requests", type=int, default=20_000)
    requests = given.parse_args().requests
    for name, app in (("by its path", directly), ("behind FastAPI", routed())):
        best = min(asyncio.run(microseconds(app, requests // ROUNDS)) for _ in range(ROUNDS))
        print(f"{best:8.1f} us  {name}")


if __name__ == "__main__":
    main()
