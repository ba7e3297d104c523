"""Steps 7 and 8 of an exchange: the answer goes to the client, and is stored before its end does (P3).

Owns the answer from its first byte to the client's last. Whatever ends it, a record is written: when
the client leaves or the server stops, by a job that nobody cancels.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import NoReturn

import structlog

from app.core.wire.wires import error_event, error_of, sum_for
from app.errors import AnswerNotStored, PalimpsestError, StoreError, UpstreamCut, UpstreamError
from app.proxy.answering.gate import Gate
from app.proxy.answering.kinds import Arriving, Kind
from app.proxy.answering.outcomes import Outcomes
from app.proxy.answering.partials import PartialAnswer
from app.proxy.answering.recovering import words_sent
from app.proxy.client import Client
from app.proxy.hidden.happening import Happening
from app.proxy.hidden.mixed import MixedTurns
from app.proxy.jobs import Jobs
from app.proxy.sessions.recorder import Outcome, Recorder
from app.proxy.turn import Shown, Turn
from app.upstream.client import ends_with_connection
from app.upstream.decoding import decoder_for
from app.upstream.headers import answer_headers
from app.upstream.overflow import Overflow, classify

Headers = list[tuple[bytes, bytes]]
# An error frame is the last of a stream; a `[DONE]` behind it comes with it.
LINGER_SECONDS = 1.0
# Told the upstream's usage of an answered prompt.
Answered = Callable[[Turn, Shown, Outcome], None]


@dataclass(frozen=True, slots=True)
class RelayLimits:
    """Bytes: of one streamed event, and of an answer that is assembled for storing.

    `delivers_unstored`: an answer that could not be stored is given to the client all the same.
    """

    frame_bytes: int
    answer_bytes: int
    delivers_unstored: bool


@dataclass(frozen=True, slots=True)
class Follows:
    """Who goes on with an answer: once it has ended, and as soon as it is stored where it asks that of us."""

    answered: Answered
    mixed: MixedTurns


@dataclass(frozen=True, slots=True)
class Passage:
    """One answer, how it is read and whom it belongs to. `extra` are our own headers.

    `may_shrink`: a smaller prompt may be sent if this answer says that it is too long. `is_near_window`:
    the prompt is so large that a stream without anything may say so. `opening` goes out before the
    answer's first bytes. `may_fail_late`: it may say so behind the news that there will be an answer.
    `happening` is what the client does not see of it, None where it sees all.
    """

    turn: Turn
    shown: Shown
    answer: Arriving
    kind: Kind
    client: Client
    extra: Headers
    may_shrink: bool
    is_near_window: bool
    may_fail_late: bool
    opening: bytes = b""
    happening: Happening | None = None


@dataclass(frozen=True, slots=True)
class TooLong:
    """An answer of status 200 that says "too long"; nothing of it has gone out. `body` is as it came."""

    body: bytes
    overflow: Overflow


class Relay:
    """Relays answers with status 200."""

    def __init__(
        self, recorder: Recorder, outcomes: Outcomes, jobs: Jobs, limits: RelayLimits, follows: Follows
    ) -> None:
        self._recorder = recorder
        self._outcomes = outcomes
        self._jobs = jobs
        self._limits = limits
        self._answered = follows.answered
        self._mixed = follows.mixed

    async def stream(self, passage: Passage) -> TooLong | None:
        """The events go out as they come. TooLong, with nothing sent, when the first event or an empty
        stream says so; None when everything is done.
        """
        gate = self._gate(passage)
        with PartialAnswer(self._recorder, self._jobs, passage.turn, gate):
            return await self._streamed(passage, gate)

    async def _streamed(self, passage: Passage, gate: Gate) -> TooLong | None:
        committed = False
        chunks = passage.answer.chunks()
        try:
            try:
                async for chunk in chunks:
                    out = gate.take(chunk)
                    if gate.has_failed_early and (overflow := _overflow(passage, gate.assembly.error)):
                        return TooLong(out + gate.release() + await _rest(chunks), overflow)
                    if gate.is_waiting:
                        continue
                    await self._begin(passage)
                    await passage.client.body(out)
                    if gate.is_closed and not committed:
                        await self._commit(passage, gate)
                        committed = True
                        await passage.client.body(gate.release())
            except UpstreamError as cut:
                await self._cut(passage, gate, cut, committed=committed)
            gate.finish()
            return await self._ended(passage, gate, committed=committed)
        except asyncio.CancelledError:
            if not committed:
                outcome = self._outcome(passage, gate)
                self._jobs.start(self._recorder.note(passage.turn, passage.shown, outcome))
            raise

    async def body(self, passage: Passage) -> TooLong | None:
        """A whole answer: read, stored, then sent. One too large to be held passes as it comes.

        TooLong, with nothing sent, when it is an error that says so.
        """
        pieces: list[bytes] = []
        size = 0
        try:
            async for chunk in passage.answer.chunks():
                size += len(chunk)
                pieces.append(chunk)
                if size > self._limits.answer_bytes:
                    await self._begin(passage)
                    await passage.client.body(b"".join(pieces))
                    pieces = []
        except (asyncio.CancelledError, UpstreamError) as error:
            self._jobs.start(self._recorder.note(passage.turn, passage.shown, _FAILED))
            if passage.client.started and isinstance(error, UpstreamError):
                raise UpstreamCut("The answer was cut.") from error
            raise
        whole = b"".join(pieces)
        outcome = _FAILED
        if size <= self._limits.answer_bytes:
            plain = self._decoded(passage, whole)
            outcome = await self._heard(passage, plain)
            if outcome.state == "failed" and plain and (overflow := _overflow(passage, plain)):
                return TooLong(whole, overflow)
            outcome = _with_rounds(passage, outcome)
        if not size and passage.answer.status == HTTPStatus.OK:
            # To an SDK that streams, nothing at all would look like a finished answer.
            await self._recorder.note(passage.turn, passage.shown, _FAILED)
            raise UpstreamCut("The upstream's answer is empty.")
        _note_failure(passage, outcome, is_kept=size <= self._limits.answer_bytes)
        is_stored = await self._stored(passage, outcome)
        self._answered(passage.turn, passage.shown, outcome)
        await self._begin(passage, () if is_stored else NOT_STORED)
        await passage.client.end(whole)
        return None

    async def _heard(self, passage: Passage, plain: bytes) -> Outcome:
        """What a whole answer says; it is recorded also when the client leaves while a long one is read."""
        try:
            return await self._outcomes.of_body(passage.turn, passage.answer.status, plain)
        except asyncio.CancelledError:
            self._jobs.start(self._noted(passage, plain))
            raise

    async def _noted(self, passage: Passage, plain: bytes) -> None:
        outcome = await self._outcomes.of_body(passage.turn, passage.answer.status, plain)
        await self._recorder.note(passage.turn, passage.shown, _with_rounds(passage, outcome))

    async def _begin(self, passage: Passage, more: Sequence[tuple[bytes, bytes]] = ()) -> None:
        if not passage.client.started:
            headers = [*answer_headers(passage.answer.headers), *passage.extra, *more]
            await passage.client.start(passage.answer.status, headers)
            await passage.client.body(passage.opening)

    async def _stored(self, passage: Passage, outcome: Outcome) -> bool:
        """Whether the answer is durable; AnswerNotStored when it is not and must not be delivered then."""
        try:
            await self._recorder.close(passage.turn, passage.shown, outcome)
        except StoreError as error:
            _log.error("answer_not_stored", error=type(error).__name__, session=passage.turn.session)
            unstored = AnswerNotStored("The answer came and could not be stored.")
            if self._limits.delivers_unstored:
                passage.client.entry.failed(unstored)
                return False
            raise unstored from error
        if passage.happening is not None:
            self._mixed.stored(passage.turn, outcome, passage.happening)
        return True

    async def _commit(self, passage: Passage, gate: Gate) -> None:
        try:
            await self._stored(passage, self._outcome(passage, gate))
        except AnswerNotStored as error:
            await self._fail_in_band(passage, gate, error)

    async def _ended(self, passage: Passage, gate: Gate, *, committed: bool) -> TooLong | None:
        """The upstream ended its body properly, which says "too long" where nothing is in it.

        So does it end for the client, though nothing in it said that the answer was complete: it is then
        stored as incomplete.
        """
        if gate.is_empty and (overflow := _overflow(passage, b"")):
            return TooLong(b"", overflow)
        if openings := gate.openings():
            await self._begin(passage)
            await passage.client.body(openings)
        await self._complete(passage, gate, committed=committed)
        return None

    async def _complete(self, passage: Passage, gate: Gate, *, committed: bool) -> None:
        outcome = self._outcome(passage, gate)
        if gate.assembly.error is not None:
            passage.client.entry.refused("error_in_stream")
        self._answered(passage.turn, passage.shown, outcome)
        if committed:
            # The counts came after the end: they are added to the record, nobody waits for that.
            if gate.assembly.usage is not None:
                self._jobs.start(self._recorder.note(passage.turn, passage.shown, outcome))
            await passage.client.end()
            return
        await self._commit(passage, gate)
        is_unfinished = outcome.state != "done" and gate.assembly.error is None and gate.is_readable
        if is_unfinished and (gate.is_empty or ends_with_connection(passage.answer.headers)):
            # Nothing at all, or what may as well be a connection that broke: no end that could be believed.
            cut = UpstreamCut("The upstream ended its answer before it was complete.")
            await self._fail_in_band(passage, gate, cut)
        await self._begin(passage)
        await passage.client.end(gate.release())

    async def _cut(self, passage: Passage, gate: Gate, cut: UpstreamError, *, committed: bool) -> None:
        """The upstream broke off: stored as incomplete, and the client is told."""
        if not committed:
            await self._commit(passage, gate)
        if not passage.client.started:
            raise cut
        await self._fail_in_band(passage, gate, cut)

    async def _fail_in_band(self, passage: Passage, gate: Gate, error: PalimpsestError) -> NoReturn:
        """An error event, then an abrupt end: a clean one would look like success to the SDKs."""
        if passage.client.started and length_of(passage.answer.headers) is None:
            told = error_event(passage.turn.request.wire, _object_of(error))
            await passage.client.body(gate.in_band(told))
        raise error

    def _outcome(self, passage: Passage, gate: Gate) -> Outcome:
        return _with_rounds(passage, self._outcomes.of_stream(passage.turn, gate))

    def _gate(self, passage: Passage) -> Gate:
        headers = passage.answer.headers
        gate = Gate(
            sum_for(passage.turn.request),
            decoder_for(headers, self._limits.answer_bytes),
            passage.kind,
            is_coded=_is_coded(headers),
            frame_bytes=self._limits.frame_bytes,
            answer_bytes=self._limits.answer_bytes,
            length=length_of(headers),
        )
        if passage.may_fail_late:
            gate.wait()
        return gate

    def _decoded(self, passage: Passage, body: bytes) -> bytes:
        if not _is_coded(passage.answer.headers):
            return body
        decoder = decoder_for(passage.answer.headers, self._limits.answer_bytes)
        return decoder.feed(body) if decoder else b""


# Said of an answer that was delivered all the same.
NOT_STORED = ((b"x-palimpsest-store", b"unavailable"),)
_FAILED = Outcome(state="failed", status=200)
_log = structlog.get_logger("palimpsest.relay")


def _overflow(passage: Passage, said: bytes | None) -> Overflow | None:
    """What an error says, if it says "too long" and a smaller prompt may still be sent in its place."""
    if passage.client.started or not passage.may_shrink:
        return None
    answer, words = passage.answer, error_of(passage.turn.request.wire, said or b"")
    verdict = classify(
        answer.status,
        answer.headers,
        words,
        request=words_sent(passage.turn, passage.shown),
        near_window=passage.is_near_window,
    )
    return verdict if isinstance(verdict, Overflow) and verdict.kind == "prompt" else None


def _note_failure(passage: Passage, outcome: Outcome, *, is_kept: bool) -> None:
    """What the log says of a status 200 that brought no answer, or one too long to be stored."""
    if outcome.state == "failed":
        passage.client.entry.refused("no_answer" if is_kept else "answer_too_long_to_store")


async def _rest(chunks: AsyncIterator[bytes]) -> bytes:
    """What still comes behind an error, if it comes at once; what is left of it otherwise is not missed."""
    pieces = bytearray()
    with suppress(TimeoutError, UpstreamError):
        async with asyncio.timeout(LINGER_SECONDS):
            async for chunk in chunks:
                pieces += chunk
    return bytes(pieces)


def _with_rounds(passage: Passage, outcome: Outcome) -> Outcome:
    """With what the client did not see of it."""
    return replace(outcome, hidden=passage.happening.rounds) if passage.happening else outcome


def _object_of(error: PalimpsestError) -> dict[str, str | None]:
    """The error object of the API."""
    return {"message": error.message, "type": error.type, "param": error.param, "code": error.code}


def length_of(headers: Sequence[tuple[bytes, bytes]]) -> int | None:
    """The length that was announced, where an event of ours would be too much; None without one."""
    found = (int(value) for name, value in headers if name.lower() == b"content-length")
    return next(found, None)


def _is_coded(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    codings = [value.strip().lower() for name, value in headers if name.lower() == b"content-encoding"]
    return any(coding not in (b"", b"identity") for coding in codings)
