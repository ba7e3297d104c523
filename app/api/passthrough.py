"""The endpoint of everything below `/v1/` that is passed on untouched."""

from __future__ import annotations

from collections.abc import AsyncIterator

from app.api.body import ArrivingBody
from app.api.front import target_of
from app.api.logged import entry_of
from app.errors import ClientLeft
from app.proxy.access.access import Access
from app.proxy.answering.model_list import ModelList
from app.proxy.answering.passthrough import Passthrough
from app.proxy.asgi import Receive, Scope, Send
from app.proxy.client import Client
from app.proxy.incoming import Incoming


class PassthroughEndpoint:
    """Any method, any path. A body has any length, and stands still for at most `body_idle_seconds`."""

    def __init__(
        self, access: Access, models: ModelList, passthrough: Passthrough, *, body_idle_seconds: float
    ) -> None:
        self._access = access
        self._models = models
        self._passthrough = passthrough
        self._body_idle_seconds = body_idle_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One exchange. A small body is read before the upstream is asked, a large one streams through."""
        upload = ArrivingBody(scope, receive, None, self._body_idle_seconds)
        try:
            first = await upload.piece()
            incoming = Incoming(
                method=scope["method"],
                target=target_of(scope),
                headers=scope["headers"],
                body=first if upload.finished else b"",
                path_session=None,
            )
            await self._access.admit(incoming)
            client = Client(receive, send, entry_of(scope))
            if self._models.answers(incoming) and upload.finished:
                await self._models.relay(incoming, client)
            else:
                await self._passthrough.relay(incoming, _Continued(first, upload), client)
        except ClientLeft:
            return


class _Continued:
    """An upload whose first piece has been read already."""

    def __init__(self, first: bytes, rest: ArrivingBody) -> None:
        self._first = first
        self._rest = rest

    @property
    def finished(self) -> bool:
        return self._rest.finished

    async def ended(self) -> None:
        await self._rest.ended()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._first
        async for part in self._rest:
            yield part
