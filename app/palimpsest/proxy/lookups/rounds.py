"""Requests with our tools: executes the model's calls in hidden rounds; the client gets the last round.

The last round looks like any upstream answer and is relayed, held back and recorded as one. Earlier rounds
are collected in a `HiddenRoundLog`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from palimpsest.core.budget.upstream_counts import as_theirs
from palimpsest.core.recall.rounds.calls import Called, called_by
from palimpsest.core.recall.rounds.hidden import client_answer
from palimpsest.core.recall.rounds.offer import offering
from palimpsest.core.recall.rounds.responses import answer_for_prompt
from palimpsest.core.wire.chat_answers import AnsweredChoice, WholeAnswer
from palimpsest.core.wire.request import Wire
from palimpsest.proxy.answer_kinds import IncomingAnswer, kind_of
from palimpsest.proxy.destinations import Destination, Destinations
from palimpsest.proxy.incoming import Headers
from palimpsest.proxy.kept_answers import RefusalMemory
from palimpsest.proxy.lookups.executing import ToolExecutor
from palimpsest.proxy.lookups.hidden_rounds import HiddenRoundLog
from palimpsest.proxy.lookups.streaming import (
    ReadAnswer,
    RoundLimits,
    Spilled,
    StreamedRounds,
    read_of,
    without_length,
)
from palimpsest.proxy.sessions.recorder import state_of_status
from palimpsest.proxy.turn import ForwardedView, Turn
from palimpsest.upstream.decoding import decoder_for
from palimpsest.upstream.headers import OF_THE_BYTES
from palimpsest.upstream.overflow import Overflow, RequestWords, classify

# Errors are short.
_ERROR_BYTES = 4 * 1024 * 1024
_NOT_OURS = Called((), 0, is_hidden=False)


@dataclass(frozen=True, slots=True)
class RoundMeans:
    """What rounds work with."""

    destinations: Destinations
    executing: ToolExecutor
    refusing: RefusalMemory
    limits: RoundLimits


class Rounds:
    """The rounds of one request.

    `may_hide` is true while the model is offered our tools and may use them; `client_answer` is the answer as
    the client gets it.
    """

    def __init__(
        self, means: RoundMeans, turn: Turn, shown: ForwardedView, hidden_log: HiddenRoundLog, opener: Opener
    ) -> None:
        self._means = means
        self._turn = turn
        self._hidden_log = hidden_log
        self._opener = opener
        # The view without rounds of earlier turns, for requests without our tools.
        self._view = shown.view.messages
        self._prompt_tokens = shown.tokens
        self._messages = list(shown.replayed)
        self._offers_tools = True
        self._done = 0
        self.limits = means.limits
        self.may_hide = means.limits.rounds > 0
        self.client_answer = client_answer(turn.wire)

    async def begun(self, body: bytes) -> IncomingAnswer:
        """The answer for the client to a body with our tools: the upstream's own unless it calls them."""
        answer: IncomingAnswer = await self._ask(body)
        if answer.status == 400:
            return await self._refused(answer)
        if answer.status >= 300 or decoder_for(answer.headers, self.limits.answer_bytes) is None:
            return answer
        kind = await kind_of(answer, asked_for_stream=self._turn.request.stream)
        if kind == "whole":
            return await self._whole(answer)
        streamed = StreamedRounds(self, answer, kind)
        self._opener.stack.push_async_callback(streamed.close)
        return streamed

    async def again(self, choice: AnsweredChoice, called: Called, tokens: int) -> IncomingAnswer:
        """Execute the calls and ask for the next round.

        If the upstream refuses it, ask again without our tools, then without their results.
        """
        self._done += 1
        self._differs()
        if (bill := self._turn.incoming.bill) is not None:
            # The client's answer states the last prompt alone.
            rounds = self._hidden_log.rounds
            prompt = self._prompt_tokens + (rounds.tokens if rounds is not None else 0)
            bill.hidden += as_theirs(prompt, self._turn.ratio)
        self.client_answer.hidden(tokens, None)
        may_call = self._done < self.limits.rounds
        self.may_hide = self._done <= self.limits.rounds
        request = self._turn.request
        if self.may_hide:
            await self._carry_out(choice, called)
            answer = await self._ask(offering(request, self._messages, may_call=may_call))
        else:
            # It called tools despite `tool_choice`, which not every server honours.
            answer = await self._ask(request.spliced(self._messages))
        for messages in (self._messages, self._view):
            if answer.status < 300 or state_of_status(answer.status) != "rejected":
                break
            self.may_hide = self._offers_tools = False
            is_too_long = await self._is_too_long(answer)
            if is_too_long or messages is self._view:
                self._hidden_log.clear()
                messages = self._view
            answer = await self._ask(request.spliced(messages))
            if is_too_long:
                break
        return answer

    async def _carry_out(self, choice: AnsweredChoice, called: Called) -> None:
        # The calls and the next answer need room too.
        room = self._hidden_log.left_tokens * 2 // 3
        messages = [
            self._sent_back(choice),
            *await self._means.executing.tool_messages(self._turn, called.ours, room),
        ]
        self._messages += messages
        self._hidden_log.add(messages)

    def ended(self, choice: AnsweredChoice | None, called: Called) -> None:
        """The client gets this round; if it calls both kinds of tools, ours are executed later."""
        if choice is not None and called.is_mixed and self._offers_tools:
            self._hidden_log.keep_answer(self._sent_back(choice))
        if called.ours:
            self._differs()

    def _differs(self) -> None:
        if self._turn.wire.keeps_answers:
            self._hidden_log.mark_different()

    def _sent_back(self, choice: AnsweredChoice) -> bytes:
        is_kept = self._turn.request.members(("store",)).get("store") is not False
        return answer_for_prompt(choice.message_body, is_kept=is_kept)

    async def _whole(self, answer: IncomingAnswer) -> IncomingAnswer:
        """As `begun`, for answers that are no stream."""
        while True:
            read = await read_of(answer, self.limits.answer_bytes)
            if isinstance(read, Spilled):
                return read
            choice, called, tokens = _said(self._turn.wire, read.plain)
            if choice is None or not (self.may_hide and called.is_hidden):
                self.ended(choice, called)
                return self._visible(read, called)
            self.client_answer.hidden(0, read.plain)
            answer = await self.again(choice, called, tokens)
            if answer.status >= 300:
                return answer

    def _visible(self, read: ReadAnswer, called: Called) -> IncomingAnswer:
        body = self.client_answer.whole(read.plain, called)
        if body == read.plain:
            return read
        return ReadAnswer(read.status, without_length(read.headers), body, body)

    async def _refused(self, answer: IncomingAnswer) -> IncomingAnswer:
        """Handle a 400: unless the prompt is too long, ask again without our tools (rule 31)."""
        read = await read_of(answer, _ERROR_BYTES)
        if isinstance(read, Spilled) or self._says_too_long(read):
            return read
        self.may_hide = self._offers_tools = False
        plain: IncomingAnswer = await self._ask(self._turn.request.spliced(self._view))
        if plain.status < 300:
            self._means.refusing.remember(self._turn.namespace, self._turn.model)
        return plain

    async def _is_too_long(self, answer: IncomingAnswer) -> bool:
        read = await read_of(answer, _ERROR_BYTES)
        return isinstance(read, ReadAnswer) and self._says_too_long(read)

    def _says_too_long(self, read: ReadAnswer) -> bool:
        sent = RequestWords((self._turn.request.body, *self._messages))
        return isinstance(classify(read.status, read.headers, read.plain, request=sent), Overflow)

    async def _ask(self, body: bytes) -> IncomingAnswer:
        return await self._opener.open(self._turn.incoming.target, body)


