"""Step 6 of an exchange: the request goes upstream, and goes again, smaller, when it was too long (A29).

Knows nothing of how a view is made. The upstream's own errors go to the client unchanged.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Literal

from app.core.wire.json_text import encoded
from app.errors import UpstreamError
from app.proxy.answering.kinds import Arriving, Kind, kind_of
from app.proxy.answering.outcomes import state_of_status
from app.proxy.answering.outgoing import Destinations
from app.proxy.answering.own_compactions import OwnCompactions
from app.proxy.answering.previous import KeptAnswers
from app.proxy.answering.recovering import Recovery, RefusedView, words_sent
from app.proxy.answering.relay import Passage, Relay
from app.proxy.client import Client
from app.proxy.hidden.happening import Happening
from app.proxy.incoming import Headers
from app.proxy.recall.recalling import Recalling
from app.proxy.reports import compaction_comment, exchange_headers
from app.proxy.sessions.recorder import Outcome, Recorder
from app.proxy.turn import Shown, Turn
from app.upstream.decoding import decoder_for
from app.upstream.headers import OF_THE_BYTES, answer_headers
from app.upstream.overflow import Overflow, classify
from app.upstream.request_words import RequestWords

# An error says what is wrong in its first lines; HTML pages of gateways are longer, and relayed too.
ERROR_BYTES = 4 * 1024 * 1024
_TYPE = b"content-type"
Notify = Literal["none", "header", "comment", "event"]
# A stream in a coding, or of a length that was announced, takes no comment of ours.
OF_THE_STREAM = frozenset({b"content-encoding", b"content-length"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """An upstream's error answer, whole, and whether it says "too long"."""

    status: int
    headers: Headers
    body: bytes
    overflow: Overflow | None


@dataclass(frozen=True, slots=True)
class Sending:
    """Where requests go, with which headers, and how a client hears of a compaction (E09).

    `recalling` adds our own tools where the view is made for them; `kept` knows which answers an upstream
    has; `compactions` answers what asks for one, where that is not the upstream's.
    """

    destinations: Destinations
    notify: Notify
    recalling: Recalling
    kept: KeptAnswers
    compactions: OwnCompactions


