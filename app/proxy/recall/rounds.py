"""Answers whose calls to our tools are carried out on the way: the client hears the last of several rounds.

What comes of it looks like one answer of the upstream's, so that it is relayed, held back and recorded as any
other; what went before it is gathered in a `Happening`. Knows nothing of recording.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from app.core.recall.rounds.calls import Called, called_by
from app.core.recall.rounds.items import sent_back
from app.core.recall.rounds.offer import offering
from app.core.recall.rounds.told import told_on
from app.core.wire.answered import AnsweredChoice
from app.core.wire.chat_answer import Answer
from app.core.wire.chat_request import Wire
from app.core.wire.wires import answer_of
from app.proxy.answering.kinds import Arriving, kind_of
from app.proxy.answering.outcomes import state_of_status
from app.proxy.answering.outgoing import Destination, Destinations
from app.proxy.hidden.happening import Happening
from app.proxy.incoming import Headers
from app.proxy.recall.answers import Read, Spilled, read_of, without_length
from app.proxy.recall.executing import Executing
from app.proxy.recall.refusing import Refusing
from app.proxy.recall.streaming import RoundLimits, StreamedRounds
from app.proxy.turn import Shown, Turn
from app.upstream.decoding import decoder_for
from app.upstream.headers import OF_THE_BYTES
from app.upstream.overflow import Overflow, classify
from app.upstream.request_words import RequestWords

# An error says what is wrong in its first lines.
_ERROR_BYTES = 4 * 1024 * 1024
_NOT_OURS = Called((), 0, is_hidden=False)


@dataclass(frozen=True, slots=True)
class RoundMeans:
    """What rounds are carried out with; one for the application."""

    destinations: Destinations
    executing: Executing
    refusing: Refusing
    limits: RoundLimits


class Rounds:
    """The rounds of one request.

    `may_hide` is true while the model is offered our tools and may use them; `told` is what the client is
    told of them all.
    """

    def __init__(
        self, means: RoundMeans, turn: Turn, shown: Shown, happening: Happening, opener: Opener
    ) -> None:
        self._means = means
        self._turn = turn
        self._happening = happening
        self._opener = opener
        # Without our tools nothing of earlier rounds is told either.
        self._view = shown.view.messages
        self._messages = list(shown.replayed)
        self._is_told = True
        self._done = 0
        self.limits = means.limits
        self.may_hide = means.limits.rounds > 0
        self.told = told_on(turn.request.wire)

    async def begun(self) -> Arriving:
        """The answer that the client is to have: the upstream's own while nothing is called."""
        answer: Arriving = await self._ask(offering(self._turn.request, self._messages))
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

    async def again(self, choice: AnsweredChoice, called: Called, tokens: int) -> Arriving:
        """The answer of the next round, behind the results of what this one called.

        Where the upstream refuses it: without our tools, then without what they found.
        """
        self._done += 1
        self._differs()
        self.told.hidden(tokens, None)
        may_call = self._done < self.limits.rounds
        self.may_hide = self._done <= self.limits.rounds
        request = self._turn.request
        if self.may_hide:
            await self._carry_out(choice, called)
            answer = await self._ask(offering(request, self._messages, may_call=may_call))
        else:
            # Told to call nothing it called all the same: not every server heeds a choice of tools.
            answer = await self._ask(request.spliced(self._messages))
        for messages in (self._messages, self._view):
            if answer.status < 300 or state_of_status(answer.status) != "rejected":
                break
            self.may_hide = self._is_told = False
            is_too_long = await self._is_too_long(answer)
            if is_too_long or messages is self._view:
                self._happening.forgotten()
                messages = self._view
            answer = await self._ask(request.spliced(messages))
            if is_too_long:
                break
        return answer

    async def _carry_out(self, choice: AnsweredChoice, called: Called) -> None:
        # The call itself and the answer to it need room as well.
        room = self._happening.left_tokens * 2 // 3
        told = [self._sent_back(choice), *await self._means.executing.told(self._turn, called.ours, room)]
        self._messages += told
        self._happening.told(told)

    def ended(self, choice: AnsweredChoice | None, called: Called) -> None:
        """The round is one that the client sees; of one that calls ours and theirs the rest is ours to do."""
        if choice is not None and called.is_mixed and self._is_told:
            self._happening.answered(self._sent_back(choice))
        if called.ours:
            self._differs()

    def _differs(self) -> None:
        """Of a chat completion the upstream keeps nothing that anybody goes on from."""
        if self._turn.request.wire == "responses":
            self._happening.differs()

    def _sent_back(self, choice: AnsweredChoice) -> bytes:
        is_kept = self._turn.request.members(("store",)).get("store") is not False
        return sent_back(choice.message_body, is_kept=is_kept)

    async def _whole(self, answer: Arriving) -> Arriving:
        """As `begun`, for answers that are not streamed."""
        while True:
            read = await read_of(answer, self.limits.answer_bytes)
            if isinstance(read, Spilled):
                return read
            choice, called, tokens = _said(self._turn.request.wire, read.plain)
            if choice is None or not (self.may_hide and called.is_hidden):
                self.ended(choice, called)
                return self._visible(read, called)
            self.told.hidden(0, read.plain)
            answer = await self.again(choice, called, tokens)
            if answer.status >= 300:
                return answer

    def _visible(self, read: Read, called: Called) -> Arriving:
        body = self.told.whole(read.plain, called)
        if body == read.plain:
            return read
        return Read(read.status, without_length(read.headers), body, body)

    async def _refused(self, answer: Arriving) -> Arriving:
        """A 400: too long, or an upstream that will not have our tools (rule 31): it goes without them."""
        read = await read_of(answer, _ERROR_BYTES)
        if isinstance(read, Spilled) or self._says_too_long(read):
            return read
        self.may_hide = self._is_told = False
        plain: Arriving = await self._ask(self._turn.request.spliced(self._view))
        if plain.status < 300:
            self._means.refusing.remember(self._turn.namespace, self._turn.model)
        return plain

    async def _is_too_long(self, answer: Arriving) -> bool:
        read = await read_of(answer, _ERROR_BYTES)
        return isinstance(read, Read) and self._says_too_long(read)

    def _says_too_long(self, read: Read) -> bool:
        sent = RequestWords((self._turn.request.body, *self._messages))
        return isinstance(classify(read.status, read.headers, read.plain, request=sent), Overflow)

    async def _ask(self, body: bytes) -> Arriving:
        return await self._opener.open(self._turn.incoming.target, body)


