"""A streamed answer of several rounds, as one stream: words go out as they are written (F23).

Knows nothing of how rounds are asked for, nor of what is held back until the answer is stored.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from app.core.recall.rounds.calls import Called
from app.core.recall.rounds.form import Form
from app.core.recall.rounds.told import Frames, Told
from app.core.wire.answered import AnsweredChoice
from app.core.wire.lines import LineSplitter, data_of_line
from app.core.wire.sse import FrameSplitter, data_of
from app.errors import UpstreamCut, UpstreamError
from app.proxy.answering.kinds import Arriving, Kind, framed
from app.proxy.recall.answers import RawHeaders, plain_chunks, without_length


@dataclass(frozen=True, slots=True)
class RoundLimits:
    """Hidden rounds of one request, bytes of a frame and of a whole answer."""

    rounds: int
    frame_bytes: int
    answer_bytes: int


class Following(Protocol):
    """Who asks for the next round; see `rounds.Rounds`."""

    limits: RoundLimits
    may_hide: bool
    told: Told

    async def again(self, choice: AnsweredChoice, called: Called, tokens: int) -> Arriving:
        """The answer of the next round."""

    def ended(self, choice: AnsweredChoice | None, called: Called) -> None:
        """The round is one that the client sees."""


class StreamedRounds:
    """What the client is shown of the rounds that begin with `answer`, which is of status 200."""

    def __init__(self, rounds: Following, answer: Arriving, kind: Kind) -> None:
        self.status = answer.status
        self.headers: RawHeaders = without_length(answer.headers)
        self._rounds = rounds
        self._answer = answer
        self._kind: Kind = kind
        self._form = Form(data_of_line if kind == "lines" else data_of, partial(framed, kind))
        self._shown = self._visible()
        self._first: bytes | None = None

    async def first(self) -> bytes:
        """The first bytes to be shown, which `chunks` gives all the same."""
        if self._first is None:
            self._first = await anext(self._shown, b"")
        return self._first

    async def chunks(self) -> AsyncIterator[bytes]:
        """What is shown, as it comes. UpstreamError as of any answer, also when a later round fails."""
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
        """Nothing more is read."""
        await self._shown.aclose()

    async def _visible(self) -> AsyncGenerator[bytes]:
        while True:
            frames = self._rounds.told.frames(self._form, may_hide=self._rounds.may_hide)
            async for out in self._round(frames):
                # Before its end goes out: then the answer is recorded.
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
        """One round's bytes as far as they are shown; an event too large to be read ends it."""
        limits = self._rounds.limits
        is_lines = self._kind == "lines"
        splitter = LineSplitter(limits.frame_bytes) if is_lines else FrameSplitter(limits.frame_bytes)
        async for chunk in plain_chunks(self._answer, limits.answer_bytes):
            out = b"".join([frames.shown(frame) for frame in splitter.feed(chunk)])
            if out:
                yield out
        rest = b"".join([frames.shown(frame) for frame in splitter.finish()])
        if isinstance(splitter, FrameSplitter) and not frames.is_hidden:
            # What was cut off in the middle of an event.
            rest += splitter.rest
        if rest:
            yield rest