class Delivery:
    """Sends a turn's view upstream and hands the answer to the relay."""

    def __init__(self, sending: Sending, recorder: Recorder, relay: Relay, recovery: Recovery) -> None:
        self._sending = sending
        self._recorder = recorder
        self._relay = relay
        self._recovery = recovery

    def prepared(self, turn: Turn) -> Turn:
        """The turn as its upstream takes it."""
        turn = self._sending.compactions.prepared(turn)
        named = self._sending.destinations.of(turn.model).named(turn.request)
        return turn if named is turn.request else replace(turn, request=named)

    async def deliver(self, turn: Turn, shown: Shown, client: Client, *, may_compact: bool) -> None:
        """The client has its answer, or the upstream's error."""
        own = self._sending.compactions
        refused: list[RefusedView] = []
        while not (may_compact and own.answers(turn)):
            refusal = await self._attempt(self.prepared(turn), shown, client, may_compact=may_compact)
            if refusal is None:
                if refused:
                    await self._recovery.succeeded(turn, shown, refused)
                return
            status, body = refusal.status, refusal.body
            if may_compact and own.are_refused(turn, status, body):
                continue
            if self._sending.kept.are_forgotten(turn, status, body):
                continue
            smaller = None
            if may_compact and refusal.overflow is not None:
                refused.append(RefusedView(shown, refusal.overflow))
                smaller = await self._recovery.smaller(turn, refused)
            if smaller is None:
                await self._refused(turn, shown, refusal, client)
                return
            shown = smaller
        await own.answer(turn, client)

    async def _attempt(
        self, turn: Turn, shown: Shown, client: Client, *, may_compact: bool
    ) -> Refusal | None:
        """One try; None when the answer has been relayed."""
        happening = self._sending.recalling.begun(turn, shown) if shown.has_our_tools else None
        opening = self._opening(turn, shown, happening)
        near = self._recovery.is_near_window(turn, shown)
        relaying = False
        client.entry.forwarded(self._sending.destinations.of(turn.model).upstream.origin, turn, shown)
        try:
            async with opening as answer:
                if answer.status >= 300:
                    return await _refusal(answer, words_sent(turn, shown), near_window=near)
                kind = await kind_of(answer, asked_for_stream=turn.request.stream)
                client.entry.answered()
                relaying = True
                told, comment = self._told(turn, shown), self._comment(turn, shown, answer, kind)
                late = may_compact and self._recovery.may_fail_late(turn, shown)
                passage = Passage(
                    turn, shown, answer, kind, client, told, may_compact, near, late, comment, happening
                )
                return await self._relayed(passage)
        except UpstreamError:
            # Once it is relaying, the relay records.
            if not relaying:
                await self._recorder.note(turn, shown, Outcome(state="failed", status=None))
            raise
        except asyncio.CancelledError:
            if not relaying:
                self._recorder.abandon(turn, shown)
            raise

    def _opening(
        self, turn: Turn, shown: Shown, happening: Happening | None
    ) -> AbstractAsyncContextManager[Arriving]:
        """How the view goes upstream, with our tools where they are offered."""
        there = self._sending.destinations.of(turn.model)
        headers = there.outgoing(turn.incoming.headers)
        kept = self._sending.kept
        worded = kept.worded(turn)
        if happening is not None:
            return self._sending.recalling.open(worded, shown, headers, happening)
        body = body_of(worded, shown, goes_on=kept.goes_on(turn), may_pass=worded is turn)
        if body is not turn.incoming.body:
            headers = [header for header in headers if header[0].lower() not in OF_THE_BYTES]
        return there.upstream.open("POST", there.outgoing.target(turn.incoming.target), headers, body)

    async def _relayed(self, passage: Passage) -> Refusal | None:
        relays = self._relay.body if passage.kind == "whole" else self._relay.stream
        failed = await relays(passage)
        if failed is None:
            return None
        return Refusal(passage.answer.status, passage.answer.headers, failed.body, failed.overflow)

    def _told(self, turn: Turn, shown: Shown) -> list[tuple[bytes, bytes]]:
        return exchange_headers(turn, shown, tells_view=self._sending.notify == "header")

    def _comment(self, turn: Turn, shown: Shown, answer: Arriving, kind: Kind) -> bytes:
        """What stands before the first event of a stream: never where it would be no part of it."""
        is_plain = kind == "events" and not any(name.lower() in OF_THE_STREAM for name, _ in answer.headers)
        return compaction_comment(turn, shown) if is_plain and self._sending.notify == "comment" else b""

    async def _refused(self, turn: Turn, shown: Shown, refusal: Refusal, client: Client) -> None:
        """The upstream's error, as it came, after it is recorded that the exchange ended so."""
        outcome = Outcome(state=state_of_status(refusal.status), status=refusal.status)
        await self._recorder.note(turn, shown, outcome)
        headers = [*answer_headers(refusal.headers), *self._told(turn, shown)]
        if refusal.overflow is not None:
            client.entry.refused("context_length_exceeded")
        await client.start(refusal.status, headers)
        await client.end(refusal.body)


def body_of(turn: Turn, shown: Shown, *, goes_on: bool, may_pass: bool) -> bytes:
    """The client's own bytes while nothing is changed (P1), else the same body with other messages.

    `goes_on`: what was said before is left to the upstream's memory. `may_pass` is false where items that the
    client only named are told.
    """
    request = turn.request
    is_as_sent = goes_on or not (turn.is_delta or request.holds_ours)
    if shown.is_original and (goes_on or may_pass) and is_as_sent:
        return request.bared if request.is_bared else turn.incoming.body
    if shown.is_original:
        talk = turn.conversation
        return request.spliced([m.raw for m in (*talk.preamble, *talk.messages)])
    return request.spliced(shown.view.messages)


async def _refusal(answer: Arriving, request: RequestWords, *, near_window: bool) -> Refusal:
    """What the upstream said; where that breaks off its status stays, with words of ours."""
    try:
        body = await answer.read(ERROR_BYTES)
    except UpstreamError as cut:
        kept = [field for field in answer_headers(answer.headers, "replaced") if field[0].lower() != _TYPE]
        told = {"message": cut.message, "type": cut.type, "param": cut.param, "code": cut.code}
        return Refusal(answer.status, [*kept, (_TYPE, b"application/json")], encoded({"error": told}), None)
    decoder = decoder_for(answer.headers, ERROR_BYTES)
    plain = decoder.feed(body) if decoder else b""
    verdict = classify(answer.status, answer.headers, plain, request=request, near_window=near_window)
    return Refusal(answer.status, answer.headers, body, verdict if isinstance(verdict, Overflow) else None)