@dataclass(frozen=True, slots=True)
class Opener:
    """Sends the rounds of one request, each with the same headers; `stack` closes them."""

    there: Destination
    headers: list[tuple[bytes, bytes]]
    stack: AsyncExitStack

    async def open(self, target: str, body: bytes) -> Arriving:
        """The answer to one round. UpstreamError."""
        asked = self.there.outgoing.target(target)
        opening = self.there.upstream.open("POST", asked, self.headers, body)
        return await self.stack.enter_async_context(opening)


@asynccontextmanager
async def opened_rounds(
    means: RoundMeans, turn: Turn, shown: Shown, headers: Headers, happening: Happening
) -> AsyncIterator[Arriving]:
    """As `Upstream.open`, for a request with our tools; whatever ends it closes every round."""
    async with AsyncExitStack() as stack:
        opener = Opener(means.destinations.of(turn.model), _plain(headers), stack)
        yield await Rounds(means, turn, shown, happening, opener).begun()


def _said(wire: Wire, body: bytes) -> tuple[AnsweredChoice | None, Called, int]:
    """The one choice of a whole answer, what it calls, and its completion tokens."""
    answer = answer_of(wire, body)
    if not isinstance(answer, Answer) or len(answer.choices) != 1:
        return None, _NOT_OURS, 0
    choice = answer.choices[0]
    return choice, called_by(choice), answer.usage.completion_tokens or 0


def _plain(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Frames are changed on the way, so that the answer is asked for in no coding."""
    dropped = OF_THE_BYTES | {b"accept-encoding"}
    return [*[h for h in headers if h[0].lower() not in dropped], (b"Accept-Encoding", b"identity")]