@dataclass(frozen=True, slots=True)
class Opener:
    """Sends the rounds of one request, each with the same headers; `stack` closes them."""

    there: Destination
    headers: list[tuple[bytes, bytes]]
    stack: AsyncExitStack

    async def open(self, target: str, body: bytes) -> IncomingAnswer:
        """The answer to one round. UpstreamError."""
        asked = self.there.outgoing.target(target)
        opening = self.there.upstream.open("POST", asked, self.headers, body)
        return await self.stack.enter_async_context(opening)


@asynccontextmanager
async def opened_rounds(
    means: RoundMeans,
    turn: Turn,
    shown: ForwardedView,
    headers: Headers,
    body: bytes,
    hidden_log: HiddenRoundLog,
) -> AsyncIterator[IncomingAnswer]:
    """As `Upstream.open`, for a request with our tools; leaving the context closes every round."""
    async with AsyncExitStack() as stack:
        opener = Opener(means.destinations.of(turn.model), _plain(headers), stack)
        yield await Rounds(means, turn, shown, hidden_log, opener).begun(body)


def _said(wire: Wire, body: bytes) -> tuple[AnsweredChoice | None, Called, int]:
    """The one choice of a whole answer, what it calls, and its completion tokens."""
    answer = wire.read_answer(body)
    if not isinstance(answer, WholeAnswer) or len(answer.choices) != 1:
        return None, _NOT_OURS, 0
    choice = answer.choices[0]
    return choice, called_by(choice), answer.usage.completion_tokens or 0


def _plain(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The headers for an answer without content coding, because its frames are rewritten."""
    dropped = OF_THE_BYTES | {b"accept-encoding"}
    return [*[h for h in headers if h[0].lower() not in dropped], (b"Accept-Encoding", b"identity")]


@dataclass(frozen=True, slots=True)
class RecallRounds:
    """Opens requests with our tools."""

    means: RoundMeans

    def begun(self, turn: Turn, shown: ForwardedView) -> HiddenRoundLog:
        """The empty log of hidden rounds for one attempt."""
        return HiddenRoundLog(self.means.executing.count_for(turn.model), shown.room_tokens)

    def open(
        self, turn: Turn, shown: ForwardedView, headers: Headers, body: bytes, hidden_log: HiddenRoundLog
    ) -> AbstractAsyncContextManager[IncomingAnswer]:
        """As `Upstream.open`, for a body with our tools; yields the answer for the client."""
        return opened_rounds(self.means, turn, shown, headers, body, hidden_log)
