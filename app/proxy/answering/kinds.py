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
# How server-sent events begin, and nothing else that answers a request: a field, or a comment.
_EVENTS = (b"data:", b"event:", b":")
_OBJECTS = (b"{", b"[")
# Space, or a byte order mark.
_BEFORE = b" \t\r\n\xef\xbb\xbf"
# What is looked at of an answer, and that much decoded, to see how it begins.
_LOOK_BYTES = 1024
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

    Server-sent events are a stream whoever asked, and under whatever name: how an answer begins says more
    than its content type. Where a stream was asked for, so is everything that is not one JSON document, by
    its content type or its beginning. The first chunk is waited for, and UpstreamError raised when it does
    not come. A beginning we cannot read is what its content type says, or else a document.
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
    """`data`, one line of JSON, as one more frame of a stream of this kind."""
    return data + b"\n" if kind == "lines" else b"data: " + data + b"\n\n"


async def _opening(answer: Arriving) -> bytes:
    """How the answer begins, without space; empty where nothing is in it, or nothing can be read of it."""
    decoder = decoder_for(answer.headers, _OPENING_BYTES)
    first = (await answer.first())[:_LOOK_BYTES]
    return decoder.feed(first).lstrip(_BEFORE) if decoder else b""


def _subtype(content_type: bytes) -> bytes:
    return content_type.partition(b";")[0].partition(b"/")[2].strip().lower()


def _is_document(subtype: bytes) -> bool:
    return subtype == b"json" or (subtype.endswith(b"+json") and subtype not in _LINES)
