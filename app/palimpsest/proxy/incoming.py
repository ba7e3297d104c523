"""What arrives: a client's request over ASGI with its line, headers and body, and an upstream's answer.

An answer is read as a whole or as a stream, and streams are framed in several ways.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from palimpsest.core.wire.chat import CHAT
from palimpsest.core.wire.request import Wire
from palimpsest.errors import BodyTooLarge, InvalidCoding, RepeatedHeader, UnsupportedCoding
from palimpsest.proxy.quotas import Bill
from palimpsest.upstream.decoding import DECODABLE, decoder_for

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

    def undone() -> bytes:
        steps = range(0, len(incoming.body), _STEP_BYTES)
        plain = b"".join([decoder.feed(incoming.body[start : start + _STEP_BYTES]) for start in steps])
        if decoder.failure == "too_large":
            raise BodyTooLarge("The request's body is larger than this proxy accepts.")
        if not decoder.is_complete:
            raise InvalidCoding("The body is not what its Content-Encoding says.", param="Content-Encoding")
        return plain

    # In a thread whatever its size: a small body may decode to a large one.
    return await asyncio.to_thread(undone)


# "events": server-sent events by their content type. "unnamed": a stream of another content type, mostly
# the same events: some gateways send text/plain, or no type.
Kind = Literal["whole", "events", "unnamed", "lines"]

# One JSON object a line; there is no registered media type.
_LINES = frozenset({b"x-ndjson", b"ndjson", b"jsonl", b"x-jsonlines", b"jsonlines", b"stream+json"})
# How server-sent events begin: a field or a comment. No other answer begins like this.
_EVENTS = (b"data:", b"event:", b":")
_OBJECTS = (b"{", b"[")
# White space, or a byte order mark.
_BEFORE = b" \t\r\n\xef\xbb\xbf"
# Bytes inspected at the start of an answer, as received and decoded.
_LOOK_BYTES = 1024
_OPENING_BYTES = 64 * 1024


class IncomingAnswer(Protocol):
    """An answer whose head has arrived: the upstream's own, or one assembled from several rounds."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """As received: bytes, in order."""

    async def first(self) -> bytes:
        """The first chunk, which `chunks` yields too; empty without a body. UpstreamError."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives, no chunk empty. UpstreamError when it ends early or falls silent."""


@dataclass(frozen=True, slots=True)
class HeldAnswer:
    """An answer of which `raw` has been received: all of it, decoded as `plain`, or else `rest` follows."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    raw: bytes
    plain: bytes = b""
    rest: AsyncIterator[bytes] | None = None

    async def first(self) -> bytes:
        """What has been received."""
        return self.raw

    async def chunks(self) -> AsyncIterator[bytes]:
        """What has been received, then the rest as it arrives. UpstreamError."""
        if self.raw:
            yield self.raw
        if self.rest is not None:
            async for chunk in self.rest:
                yield chunk


async def read_of(answer: IncomingAnswer, limit: int) -> HeldAnswer:
    """The answer, read whole if it has at most `limit` bytes. UpstreamError."""
    pieces: list[bytes] = []
    size, chunks = 0, answer.chunks()
    async for chunk in chunks:
        pieces.append(chunk)
        size += len(chunk)
        if size > limit:
            return HeldAnswer(answer.status, answer.headers, b"".join(pieces), rest=chunks)
    raw = b"".join(pieces)
    decoder = decoder_for(answer.headers, limit)
    return HeldAnswer(answer.status, answer.headers, raw, decoder.feed(raw) if decoder else b"")


async def kind_of(answer: IncomingAnswer, *, asked_for_stream: bool) -> Kind:
    """How to read this answer of status 200.

    Server-sent events are a stream even if none was requested, and under any content type: the first bytes
    decide before the content type. If a stream was requested, every answer that is not one JSON document is
    a stream. Waits for the first chunk; UpstreamError when it does not come. Where the first bytes cannot be
    decoded the content type decides; without one the answer is a document.
    """
    values = [value for name, value in answer.headers if name.lower() == b"content-type"]
    types = [value.partition(b";")[0].partition(b"/")[2].strip().lower() for value in values]
    # The decoded start without white space; empty for no body or an unknown coding.
    decoder, first = decoder_for(answer.headers, _OPENING_BYTES), await answer.first()
    opening = decoder.feed(first[:_LOOK_BYTES]).lstrip(_BEFORE) if decoder else b""
    is_object = opening.startswith(_OBJECTS)
    if b"event-stream" in types:
        return "whole" if is_object else "events"
    if opening.startswith(_EVENTS):
        return "unnamed"
    has_lines = any(each in _LINES for each in types)
    is_document = any(each == b"json" or (each.endswith(b"+json") and each not in _LINES) for each in types)
    is_whole = is_object or not opening or is_document
    if not asked_for_stream or (is_whole and not (is_object and has_lines)):
        return "whole"
    return "lines" if is_object else "unnamed"


def framed(kind: Kind, data: bytes) -> bytes:
    """`data`, one line of JSON, as a frame of a stream of this kind."""
    return data + b"\n" if kind == "lines" else b"data: " + data + b"\n\n"
