"""The endpoint of what an exchange answers, chat completions and responses: reads headers and body only.

A raw ASGI application; what a request means is decided in `app.proxy.exchange`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from app.api.body import read_body
from app.api.front import target_of
from app.api.logged import entry_of
from app.errors import ClientLeft
from app.proxy.asgi import Receive, Scope, Send
from app.proxy.client import Client
from app.proxy.incoming import Incoming


class Exchanges(Protocol):
    """What answers a chat request."""

    async def answer(self, incoming: Incoming, client: Client) -> None:
        """The exchange, to its end."""


class ChatEndpoint:
    """POST /v1/chat/completions, /v1/responses.

    A body has at most `body_bytes`, and stands still for at most `body_idle_seconds`.
    """

    def __init__(
        self, exchanges: Exchanges, new_id: Callable[[], str], *, body_bytes: int, body_idle_seconds: float
    ) -> None:
        self._exchanges = exchanges
        self._new_id = new_id
        self._body_bytes = body_bytes
        self._body_idle_seconds = body_idle_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One exchange; when the client leaves, it is cancelled and stored as incomplete."""
        scope["palimpsest.exchange"] = self._new_id()
        try:
            body = await read_body(scope, receive, self._body_bytes, self._body_idle_seconds)
        except ClientLeft:
            return
        incoming = Incoming(
            method="POST",
            target=target_of(scope),
            headers=scope["headers"],
            body=body,
            path_session=scope["palimpsest.session"],
            wire=scope["palimpsest.wire"],
            ident=scope["palimpsest.exchange"],
        )
        async with Client(receive, send, entry_of(scope)).attended() as client:
            await self._exchanges.answer(incoming, client)
