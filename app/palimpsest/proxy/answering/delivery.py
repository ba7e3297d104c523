"""Step 6 of an exchange: sends the request upstream, and sends a smaller one when it was too long (A29).

The upstream's own errors go to the client unchanged.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Literal

from palimpsest.core.recall.rounds.offer import offering
from palimpsest.core.wire.json_text import encoded
from palimpsest.errors import UpstreamError
from palimpsest.proxy.answering.overflow_recovery import Recovery, RefusedView
from palimpsest.proxy.answering.own_compactions import OwnCompactions
from palimpsest.proxy.answering.relay import Refusal, Relay, RelayMeans
from palimpsest.proxy.destinations import Destinations, KeptAnswers
from palimpsest.proxy.incoming import IncomingAnswer, kind_of, read_of
from palimpsest.proxy.jobs import offload
from palimpsest.proxy.lookups import HiddenRoundLog, RecallRounds
from palimpsest.proxy.reports import Client, RequestEntry, compaction_comment, exchange_headers
from palimpsest.proxy.sessions.recorder import state_of_status
from palimpsest.proxy.turn import ForwardedView, Outcome, Turn
from palimpsest.upstream.headers import OF_THE_BYTES, answer_headers
from palimpsest.upstream.overflow import SentRequest, classify

# Errors are short; the HTML error pages of gateways are longer and are relayed too.
ERROR_BYTES = 4 * 1024 * 1024
_TYPE = b"content-type"
Notify = Literal["none", "header", "comment", "event"]
# No comment can be added to a stream with a content coding or a stated length.
OF_THE_STREAM = frozenset({b"content-encoding", b"content-length"})


@dataclass(frozen=True, slots=True)
class Delivery:
    """Sends a turn's view upstream and relays the answer.

    `notify`: how a client learns of a compaction (E09). `recalling` sends requests with our own tools; `kept`
    tracks which answers an upstream still has; `compactions` answers requests for a compaction where the
    proxy makes them.
    """

    destinations: Destinations
    notify: Notify
    recalling: RecallRounds
    kept: KeptAnswers
    compactions: OwnCompactions
    recovery: Recovery
    relaying: RelayMeans

    def prepared(self, turn: Turn, *, is_off: bool = False) -> Turn:
        """The turn as its upstream accepts it: fields and model name adapted."""
        if turn.wire.has_compactions:
            turn = self.compactions.prepared(turn, is_off=is_off)
        named = self.destinations.of(turn.model).named(turn.request)
        return turn if named is turn.request else replace(turn, request=named)

    async def deliver(self, turn: Turn, shown: ForwardedView, client: Client, *, may_compact: bool) -> None:
        """Relay the answer, or the upstream's error, to the client."""
        own = self.compactions if may_compact and turn.wire.has_compactions else None
        refused: list[RefusedView] = []
        while own is None or not own.answers(turn):
            refusal = await self._attempt(
                self.prepared(turn, is_off=shown.is_off), shown, client, may_compact=may_compact
            )
            if refusal is None:
                if refused:
                    await self.recovery.succeeded(turn, shown, refused)
                return
            status, body = refusal.status, refusal.body
            if own is not None and own.are_refused(turn, status, body):
                continue
            if turn.wire.keeps_answers and self.kept.are_forgotten(turn, status, body):
                continue
            smaller = None
            if may_compact and refusal.overflow is not None:
                refused.append(RefusedView(shown, refusal.overflow))
                smaller = await self.recovery.smaller(turn, refused)
            if smaller is None:
                await self._refused(turn, shown, refusal, client)
                return
            shown = smaller
        await own.answer(turn, client)

    async def _attempt(
        self, turn: Turn, shown: ForwardedView, client: Client, *, may_compact: bool
    ) -> Refusal | None:
        """Send the view once; None when the answer has been relayed."""
        await self.relaying.recorder.reserve(turn, shown, client.entry)
        hidden_log = self.recalling.begun(turn, shown) if shown.has_our_tools else None
        opening, body = self._opening(turn, shown, hidden_log, client.entry)
        client.entry.body_digest = await offload(len(body), _digest, body)
        sent = self.recovery.sent(turn, shown)
        relaying = False
        client.entry.forwarded(self.destinations.of(turn.model).upstream.origin, turn, shown)
        try:
            async with opening as answer:
                if answer.status >= 300:
                    return await _refusal(answer, sent)
                kind = await kind_of(answer, asked_for_stream=turn.request.stream)
                client.entry.answered()
                relaying = True
                comment = b""
                if kind == "events" and self.notify == "comment":
                    is_plain = not any(name.lower() in OF_THE_STREAM for name, _ in answer.headers)
                    comment = compaction_comment(turn, shown) if is_plain else b""
                late = may_compact and self.recovery.may_fail_late(turn, shown)
                relay = Relay(
                    *(self.relaying, turn, shown, answer, kind, client, self._headers(turn, shown)),
                    *(sent if may_compact else None, late, comment, hidden_log),
                )
                return await (relay.body() if kind == "whole" else relay.stream())
        except UpstreamError as error:
            # Once relaying has begun, the relay records the outcome.
            if not relaying:
                client.entry.failed(error)
                await self.relaying.recorder.note(
                    turn, shown, Outcome(state="failed", status=None), client.entry
                )
            raise

    def _opening(
        self, turn: Turn, shown: ForwardedView, hidden_log: HiddenRoundLog | None, entry: RequestEntry
    ) -> tuple[AbstractAsyncContextManager[IncomingAnswer], bytes]:
        """The upstream request for the view, with our tools if they are offered; and its body, decoded."""
        there = self.destinations.of(turn.model)
        entry.sent_headers = headers = there.outgoing(turn.incoming.headers)
        kept = self.kept if turn.wire.keeps_answers else None
        complete = kept.with_items(turn) if kept else turn
        if hidden_log is not None:
            body = offering(complete.request, shown.replayed)
            return self.recalling.open(complete, shown, headers, body, hidden_log), body
        body = body_of(
            complete,
            shown,
            may_continue=kept is not None and kept.may_continue(turn),
            may_pass=complete is turn,
        )
        if body is not turn.incoming.body:
            headers = [header for header in headers if header[0].lower() not in OF_THE_BYTES]
        plain = turn.request.body if body is turn.incoming.body else body
        return there.upstream.open("POST", there.outgoing.target(turn.incoming.target), headers, body), plain

    def _headers(self, turn: Turn, shown: ForwardedView) -> list[tuple[bytes, bytes]]:
        return exchange_headers(turn, shown, includes_view=self.notify == "header")

    async def _refused(self, turn: Turn, shown: ForwardedView, refusal: Refusal, client: Client) -> None:
        """Record the outcome, then send the upstream's error unchanged."""
        outcome = Outcome(state=state_of_status(refusal.status), status=refusal.status)
        is_long = refusal.overflow is not None
        client.entry.refused(
            "context_length_exceeded" if is_long else "upstream_status", refusal.plain or refusal.body
        )
        await self.relaying.recorder.note(turn, shown, outcome, client.entry)
        headers = [*answer_headers(refusal.headers), *self._headers(turn, shown)]
        await client.start(refusal.status, headers)
        await client.end(refusal.body)


