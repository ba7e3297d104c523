"""Answers in place of the upstream's own: one that was read whole, or several rounds as one stream (F23)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from palimpsest.core.recall.rounds.calls import Called
from palimpsest.core.recall.rounds.frames import ClientAnswer, FrameForm, Frames
from palimpsest.core.wire.chat_answers import AnsweredChoice
from palimpsest.core.wire.streams import FrameSplitter, LineSplitter, data_of, data_of_line
from palimpsest.errors import UpstreamCut, UpstreamError
from palimpsest.proxy.answer_kinds import IncomingAnswer, Kind, framed
from palimpsest.upstream.decoding import decoder_for
from palimpsest.upstream.headers import answer_headers

RawHeaders = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """A whole answer: its `raw` bytes as received, and `plain` decoded."""

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
    """An answer too large to hold: the bytes received, and the rest of the stream."""

    def __init__(self, answer: IncomingAnswer, came: bytes, rest: AsyncIterator[bytes]) -> None:
        self.status = answer.status
        self.headers: RawHeaders = answer.headers
        self._came = came
        self._rest = rest

    async def first(self) -> bytes:
        """The bytes received so far."""
        return self._came

    async def chunks(self) -> AsyncIterator[bytes]:
        """The bytes received so far, then the rest as it arrives."""
        yield self._came
        async for chunk in self._rest:
            yield chunk

    async def read(self, limit: int) -> bytes:
        """Never whole: UpstreamError."""
        raise UpstreamError(f"The upstream's answer is larger than {limit} bytes.")


async def read_of(answer: IncomingAnswer, limit: int) -> ReadAnswer | Spilled:
    """The answer, read whole if it has at most `limit` bytes. UpstreamError."""
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
    return ReadAnswer(answer.status, answer.headers, raw, decoder.feed(raw) if decoder else b"")


async def plain_chunks(answer: IncomingAnswer, limit: int) -> AsyncIterator[bytes]:
    """The decoded chunks of the answer. UpstreamCut when they cannot be decoded."""
    decoder = decoder_for(answer.headers, limit)
    async for chunk in answer.chunks():
        plain = decoder.feed(chunk) if decoder else b""
        if decoder is None or decoder.failure is not None:
            raise UpstreamCut("The upstream's answer is not of the coding that it states.")
        yield plain


def without_length(headers: RawHeaders) -> RawHeaders:
    """The headers of an answer whose body was changed."""
    return answer_headers(headers, "decoded")


@dataclass(frozen=True, slots=True)
class RoundLimits:
    """Bounds: hidden rounds of one request, bytes of a frame and of a whole answer."""

    rounds: int
    frame_bytes: int
    answer_bytes: int


class RoundSource(Protocol):
    """What `StreamedRounds` asks for the next round; see `rounds.Rounds`."""

    limits: RoundLimits
    may_hide: bool
    client_answer: ClientAnswer

    async def again(self, choice: AnsweredChoice, called: Called, tokens: int) -> IncomingAnswer:
        """The answer of the next round."""

    def ended(self, choice: AnsweredChoice | None, called: Called) -> None:
        """The round is the one that the client gets."""


class StreamedRounds:
    """The rounds that begin with `answer`, of status 200, as the one stream that the client gets."""

    def __init__(self, rounds: RoundSource, answer: IncomingAnswer, kind: Kind) -> None:
        self.status = answer.status
        self.headers: RawHeaders = without_length(answer.headers)
        self._rounds = rounds
        self._answer = answer
        self._kind: Kind = kind
        self._form = FrameForm(data_of_line if kind == "lines" else data_of, partial(framed, kind))
        self._shown = self._visible()
        self._first: bytes | None = None

    async def first(self) -> bytes:
        """The first bytes for the client, which `chunks` yields too."""
        if self._first is None:
            self._first = await anext(self._shown, b"")
        return self._first

    async def chunks(self) -> AsyncIterator[bytes]:
        """The bytes for the client, as they arrive. UpstreamError, also when a later round fails."""
        if first := await self.first():
            yield first
        async for chunk in self._shown:
            yield chunk

    async def read(self, limit: int) -> bytes:
        """All of it, at most `limit` bytes; UpstreamError beyond."""
        pieces = [chunk async for chunk in self.chunks()]
        if sum(map(len, pieces)) > limit:
            raise UpstreamError("The upstream's answer is larger than it may be.")
        return b"".join(pieces)

    async def close(self) -> None:
        """Stop reading."""
        await self._shown.aclose()

    async def _visible(self) -> AsyncGenerator[bytes]:
        while True:
            frames = self._rounds.client_answer.frames(self._form, may_hide=self._rounds.may_hide)
            async for out in self._round(frames):
                # Before the end is sent, because the answer is recorded then.
                if frames.is_over and not frames.is_hidden:
                    self._rounds.ended(frames.choice, frames.called)
                yield out
            choice = frames.choice
            if not frames.is_hidden or choice is None:
                return
            self._answer = await self._rounds.again(choice, frames.called, frames.completion_tokens)
            if self._answer.status >= 300:
                raise UpstreamCut("The upstream refused to go on with its answer.")

    async def _round(self, frames: Frames) -> AsyncIterator[bytes]:
        """The bytes of one round that the client gets; an event too large to read ends the round."""
        limits = self._rounds.limits
        is_lines = self._kind == "lines"
        splitter = LineSplitter(limits.frame_bytes) if is_lines else FrameSplitter(limits.frame_bytes)
        async for chunk in plain_chunks(self._answer, limits.answer_bytes):
            out = b"".join([frames.shown(frame) for frame in splitter.feed(chunk)])
            if out:
                yield out
        rest = b"".join([frames.shown(frame) for frame in splitter.finish()])
        if isinstance(splitter, FrameSplitter) and not frames.is_hidden:
            # The rest of an event that was cut off.
            rest += splitter.rest
        if rest:
            yield rest
