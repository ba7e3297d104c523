"""A client's request as received over ASGI: line, headers and whole body."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from palimpsest.core.wire.chat import CHAT
from palimpsest.core.wire.request import Wire
from palimpsest.errors import BodyTooLarge, InvalidCoding, RepeatedHeader, UnsupportedCoding
from palimpsest.proxy.quotas import Bill
from palimpsest.upstream.decoding import DECODABLE, Decoder, decoder_for

ASGIMessage: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[ASGIMessage]]
Send: TypeAlias = Callable[[ASGIMessage], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


Headers = Sequence[tuple[bytes, bytes]]

# Decoders are fed in steps: they copy the unconsumed rest of a step each time.
_STEP_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Incoming:
    """One HTTP request: `target` is path and query below `/v1`, `path_session` from `/s/{session}/v1`.

    `wire` is the API it uses; `ident` identifies the exchange in the log, the archive and our own errors.
    `body` is as received, in the client's content coding: it is forwarded while nothing is changed.
    `credentials` is the digest of its credentials, where it was computed before. `bill` is what its answer is
    charged to; None for a caller without a quota.
    """

    method: str
    target: str
    headers: Headers
    body: bytes
    path_session: str | None
    wire: Wire = CHAT
    ident: str = ""
    credentials: bytes = b""
    bill: Bill | None = None

    @property
    def asks_for_compaction(self) -> bool:
        """True for requests to `/v1/responses/compact`."""
        return self.target.partition("?")[0].rstrip("/") == "/responses/compact"

    def header(self, name: bytes) -> str | None:
        """The header's first value, latin-1 decoded; `name` in lower case."""
        for key, value in self.headers:
            if key == name:
                return value.decode("latin-1")
        return None

    def only(self, name: bytes) -> str | None:
        """As `header`, but RepeatedHeader when it occurs more than once."""
        found: bytes | None = None
        for key, value in self.headers:
            if key == name:
                if found is not None:
                    raise RepeatedHeader(f"The header {name.decode('latin-1')} stands more than once.")
                found = value
        return None if found is None else found.decode("latin-1")


def asking_of(scope: Scope) -> Incoming:
    """A request with headers and target alone, to identify its caller."""
    target = f"{scope['raw_path'].decode('latin-1')}?{scope['query_string'].decode('latin-1')}"
    return Incoming(scope["method"], target, scope["headers"], b"", None)


async def plain_body(incoming: Incoming, limit: int) -> bytes:
    """The decoded body, at most `limit` bytes; the body itself without a content coding.

    UnsupportedCoding for a coding that we do not read, or for several: nested codings have no bound on what
    must be read for one byte. InvalidCoding for a body that is malformed or truncated, BodyTooLarge beyond
    the limit.
    """
    if incoming.header(b"content-encoding") is None:
        return incoming.body
    decoder = decoder_for(incoming.headers, limit, most=1)
    if decoder is None:
        read = ", ".join(sorted(DECODABLE))
        raise UnsupportedCoding(
            f"A request's body may be coded in one of {read}, or not at all.", param="Content-Encoding"
        )
    # In a thread whatever its size: a small body may decode to a large one.
    return await asyncio.to_thread(_undone, incoming.body, decoder)


def _undone(body: bytes, decoder: Decoder) -> bytes:
    steps = range(0, len(body), _STEP_BYTES)
    plain = b"".join([decoder.feed(body[start : start + _STEP_BYTES]) for start in steps])
    if decoder.failure == "too_large":
        raise BodyTooLarge("The request's body is larger than this proxy accepts.")
    if not decoder.is_complete:
        raise InvalidCoding("The body is not what its Content-Encoding says.", param="Content-Encoding")
    return plain
