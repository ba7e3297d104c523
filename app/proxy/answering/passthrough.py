"""Everything below `/v1/` that is not a chat completion: relayed untouched, both ways, as it streams.

Nothing is read, kept or counted. The upstream's error statuses are its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from app.proxy.client import Client
from app.proxy.incoming import Headers, Incoming
from app.upstream.client import Upstream
from app.upstream.headers import answer_headers

# What a request to the upstream may say, from what the client said.
OutgoingHeaders = Callable[[Headers], "list[tuple[bytes, bytes]]"]


class Upload(Protocol):
    """A request body on its way in. `finished` is true once its last byte has been read."""

    @property
    def finished(self) -> bool:
        """True once nothing more will come."""

    async def ended(self) -> None:
        """Returns when the last byte has been read."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Its pieces, as they arrive."""


class WholeBody:
    """The upload of a request whose body is in memory."""

    finished = True

    async def ended(self) -> None:
        """It has."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Nothing more comes."""
        nothing: tuple[bytes, ...] = ()
        for part in nothing:
            yield part


class Passthrough:
    """Relays one request; the body is sent on while it arrives."""

    def __init__(self, upstream: Upstream, outgoing: OutgoingHeaders) -> None:
        self._upstream = upstream
        self._outgoing = outgoing

    async def relay(self, incoming: Incoming, upload: Upload, client: Client, extra: Headers = ()) -> None:
        """The upstream's answer, byte for byte, with `extra` headers. A client that leaves ends it."""
        headers = self._outgoing(incoming.headers)
        body = None if upload.finished else aiter(upload)
        opened = self._upstream.open(incoming.method, incoming.target, headers, incoming.body or body)
        # While the client is still sending, its leaving shows in the upload.
        async with client.attended(upload.ended), opened as answer:
            await client.start(answer.status, [*answer_headers(answer.headers), *extra])
            async for chunk in answer.chunks():
                await client.body(chunk)
            await client.end()
