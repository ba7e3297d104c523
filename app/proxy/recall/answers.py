"""Answers that stand in for the upstream's: read whole already, or begun to be read.

Knows nothing of what they say.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from app.errors import UpstreamCut, UpstreamError
from app.proxy.answering.kinds import Arriving
from app.upstream.decoding import decoder_for
from app.upstream.headers import answer_headers

RawHeaders = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Read:
    """A whole answer: its `raw` bytes as they came, and `plain` with the content coding undone."""

    status: int
    headers: RawHeaders
    raw: bytes
    plain: bytes

    async def first(self) -> bytes:
        """All of it."""
        return self.raw

    async def chunks(self) -> AsyncIterator[bytes]:
        """All of it at once."""
        if self.raw:
            yield self.raw

    async def read(self, limit: int) -> bytes:
        """All of it; UpstreamError when it is longer than `limit` bytes."""
        if len(self.raw) > limit:
            raise UpstreamError("The upstream's answer is larger than it may be.")
        return self.raw


class Spilled:
    """An answer too large to be held: what came of it, and what still comes."""

    def __init__(self, answer: Arriving, came: bytes, rest: AsyncIterator[bytes]) -> None:
        self.status = answer.status
        self.headers: RawHeaders = answer.headers
        self._came = came
        self._rest = rest

    async def first(self) -> bytes:
        """What has come."""
        return self._came

    async def chunks(self) -> AsyncIterator[bytes]:
        """What has come, then the rest as it comes."""
        yield self._came
        async for chunk in self._rest:
            yield chunk

    async def read(self, limit: int) -> bytes:
        """Never whole: UpstreamError."""
        raise UpstreamError(f"The upstream's answer is larger than {limit} bytes.")


async def read_of(answer: Arriving, limit: int) -> Read | Spilled:
    """The answer, whole if it has no more than `limit` bytes, as it comes and decoded. UpstreamError."""
    pieces: list[bytes] = []
    chunks = answer.chunks()
    size = 0
    async for chunk in chunks:
        pieces.append(chunk)
        size += len(chunk)
        if size > limit:
            return Spilled(answer, b"".join(pieces), chunks)
    raw = b"".join(pieces)
    decoder = decoder_for(answer.headers, limit)
    return Read(answer.status, answer.headers, raw, decoder.feed(raw) if decoder else b"")


async def plain_chunks(answer: Arriving, limit: int) -> AsyncIterator[bytes]:
    """The answer as it comes, its coding undone. UpstreamCut where that cannot be done."""
    decoder = decoder_for(answer.headers, limit)
    async for chunk in answer.chunks():
        plain = decoder.feed(chunk) if decoder else b""
        if decoder is None or decoder.failure is not None:
            raise UpstreamCut("The upstream's answer is not of the coding that it states.")
        yield plain


def without_length(headers: RawHeaders) -> RawHeaders:
    """The headers of an answer whose bytes are no longer those that came."""
    return answer_headers(headers, "decoded")