def _digest(body: bytes) -> bytes:
    return sha256(body).digest()


def body_of(turn: Turn, shown: ForwardedView, *, may_continue: bool, may_pass: bool) -> bytes:
    """The client's own bytes while nothing is changed (P1), else the same body with other messages.

    `may_continue`: the request refers to earlier messages that the upstream keeps. `may_pass` is false if
    items that the client only referenced were replaced by their text.
    """
    request = turn.request
    is_as_sent = may_continue or not (turn.is_delta or request.holds_own_compaction)
    if shown.is_original and (may_continue or may_pass) and is_as_sent:
        return request.edited_body if request.has_edits else turn.incoming.body
    if shown.is_original:
        talk = turn.conversation
        return request.spliced([m.raw for m in (*talk.preamble, *talk.messages)])
    return request.spliced(shown.view.messages)


async def _refusal(answer: IncomingAnswer, sent: SentRequest) -> Refusal:
    """The upstream's error; when its body breaks off, its status with an error body of ours."""
    try:
        read = await read_of(answer, ERROR_BYTES)
        if read.rest is not None:
            raise UpstreamError("The upstream's answer is larger than the limit.")
    except UpstreamError as cut:
        kept = [field for field in answer_headers(answer.headers, "replaced") if field[0].lower() != _TYPE]
        error = {"message": cut.message, "type": cut.type, "param": cut.param, "code": cut.code}
        return Refusal(answer.status, [*kept, (_TYPE, b"application/json")], encoded({"error": error}), None)
    overflow = classify(answer.status, answer.headers, read.plain, sent)
    return Refusal(answer.status, answer.headers, read.raw, overflow, read.plain)
