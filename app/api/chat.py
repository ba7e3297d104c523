"""The endpoint of what an exchange answers, chat completions and responses: reads headers and body only.

A raw ASGI application; what a request means is decided in `app.proxy.exchange`.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from app.api.body import read_body
from app.api.front import target_of
from app.api.logged import entry_of
from app.errors import ClientLeft, RequestTimeout
from app.proxy.asgi import Receive, Scope, Send
from app.proxy.client import Client
from app.proxy.incoming import Incoming


class Exchanges(Protocol):
    """What answers a chat request."""

    async def answer(self, incoming: Incoming, client: Client) -> None:
        """The exchange, to its end."""


class ChatEndpoint:
    """POST /v1/chat/completions, /v1/responses. `body_bytes`, `body_seconds` bound what a client may send."""

    def __init__(self, exchanges: Exchanges, *, body_bytes: int, body_seconds: float) -> None:
        self._exchanges = exchanges
        self._body_bytes = body_bytes
        self._body_seconds = body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One exchange; when the client leaves, it is cancelled and stored as incomplete."""
        try:
            async with asyncio.timeout(self._body_seconds):
                body = await read_body(receive, self._body_bytes)
        except ClientLeft:
            return
        except TimeoutError:
            raise RequestTimeout("The request's body did not arrive in time.") from None
        incoming = Incoming(
            method="POST",
            target=target_of(scope),
            headers=scope["headers"],
            body=body,
            path_session=scope["palimpsest.session"],
            wire=scope["palimpsest.wire"],
        )
        async with Client(receive, send, entry_of(scope)).attended() as client:
            await self._exchanges.answer(incoming, client)
