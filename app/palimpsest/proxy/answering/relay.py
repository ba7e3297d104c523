"""Steps 7 and 8 of an exchange: relays the answer, and stores it before its end is sent (P3).

An outcome is recorded however the exchange ends. When the client leaves or the server stops, a background job
records it, which is not cancelled with the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import NoReturn

import structlog

from palimpsest.errors import AnswerNotStored, PalimpsestError, StoreError, UpstreamCut, UpstreamError
from palimpsest.proxy.answer_kinds import IncomingAnswer, Kind
from palimpsest.proxy.answering.holdback import Holdback, PartialAnswer
from palimpsest.proxy.answering.outcomes import Outcomes
from palimpsest.proxy.answering.overflow_recovery import words_sent
from palimpsest.proxy.client import Client
from palimpsest.proxy.jobs import Jobs
from palimpsest.proxy.lookups.executing import MixedTurns
from palimpsest.proxy.lookups.hidden_rounds import HiddenRoundLog
from palimpsest.proxy.sessions.recorder import Outcome, Recorder, answer_in
from palimpsest.proxy.turn import ForwardedView, Turn
from palimpsest.upstream.client import ends_with_connection
from palimpsest.upstream.decoding import decoder_for
from palimpsest.upstream.headers import answer_headers
from palimpsest.upstream.overflow import Overflow, classify

Headers = list[tuple[bytes, bytes]]
# Wait after an error frame for what belongs to it, such as `[DONE]`.
LINGER_SECONDS = 1.0
# Called when an answer has ended.
Answered = Callable[[Turn, ForwardedView, Outcome], None]


@dataclass(frozen=True, slots=True)
class RelayLimits:
    """Bounds in bytes: of one streamed event, and of an answer that is assembled for storing.

    `delivers_unstored`: an answer that could not be stored is delivered anyway.
    """

    frame_bytes: int
    answer_bytes: int
    delivers_unstored: bool


@dataclass(frozen=True, slots=True)
class AnswerHooks:
    """What runs after an answer: `answered` once it has ended, `mixed` when a stored one calls our tools."""

    answered: Answered
    mixed: MixedTurns


@dataclass(frozen=True, slots=True)
class RelayContext:
    """One answer being relayed. `extra` are our own headers.

    `may_shrink`: a smaller prompt may be sent if this answer reports that it is too long. `is_near_window`:
    the prompt is so large that an empty stream may mean that. `may_fail_late`: the report may come after the
    opening events. `opening` is sent before the answer's first bytes. `hidden_log` collects the rounds that
    the client does not see; None without our tools.
    """

    turn: Turn
    shown: ForwardedView
    answer: IncomingAnswer
    kind: Kind
    client: Client
    extra: Headers
    may_shrink: bool
    is_near_window: bool
    may_fail_late: bool
    opening: bytes = b""
    hidden_log: HiddenRoundLog | None = None


@dataclass(frozen=True, slots=True)
class AnswerTooLong:
    """An answer of status 200 that reports "too long"; nothing of it was sent. `body` is as received."""

    body: bytes
    overflow: Overflow


class Relay:
    """Relays answers with status 200."""

    def __init__(
        self, recorder: Recorder, outcomes: Outcomes, jobs: Jobs, limits: RelayLimits, follows: AnswerHooks
    ) -> None:
        self._recorder = recorder
        self._outcomes = outcomes
        self._jobs = jobs
        self._limits = limits
        self._answered = follows.answered
        self._mixed = follows.mixed

    async def stream(self, context: RelayContext) -> AnswerTooLong | None:
        """Relay a stream. AnswerTooLong, with nothing sent, when its first content event, or an empty stream,
        means "too long"; None when the relay is complete.
        """
        holdback = self._holdback(context)
        with PartialAnswer(self._recorder, self._jobs, context.turn, holdback):
            return await self._streamed(context, holdback)

    async def _streamed(self, context: RelayContext, holdback: Holdback) -> AnswerTooLong | None:
        committed = False
        chunks = context.answer.chunks()
        try:
            try:
                async for chunk in chunks:
                    out = holdback.take(chunk)
                    if holdback.has_failed_early and (
                        overflow := _overflow(context, holdback.assembly.error)
                    ):
                        return AnswerTooLong(out + holdback.release() + await _rest(chunks), overflow)
                    if holdback.is_waiting:
                        continue
                    await self._begin(context)
                    await context.client.body(out)
                    if holdback.is_closed and not committed:
                        await self._commit(context, holdback)
                        committed = True
                        await context.client.body(holdback.release())
            except UpstreamError as cut:
                await self._cut(context, holdback, cut, committed=committed)
            holdback.finish()
            return await self._ended(context, holdback, committed=committed)
        except asyncio.CancelledError:
            if not committed:
                outcome = self._outcome(context, holdback)
                self._jobs.start(self._note(context, outcome))
            raise

    async def body(self, context: RelayContext) -> AnswerTooLong | None:
        """Read a whole answer, store it, then send it. One too large to hold is sent as it arrives.

        AnswerTooLong, with nothing sent, when it is an error that says so.
        """
        pieces: list[bytes] = []
        size = 0
        try:
            async for chunk in context.answer.chunks():
                size += len(chunk)
                pieces.append(chunk)
                if size > self._limits.answer_bytes:
                    await self._begin(context)
                    await context.client.body(b"".join(pieces))
                    pieces = []
        except (asyncio.CancelledError, UpstreamError) as error:
            self._record_break(context, error)
            if context.client.started and isinstance(error, UpstreamError):
                raise UpstreamCut("The answer was cut.") from error
            raise
        whole = b"".join(pieces)
        outcome = _FAILED
        if size <= self._limits.answer_bytes:
            plain = self._decoded(context, whole)
            outcome = await self._heard(context, plain)
            if outcome.state == "failed" and plain and (overflow := _overflow(context, plain)):
                return AnswerTooLong(whole, overflow)
            outcome = _with_rounds(context, outcome)
            context.client.entry.answer = answer_in(outcome)
        if not size and context.answer.status == HTTPStatus.OK:
            # An SDK that streams would take an empty body for a finished answer.
            empty = UpstreamCut("The upstream's answer is empty.")
            context.client.entry.failed(empty)
            await self._note(context, _FAILED)
            raise empty
        _note_failure(context, outcome, is_kept=size <= self._limits.answer_bytes)
        is_stored = await self._stored(context, outcome)
        self._answered(context.turn, context.shown, outcome)
        await self._begin(context, () if is_stored else NOT_STORED)
        await context.client.end(whole)
        return None

    def _record_break(self, context: RelayContext, error: BaseException) -> None:
        """Record, in the background, that no whole answer came: the upstream broke off or the client left."""
        if isinstance(error, UpstreamError):
            context.client.entry.failed(error)
        self._jobs.start(self._note(context, _FAILED))

    async def _heard(self, context: RelayContext, plain: bytes) -> Outcome:
        """The outcome of a whole answer; recorded also when the client leaves while a long one is read."""
        try:
            return await self._outcomes.of_body(context.turn, context.answer.status, plain)
        except asyncio.CancelledError:
            self._jobs.start(self._noted(context, plain))
            raise

    async def _noted(self, context: RelayContext, plain: bytes) -> None:
        outcome = await self._outcomes.of_body(context.turn, context.answer.status, plain)
        whole = _with_rounds(context, outcome)
        await self._note(context, whole)

    async def _note(self, context: RelayContext, outcome: Outcome) -> None:
        """Add the outcome to the record of the exchange."""
        await self._recorder.note(context.turn, context.shown, outcome, context.client.entry)

    async def _begin(self, context: RelayContext, more: Sequence[tuple[bytes, bytes]] = ()) -> None:
        if not context.client.started:
            headers = [*answer_headers(context.answer.headers), *context.extra, *more]
            await context.client.start(context.answer.status, headers)
            await context.client.body(context.opening)

    async def _stored(self, context: RelayContext, outcome: Outcome) -> bool:
        """Store the answer; False, or AnswerNotStored unless `delivers_unstored`, when that fails."""
        try:
            await self._recorder.close(context.turn, context.shown, outcome, context.client.entry)
        except StoreError as error:
            _log.error("answer_not_stored", error=type(error).__name__, session=context.turn.session)
            unstored = AnswerNotStored("The answer came and could not be stored.")
            if self._limits.delivers_unstored:
                context.client.entry.failed(unstored)
                return False
            raise unstored from error
        if context.hidden_log is not None:
            self._mixed.stored(context.turn, outcome, context.hidden_log)
        return True

    async def _commit(self, context: RelayContext, holdback: Holdback) -> None:
        try:
            await self._stored(context, self._outcome(context, holdback))
        except AnswerNotStored as error:
            await self._fail_in_band(context, holdback, error)

    async def _ended(
        self, context: RelayContext, holdback: Holdback, *, committed: bool
    ) -> AnswerTooLong | None:
        """Handle a body that ended properly; an empty one may mean "too long".

        It ends properly for the client too, even without a sign that the answer is complete: it is then
        stored as incomplete.
        """
        if holdback.is_empty and (overflow := _overflow(context, b"")):
            return AnswerTooLong(b"", overflow)
        if openings := holdback.openings():
            await self._begin(context)
            await context.client.body(openings)
        await self._complete(context, holdback, committed=committed)
        return None

    async def _complete(self, context: RelayContext, holdback: Holdback, *, committed: bool) -> None:
        outcome = self._outcome(context, holdback)
        if holdback.assembly.error is not None:
            context.client.entry.refused("error_in_stream")
        self._answered(context.turn, context.shown, outcome)
        if committed:
            # The usage came after the end: it is added to the record in the background.
            if holdback.assembly.usage is not None:
                self._jobs.start(self._note(context, outcome))
            await context.client.end()
            return
        await self._commit(context, holdback)
        is_unfinished = outcome.state != "done" and holdback.assembly.error is None and holdback.is_readable
        if is_unfinished and (holdback.is_empty or ends_with_connection(context.answer.headers)):
            # Empty, or delimited by the close of the connection alone, which may as well have broken.
            cut = UpstreamCut("The upstream ended its answer before it was complete.")
            await self._fail_in_band(context, holdback, cut)
        await self._begin(context)
        await context.client.end(holdback.release())

    async def _cut(
        self, context: RelayContext, holdback: Holdback, cut: UpstreamError, *, committed: bool
    ) -> None:
        """The upstream broke off: store the answer as incomplete and report the error to the client."""
        context.client.entry.failed(cut)
        if not committed:
            await self._commit(context, holdback)
        if not context.client.started:
            raise cut
        await self._fail_in_band(context, holdback, cut)

    async def _fail_in_band(
        self, context: RelayContext, holdback: Holdback, error: PalimpsestError
    ) -> NoReturn:
        """Send an error event, then raise: a clean end of the stream would look like success to the SDKs."""
        if context.client.started and length_of(context.answer.headers) is None:
            event = context.turn.wire.error_event(_object_of(error))
            await context.client.body(holdback.in_band(event))
        raise error

    def _outcome(self, context: RelayContext, holdback: Holdback) -> Outcome:
        outcome = _with_rounds(context, self._outcomes.of_stream(context.turn, holdback))
        context.client.entry.answer = answer_in(outcome)
        return outcome

    def _holdback(self, context: RelayContext) -> Holdback:
        headers = context.answer.headers
        holdback = Holdback(
            context.turn.wire.new_assembly(context.turn.request.n),
            decoder_for(headers, self._limits.answer_bytes),
            context.kind,
            is_coded=_is_coded(headers),
            frame_bytes=self._limits.frame_bytes,
            answer_bytes=self._limits.answer_bytes,
            length=length_of(headers),
        )
        if context.may_fail_late:
            holdback.wait()
        return holdback

    def _decoded(self, context: RelayContext, body: bytes) -> bytes:
        if not _is_coded(context.answer.headers):
            return body
        decoder = decoder_for(context.answer.headers, self._limits.answer_bytes)
        return decoder.feed(body) if decoder else b""


# Marks an answer that was delivered although it could not be stored.
NOT_STORED = ((b"x-palimpsest-store", b"unavailable"),)
_FAILED = Outcome(state="failed", status=200)
_log = structlog.get_logger("palimpsest.relay")


def _overflow(context: RelayContext, said: bytes | None) -> Overflow | None:
    """The overflow that an error reports, if a smaller prompt may still be sent."""
    if context.client.started or not context.may_shrink:
        return None
    answer, words = context.answer, context.turn.wire.error_body(said or b"")
    verdict = classify(
        answer.status,
        answer.headers,
        words,
        request=words_sent(context.turn, context.shown),
        near_window=context.is_near_window,
    )
    return verdict if isinstance(verdict, Overflow) and verdict.kind == "prompt" else None


def _note_failure(context: RelayContext, outcome: Outcome, *, is_kept: bool) -> None:
    """Note in the request log that a status 200 held no answer, or one too long to store."""
    if outcome.state == "failed":
        context.client.entry.refused("no_answer" if is_kept else "answer_too_long_to_store")


async def _rest(chunks: AsyncIterator[bytes]) -> bytes:
    """What follows an error within LINGER_SECONDS."""
    pieces = bytearray()
    with suppress(TimeoutError, UpstreamError):
        async with asyncio.timeout(LINGER_SECONDS):
            async for chunk in chunks:
                pieces += chunk
    return bytes(pieces)


def _with_rounds(context: RelayContext, outcome: Outcome) -> Outcome:
    """The outcome with the rounds that the client did not see."""
    return replace(outcome, hidden=context.hidden_log.rounds) if context.hidden_log else outcome


def _object_of(error: PalimpsestError) -> dict[str, str | None]:
    """The error as the API's error object."""
    return {"message": error.message, "type": error.type, "param": error.param, "code": error.code}


def length_of(headers: Sequence[tuple[bytes, bytes]]) -> int | None:
    """The stated content length, None without one; no event of ours can be added to such an answer."""
    found = (int(value) for name, value in headers if name.lower() == b"content-length")
    return next(found, None)


def _is_coded(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    codings = [value.strip().lower() for name, value in headers if name.lower() == b"content-encoding"]
    return any(coding not in (b"", b"identity") for coding in codings)
