"""How an answer is to be read: whole or as a stream, and what the frames of a stream are.

Knows headers and the first bytes of an answer, not what an answer says.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Literal, Protocol

from app.upstream.decoding import decoder_for

# "events" are server-sent events by their content type. "unnamed" is a stream of something else, most
# often the same events under another name: some gateways say text/plain, or nothing.
Kind = Literal["whole", "events", "unnamed", "lines"]

# One JSON object a line; nobody has registered a name for it.
_LINES = frozenset({b"x-ndjson", b"ndjson", b"jsonl", b"x-jsonlines", b"jsonlines", b"stream+json"})
# What is looked at of an answer, decoded, to see how it begins.
_OPENING_BYTES = 64 * 1024


class Arriving(Protocol):
    """An answer whose head has come: the upstream's own, or one that stands in for it."""

    @property
    def status(self) -> int:
        """Of HTTP."""

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """As received: bytes, in order."""

    async def first(self) -> bytes:
        """The first chunk, which `chunks` gives all the same; empty without a body. UpstreamError."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives, no chunk empty. UpstreamError when it ends early or falls silent."""

    async def read(self, limit: int) -> bytes:
        """The whole body, at most `limit` bytes; UpstreamError when it is longer."""


async def kind_of(answer: Arriving, *, asked_for_stream: bool) -> Kind:
    """How to read this answer of status 200.

    Server-sent events are a stream whoever asked. Where a stream was asked for, so is everything that
    is not one JSON document, by its content type or its beginning; for that the first chunk is waited
    for, and UpstreamError raised when it does not come. A beginning we cannot read is taken for a document.
    """
    types = [_subtype(value) for name, value in answer.headers if name.lower() == b"content-type"]
    if b"event-stream" in types:
        return "events"
    if not asked_for_stream or any(_is_document(subtype) for subtype in types):
        return "whole"
    decoder = decoder_for(answer.headers, _OPENING_BYTES)
    opening = decoder.feed(await answer.first()).lstrip() if decoder else b""
    if not opening or opening.startswith((b"{", b"[")):
        return "lines" if opening and any(subtype in _LINES for subtype in types) else "whole"
    return "unnamed"


def framed(kind: Kind, data: bytes) -> bytes:
    """`data`, one line of JSON, as one more frame of a stream of this kind."""
    return data + b"\n" if kind == "lines" else b"data: " + data + b"\n\n"


def _subtype(content_type: bytes) -> bytes:
    return content_type.partition(b";")[0].partition(b"/")[2].strip().lower()


def _is_document(subtype: bytes) -> bool:
    return subtype == b"json" or (subtype.endswith(b"+json") and subtype not in _LINES)
