"""Steps 7 and 8 of an exchange: relays the answer, and stores it before its end is sent (P3).

An outcome is recorded however the exchange ends. When the client leaves or the server stops, a background job
records it, which is not cancelled with the request. After an answer come token counts, windows, checkpoints
and indexing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import NoReturn

import structlog

from palimpsest.core.wire.chat_answers import Usage, WholeAnswer
from palimpsest.errors import (
    AnswerNotStored,
    PalimpsestError,
    RequestError,
    StoreError,
    UpstreamCut,
    UpstreamError,
)
from palimpsest.proxy.answering.holdback import Holdback, PartialAnswer
from palimpsest.proxy.answering.overflow_recovery import CutPrompts
from palimpsest.proxy.compacting.viewing import ViewPlanner
from palimpsest.proxy.incoming import IncomingAnswer, Kind
from palimpsest.proxy.jobs import Jobs, offload
from palimpsest.proxy.lookups import HiddenRoundLog, MixedTurns
from palimpsest.proxy.model_facts import Windows
from palimpsest.proxy.recall.indexing import Indexer
from palimpsest.proxy.reports import Client
from palimpsest.proxy.session_journal import Remembers, SessionJournal
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.proxy.sessions.recorder import Recorder
from palimpsest.proxy.turn import ForwardedView, Outcome, Turn
from palimpsest.settings.serving import Limits
from palimpsest.storage.exchange_units import ExchangeState
from palimpsest.upstream.client import ends_with_connection
from palimpsest.upstream.decoding import decoder_for
from palimpsest.upstream.headers import answer_headers
from palimpsest.upstream.overflow import Overflow, SentRequest, classify


@dataclass(frozen=True, slots=True)
class Answered:
    """Called with every answer that has ended, right after it was stored."""

    viewing: ViewPlanner
    windows: Windows
    journal: SessionJournal
    indexing: Indexer
    cuts: CutPrompts
    remembers: Remembers

    def __call__(self, turn: Turn, shown: ForwardedView, outcome: Outcome) -> None:
        """Update journal, index, windows and calibration; these influence later plans only (rule 14)."""
        self.journal.answered(turn, outcome, self.remembers)
        self.journal.placed(turn)
        self.viewing.answer_stored(turn, shown, outcome)
        self.indexing.later(turn.namespace, turn.session)
        theirs = outcome.usage.prompt_tokens
        if theirs is None or outcome.state != "done":
            return
        self.windows.answered(turn.model, theirs)
        if not shown.has_our_tools:
            self.cuts.check(turn, shown, outcome)


# Wait after an error frame for what belongs to it, such as `[DONE]`.
LINGER_SECONDS = 1.0


# Marks an answer that was delivered although it could not be stored.
_NOT_STORED = ((b"x-palimpsest-store", b"unavailable"),)
_FAILED = Outcome(state="failed", status=200)
_log = structlog.get_logger("palimpsest.relay")


@dataclass(frozen=True, slots=True)
class RelayMeans:
    """What answers are relayed with; `answered` is called once one has ended.

    `delivers_unstored`: an answer that could not be stored is delivered anyway.
    """

    recorder: Recorder
    reader: MessageReader
    jobs: Jobs
    limits: Limits
    delivers_unstored: bool
    answered: Answered
    mixed: MixedTurns


@dataclass(frozen=True, slots=True)
class Refusal:
    """An upstream's whole error answer, as received; nothing of it was sent.

    `overflow` is set when it says that the prompt is too long. `plain`: without its coding.
    """

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    overflow: Overflow | None
    plain: bytes = b""


@dataclass(frozen=True, slots=True)
class Relay:
    """Relays one answer of status 200. `extra` are our own headers.

    `sent`: a smaller prompt may be sent if this answer reports that this one is too long; None: it may not.
    `may_fail_late`: the report may come after the opening events. `opening` is sent before the answer's first
    bytes. `hidden_log` collects the rounds that the client does not see; None without our tools.
    """

    means: RelayMeans
    turn: Turn
    shown: ForwardedView
    answer: IncomingAnswer
    kind: Kind
    client: Client
    extra: Sequence[tuple[bytes, bytes]]
    sent: SentRequest | None
    may_fail_late: bool
    opening: bytes
    hidden_log: HiddenRoundLog | None

    async def body(self) -> Refusal | None:
        """Read a whole answer, store it, then send it. One too large to hold is sent as it arrives.

        A Refusal, with nothing sent, when it is an error that says so; None when the relay is complete.
        """
        client, most_bytes = self.client, self.means.limits.answer_bytes
        pieces: list[bytes] = []
        size = 0
        try:
            async for chunk in self.answer.chunks():
                size += len(chunk)
                pieces.append(chunk)
                # Some servers send blank lines until the answer is there, so that nobody gives up.
                if size > most_bytes or (len(pieces) == 1 and chunk.isspace()):
                    await self._begin()
                    await client.body(b"".join(pieces))
                    pieces = []
        except (asyncio.CancelledError, UpstreamError) as error:
            if isinstance(error, UpstreamError):
                client.entry.failed(error)
            self.means.jobs.start(self._note(_FAILED))
            if client.started and isinstance(error, UpstreamError):
                raise UpstreamCut("The answer was cut.") from error
            raise
        whole = b"".join(pieces)
        outcome = _FAILED
        if size <= most_bytes:
            plain = whole
            if _is_coded(self.answer.headers):
                decoder = decoder_for(self.answer.headers, most_bytes)
                plain = decoder.feed(whole) if decoder else b""
            outcome = await self._heard(plain)
            if outcome.state == "failed" and plain and (overflow := self._overflow(plain)):
                return self._refusal(whole, overflow)
            client.entry.answer = outcome
        if not size and self.answer.status == HTTPStatus.OK:
            # An SDK that streams would take an empty body for a finished answer.
            empty = UpstreamCut("The upstream's answer is empty.")
            client.entry.failed(empty)
            await self._note(_FAILED)
            raise empty
        if outcome.state == "failed":
            # A status 200 with no answer, or one too long to store.
            is_short = size <= most_bytes
            said = plain if is_short else b""
            client.entry.refused("no_answer" if is_short else "answer_too_long_to_store", said)
        is_stored = await self._stored(outcome)
        self.means.answered(self.turn, self.shown, outcome)
        await self._begin(() if is_stored else _NOT_STORED)
        await client.end(whole)
        return None

    async def _heard(self, plain: bytes) -> Outcome:
        """The outcome of a whole answer; recorded also when the client leaves while a long one is read."""
        try:
            return await self._read(plain)
        except asyncio.CancelledError:
            self.means.jobs.start(self._noted(plain))
            raise

    async def _noted(self, plain: bytes) -> None:
        await self._note(await self._read(plain))

    async def _read(self, plain: bytes) -> Outcome:
        """The outcome of a whole answer; a body that is no answer is a failure, not in the transcript."""
        status, hidden = self.answer.status, self.hidden_log.rounds if self.hidden_log else None
        read = await offload(len(plain), self.turn.wire.read_answer, plain)
        if not isinstance(read, WholeAnswer):
            return Outcome(state="failed", status=status, hidden=hidden)
        try:
            bodies = [choice.message_body for choice in read.choices]
            answers = await self.means.reader.read_long_answers(bodies, self.turn.model)
        except RequestError:
            answers = ()
        is_whole = all(choice.is_whole for choice in read.choices)
        return Outcome(
            state=("done" if is_whole else "incomplete") if answers else "failed",
            status=status,
            answers=answers if is_whole else tuple([each for each in answers if each.can_stand_cut]),
            answer_state="live" if is_whole else "incomplete",
            finish_reason=read.choices[0].finish_reason if read.choices else None,
            usage=read.usage,
            response_id=read.response_id,
            hidden=hidden,
        )

    async def stream(self) -> Refusal | None:
        """Relay a stream. A Refusal, with nothing sent, when its first content event, or an empty stream,
        means "too long"; None when the relay is complete.

        A stream that ends properly does so for the client too, even without a sign that the answer is
        complete: it is then stored as incomplete.
        """
        headers, limits, jobs = self.answer.headers, self.means.limits, self.means.jobs
        holdback = Holdback(
            self.turn.wire.new_assembly(self.turn.request.n),
            decoder_for(headers, limits.answer_bytes),
            self.kind,
            is_coded=_is_coded(headers),
            frame_bytes=limits.frame_bytes,
            answer_bytes=limits.answer_bytes,
            length=_length_of(headers),
        )
        if self.may_fail_late:
            holdback.wait()
        with PartialAnswer(self.means.recorder, jobs, self.turn, holdback):
            is_committed = False
            try:
                chunks = self.answer.chunks()
                try:
                    async for chunk in chunks:
                        out = holdback.take(chunk)
                        if holdback.has_failed_early and (
                            overflow := self._overflow(holdback.assembly.error)
                        ):
                            said = out + holdback.release() + await _rest(chunks)
                            return self._refusal(said, overflow)
                        if holdback.is_waiting:
                            continue
                        await self._begin()
                        await self.client.body(out)
                        if holdback.is_closed and not is_committed:
                            await self._commit(holdback, self._outcome(holdback))
                            is_committed = True
                            await self.client.body(holdback.release())
                except UpstreamError as cut:
                    # The upstream broke off: the answer is stored as incomplete, the client told.
                    self.client.entry.failed(cut)
                    if not is_committed:
                        await self._commit(holdback, self._outcome(holdback))
                    if not self.client.started:
                        raise
                    await self.client.body(holdback.release())
                    await self._fail_in_band(holdback, cut)
                holdback.finish()
                if holdback.is_empty and (overflow := self._overflow(b"")):
                    return self._refusal(b"", overflow)
                await self._complete(holdback, is_committed=is_committed)
            except asyncio.CancelledError:
                if not is_committed:
                    jobs.start(self._note(self._outcome(holdback)))
                raise
        return None

    async def _complete(self, holdback: Holdback, *, is_committed: bool) -> None:
        """The body has ended properly: store what is not stored yet, then send what is held back."""
        if openings := holdback.openings():
            await self._begin()
            await self.client.body(openings)
        outcome, assembly = self._outcome(holdback), holdback.assembly
        if assembly.error is not None:
            self.client.entry.refused("error_in_stream", self.turn.wire.error_body(assembly.error))
        self.means.answered(self.turn, self.shown, outcome)
        if is_committed:
            await self.client.end()
            return
        await self._commit(holdback, outcome)
        is_unfinished = outcome.state != "done" and assembly.error is None and holdback.is_readable
        if is_unfinished and (holdback.is_empty or ends_with_connection(self.answer.headers)):
            # Empty, or delimited by the close of the connection alone, which may as well have broken.
            cut = UpstreamCut("The upstream ended its answer before it was complete.")
            await self._fail_in_band(holdback, cut)
        await self._begin()
        await self.client.end(holdback.release())

    def _refusal(self, body: bytes, overflow: Overflow) -> Refusal:
        return Refusal(self.answer.status, self.answer.headers, body, overflow)

    async def _note(self, outcome: Outcome) -> None:
        """Add the outcome to the record of the exchange."""
        await self.means.recorder.note(self.turn, self.shown, outcome, self.client.entry)

    async def _begin(self, more: Sequence[tuple[bytes, bytes]] = ()) -> None:
        if not self.client.started:
            headers = [*answer_headers(self.answer.headers), *self.extra, *more]
            await self.client.start(self.answer.status, headers)
            await self.client.body(self.opening)

    async def _stored(self, outcome: Outcome) -> bool:
        """Store the answer; False, or AnswerNotStored unless `delivers_unstored`, when that fails."""
        try:
            await self.means.recorder.close(self.turn, self.shown, outcome, self.client.entry)
        except StoreError as error:
            _log.error("answer_not_stored", error=type(error).__name__, session=self.turn.session)
            unstored = AnswerNotStored("The answer came and could not be stored.")
            if self.means.delivers_unstored:
                self.client.entry.failed(unstored)
                return False
            raise unstored from error
        if self.hidden_log is not None:
            self.means.mixed.stored(self.turn, outcome, self.hidden_log)
        return True

    async def _commit(self, holdback: Holdback, outcome: Outcome) -> None:
        try:
            await self._stored(outcome)
        except AnswerNotStored as error:
            await self._fail_in_band(holdback, error)

    async def _fail_in_band(self, holdback: Holdback, error: PalimpsestError) -> NoReturn:
        """Send an error event, then raise: a clean end of the stream would look like success to the SDKs.

        No event can be added to an answer that states its length.
        """
        if self.client.started and _length_of(self.answer.headers) is None:
            said = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
            await self.client.body(holdback.in_band(self.turn.wire.error_event(said)))
        raise error

    def _outcome(self, holdback: Holdback) -> Outcome:
        """The outcome of a streamed answer as received so far."""
        assembly = holdback.assembly
        choices, has_ended = assembly.choices(), assembly.is_finished or assembly.is_done
        is_whole = has_ended and assembly.error is None and not assembly.unreadable and holdback.is_readable
        is_whole = is_whole and all(choice.is_whole for choice in choices)
        try:
            bodies = [choice.message_body for choice in choices]
            answers = self.means.reader.read_answers(bodies, self.turn.model)
        except RequestError:
            answers = ()
        if not is_whole:
            # Only what can be continued: text without open calls.
            answers = tuple([message for message in answers if message.can_stand_cut])
        done: ExchangeState = "done" if is_whole else "incomplete"
        outcome = self.client.entry.answer = Outcome(
            state=done if answers or (choices and not is_whole) else "failed",
            status=200,
            answers=answers,
            answer_state="live" if is_whole else "incomplete",
            finish_reason=choices[0].finish_reason if choices else None,
            usage=assembly.usage or Usage(),
            response_id=assembly.response_id,
            hidden=self.hidden_log.rounds if self.hidden_log else None,
        )
        return outcome

    def _overflow(self, said: bytes | None) -> Overflow | None:
        """The overflow that an error reports, if a smaller prompt may still be sent."""
        if self.client.started or self.sent is None:
            return None
        answer, body = self.answer, self.turn.wire.error_body(said or b"")
        verdict = classify(answer.status, answer.headers, body, self.sent)
        return verdict if verdict is not None and verdict.kind == "prompt" else None


async def _rest(chunks: AsyncIterator[bytes]) -> bytes:
    """What follows an error within LINGER_SECONDS."""
    pieces = bytearray()
    with suppress(TimeoutError, UpstreamError):
        async with asyncio.timeout(LINGER_SECONDS):
            async for chunk in chunks:
                pieces += chunk
    return bytes(pieces)


def _length_of(headers: Sequence[tuple[bytes, bytes]]) -> int | None:
    """The stated content length, None without one."""
    return next((int(value) for name, value in headers if name.lower() == b"content-length"), None)


def _is_coded(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    codings = [value.strip().lower() for name, value in headers if name.lower() == b"content-encoding"]
    return any(coding not in (b"", b"identity") for coding in codings)
