"""Everything below `/v1/` that no exchange answers: relayed untouched, both ways, as it streams.

Nothing is kept or counted, nor read but the model of what an exchange could have answered. The upstream's
error statuses are its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Protocol

from app.core.wire.json_members import raw_members
from app.core.wire.json_text import BYTE_ORDER_MARK, decoded, verify
from app.core.wire.models.names import with_model
from app.errors import BodyTooLarge, NestedTooDeep, UnsupportedCoding
from app.proxy.answering.outgoing import Destination, Destinations
from app.proxy.client import Client
from app.proxy.incoming import Headers, Incoming, plain_body
from app.upstream.headers import OF_THE_BYTES, answer_headers


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
    """The upload of a request that an exchange has not answered; its body is in memory."""

    finished = True

    async def ended(self) -> None:
        """It has."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Nothing more comes."""
        nothing: tuple[bytes, ...] = ()
        for part in nothing:
            yield part


async def _read(incoming: Incoming, upload: Upload, limit: int) -> Incoming:
    """The request with its whole body; BodyTooLarge beyond the limit."""
    if upload.finished:
        return incoming
    pieces, size = [], 0
    async for part in upload:
        size += len(part)
        if size > limit:
            raise BodyTooLarge("The request's body is larger than this proxy accepts.")
        pieces.append(part)
    return replace(incoming, body=b"".join(pieces))


class Passthrough:
    """Relays one request; the body is sent on while it arrives.

    No more than `body_bytes` of one are held or decoded, for the name of its model alone.
    """

    def __init__(self, destinations: Destinations, body_bytes: int) -> None:
        self._destinations = destinations
        self._body_bytes = body_bytes

    async def relay(self, incoming: Incoming, upload: Upload, client: Client, extra: Headers = ()) -> None:
        """The upstream's answer, byte for byte, with `extra` headers. A client that leaves ends it.

        RequestError for what cannot be read where its model says whose it is.
        """
        if self._destinations.routed and incoming.asks_for_compaction:
            # It bears a conversation, which belongs to the server of its model.
            incoming, upload = await _read(incoming, upload, self._body_bytes), WholeBody()
        there, incoming = await self._there(incoming, upload)
        headers = there.outgoing(incoming.headers)
        body = None if upload.finished else aiter(upload)
        target, sent = there.outgoing.target(incoming.target), incoming.body or body
        # A file takes as long as it takes: it may not stand still, that is all.
        opened = there.upstream.open(incoming.method, target, headers, sent, takes_any_time=True)
        # While the client is still sending, its leaving shows in the upload.
        client.entry.forwarded(there.upstream.origin)
        async with client.attended(upload.ended), opened as answer:
            client.entry.answered()
            await client.start(answer.status, [*answer_headers(answer.headers), *extra])
            async for chunk in answer.chunks():
                await client.body(chunk)
            await client.end()

    async def _there(self, incoming: Incoming, upload: Upload) -> tuple[Destination, Incoming]:
        """Also what is not recorded goes to the server of its model, and to no other."""
        if not (self._destinations.routed and isinstance(upload, WholeBody)):
            return self._destinations.of(""), incoming
        try:
            plain = (await plain_body(incoming, self._body_bytes)).removeprefix(BYTE_ORDER_MARK)
            verify(plain)
            model = decoded(raw_members(plain).get("model", b"null"))
        except (NestedTooDeep, UnsupportedCoding):
            # Whose it is cannot be read: as one that names no model.
            model = None
        if not isinstance(model, str):
            return self._destinations.of(""), incoming
        there = self._destinations.of(model)
        name = there.asked_for(model)
        if name == model:
            return there, incoming
        headers = [header for header in incoming.headers if header[0].lower() not in OF_THE_BYTES]
        return there, replace(incoming, headers=headers, body=with_model(plain, name))
