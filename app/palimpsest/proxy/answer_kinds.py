"""How to read an upstream's answer: as a whole or as a stream, and how the stream is framed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from palimpsest.upstream.decoding import decoder_for

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
    types = [_subtype(value) for name, value in answer.headers if name.lower() == b"content-type"]
    opening = await _opening(answer)
    is_object = opening.startswith(_OBJECTS)
    if b"event-stream" in types:
        return "whole" if is_object else "events"
    if opening.startswith(_EVENTS):
        return "unnamed"
    is_whole = is_object or not opening or any(_is_document(subtype) for subtype in types)
    if not asked_for_stream or (is_whole and not (is_object and any(each in _LINES for each in types))):
        return "whole"
    return "lines" if is_object else "unnamed"


def framed(kind: Kind, data: bytes) -> bytes:
    """`data`, one line of JSON, as a frame of a stream of this kind."""
    return data + b"\n" if kind == "lines" else b"data: " + data + b"\n\n"


async def _opening(answer: IncomingAnswer) -> bytes:
    """The decoded start of the answer without white space; empty for no body or an unknown coding."""
    decoder = decoder_for(answer.headers, _OPENING_BYTES)
    first = (await answer.first())[:_LOOK_BYTES]
    return decoder.feed(first).lstrip(_BEFORE) if decoder else b""


def _subtype(content_type: bytes) -> bytes:
    return content_type.partition(b";")[0].partition(b"/")[2].strip().lower()


def _is_document(subtype: bytes) -> bool:
    return subtype == b"json" or (subtype.endswith(b"+json") and subtype not in _LINES)
