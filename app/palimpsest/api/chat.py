"""The endpoints below `/v1/`: recorded exchanges, and requests that are passed through unchanged."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from palimpsest.api.body import ArrivingBody, entry_of, read_body
from palimpsest.api.front import target_of
from palimpsest.errors import ClientLeft
from palimpsest.proxy.access import Access
from palimpsest.proxy.answering.passthrough import ModelList, Passthrough, Upload
from palimpsest.proxy.incoming import Incoming, Receive, Scope, Send
from palimpsest.proxy.quotas import Quotas
from palimpsest.proxy.reports import Client

# What asks no model: lists of models and files, also beyond a quota.
_FREE = frozenset({"GET", "HEAD"})


class ChatHandler(Protocol):
    """Answers chat requests."""

    async def answer(self, incoming: Incoming, client: Client) -> None:
        """Run the exchange to its end."""


@dataclass(frozen=True, slots=True)
class ChatEndpoint:
    """POST /v1/chat/completions and /v1/responses.

    A body has at most `body_bytes` and times out after `body_idle_seconds` without progress.
    """

    exchanges: ChatHandler
    new_id: Callable[[], str]
    body_bytes: int
    body_idle_seconds: float

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One exchange; when the client leaves, it is cancelled and stored as incomplete."""
        scope["palimpsest.exchange"] = self.new_id()
        try:
            body = await read_body(scope, receive, self.body_bytes, self.body_idle_seconds)
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
            credentials=scope["palimpsest.credentials"],
        )
        async with Client(receive, send, entry_of(scope)).attended() as client:
            await self.exchanges.answer(incoming, client)


@dataclass(frozen=True, slots=True)
class PassthroughEndpoint:
    """Any method and path. A body has any length and times out after `body_idle_seconds` without progress."""

    access: Access
    quotas: Quotas
    models: ModelList
    passthrough: Passthrough
    body_idle_seconds: float

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One exchange. A small body is read before the upstream is called; a large one is streamed."""
        upload = ArrivingBody(scope, receive, None, self.body_idle_seconds)
        try:
            first = await upload.piece()
            incoming = Incoming(
                method=scope["method"],
                target=target_of(scope),
                headers=scope["headers"],
                body=first if upload.finished else b"",
                path_session=None,
            )
            quota = await self.access.admit(incoming)
            if quota is not None and incoming.method not in _FREE:
                incoming = replace(incoming, bill=await self.quotas.bill(quota))
            client = Client(receive, send, entry_of(scope))
            if self.models.answers(incoming) and upload.finished:
                await self.models.relay(incoming, client)
            else:
                rest = Upload(_continued(first, upload), upload.ended, upload.finished)
                await self.passthrough.relay(incoming, client, upload=rest)
        except ClientLeft:
            return


async def _continued(first: bytes, rest: ArrivingBody) -> AsyncIterator[bytes]:
    """The pieces of an upload whose first one was read already."""
    yield first
    async for part in rest:
        yield part
