"""Our tools in requests: offered to models, carried out in rounds that no client sees, and replayed (F23).

The last round looks like any upstream answer and is relayed, held back and recorded as one. Earlier rounds
are collected in a `HiddenRoundLog`. Each call leaves an event (`recall.tools`). An answer that also calls the
client's tools is stored and sent to its end before our calls run. Results that are not stored before the next
turn are never shown to the model, so that the upstream's prompt cache stays valid. Rounds are replayed only
in requests that offer our tools (rule 31): an upstream may refuse calls of tools that are not declared.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import structlog

from palimpsest.core.budget.upstream_counts import as_theirs
from palimpsest.core.history.message import Conversation, chain_of
from palimpsest.core.recall.rounds.calls import (
    NO_CALLS,
    Called,
    called_by,
    fitted,
    newest_words,
    recall_calls_in,
)
from palimpsest.core.recall.rounds.frames import FrameForm, Frames
from palimpsest.core.recall.rounds.hidden import HiddenRounds, client_answer, weighed
from palimpsest.core.recall.rounds.offer import may_offer, offering, schemas
from palimpsest.core.recall.rounds.responses import answer_for_prompt
from palimpsest.core.recall.tool_calls import DESCRIBE
from palimpsest.core.text.message_text import ToolCall
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.wire.chat import CHAT
from palimpsest.core.wire.chat_answers import AnsweredChoice, Usage, WholeAnswer
from palimpsest.core.wire.json_text import decoded
from palimpsest.core.wire.request import Wire
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.core.wire.streams import FrameSplitter, LineSplitter, data_of, data_of_line
from palimpsest.errors import InvalidField, UpstreamCut
from palimpsest.proxy.archive import rounds_shown
from palimpsest.proxy.destinations import Destinations, RefusalMemory
from palimpsest.proxy.incoming import (
    Headers,
    HeldAnswer,
    Incoming,
    IncomingAnswer,
    Kind,
    framed,
    kind_of,
    read_of,
)
from palimpsest.proxy.jobs import Jobs, logged
from palimpsest.proxy.model_facts import ModelTokens
from palimpsest.proxy.recall.tools import RecallTools, Where
from palimpsest.proxy.sessions.recorder import state_of_status
from palimpsest.proxy.turn import ForwardedView, Outcome, Subject, Turn
from palimpsest.settings.compacting import RecallSettings
from palimpsest.settings.serving import Limits
from palimpsest.storage.exchanges import Exchanges
from palimpsest.upstream.decoding import decoder_for
from palimpsest.upstream.headers import OF_THE_BYTES, answer_headers
from palimpsest.upstream.overflow import SentRequest, classify

Json = Mapping[str, Any]
_HEADER = b"x-palimpsest-recall"


class HiddenRoundLog:
    """Collects the hidden rounds of one attempt. `room_tokens`: by how much the prompt may grow."""

    def __init__(self, count: Callable[[Json], int], room_tokens: int) -> None:
        self._count = count
        self._left = room_tokens
        self._before: list[bytes] = []
        self._tokens = 0
        self._written: bytes | None = None
        self._differs = False
        # What the upstream states of each round.
        self.usages: list[Usage] = []

    @property
    def rounds(self) -> HiddenRounds | None:
        """The rounds to store; None if nothing was hidden."""
        if not self._before and self._written is None and not self._differs:
            return None
        written = self.tokens_of([self._written]) if self._written is not None else 0
        return HiddenRounds(tuple(self._before), self._tokens, self._written, None, written, self.usages)

    @property
    def left_tokens(self) -> int:
        """The room left in the prompt, at least 0."""
        return max(0, self._left)

    def tokens_of(self, messages: Sequence[bytes]) -> int:
        """The tokens of the messages in a prompt."""
        return sum([self._count(as_chat(decoded(message))) for message in messages])

    def add(self, messages: Sequence[bytes]) -> None:
        """Add messages that were appended to the prompt."""
        tokens = self.tokens_of(messages)
        self._before += messages
        self._tokens += tokens
        self._left -= tokens

    def clear(self) -> None:
        """Drop the messages so far: the model is asked again without them."""
        self._before.clear()
        self._tokens = 0

    def mark_different(self) -> None:
        """Note that the client's answer is not what the upstream keeps under the answer's id."""
        self._differs = True

    def keep_answer(self, message: bytes) -> None:
        """Keep the model's own answer, which calls both the client's tools and ours."""
        self._written = message


# Tool results are mostly quoted prose.
_CHARS_A_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Replay:
    """What our tools add to a conversation: `rounds` are the hidden rounds by the index of their answer.

    `schema_tokens`: tokens of our tools, 0 if they are not offered. `is_recorded`: a compaction made now
    records that they go with its view. `as_recorded`: they are sent only if the compaction in force records
    that. `talk`: the conversation with the tokens of the rounds added to their answers, None without rounds.
    `result_tokens`: the most that one look-up may take. Everything is in the form of `wire`.
    """

    schema_tokens: int = 0
    is_recorded: bool = False
    as_recorded: bool = False
    rounds: Mapping[int, HiddenRounds] = field(default_factory=dict)
    talk: Conversation | None = None
    result_tokens: int = 0
    wire: Wire = CHAT

    @property
    def offers(self) -> bool:
        """True when our tools may be sent with the request, once something is folded."""
        return self.schema_tokens > 0

    @property
    def reads_by(self) -> str:
        """The tool with which a model reads what is shown shortened; "" without one."""
        return DESCRIBE if self.offers else ""

    def goes_with(self, compaction: Compaction | None) -> bool:
        """True when our tools are sent with a view under this compaction; never before the first one."""
        return self.offers and compaction is not None and (not self.as_recorded or compaction.offers_tools)


NOTHING = Replay()


@dataclass(frozen=True, slots=True)
class Replays:
    """Decides whether our tools are offered (rule 31), and loads what they add to conversations.

    `is_enabled` and `is_chosen` read a session's own settings; `how` applies if it has chosen nothing.
    Nothing is offered while recall is not enabled, whatever a request asks for (C03), nor where the upstream
    is among those `refusing`.
    """

    exchanges: Exchanges
    tokens: ModelTokens
    refusing: RefusalMemory
    is_enabled: Callable[[bytes | None], bool]
    is_chosen: Callable[[bytes | None], bool | None]
    how: RecallSettings

    def offered(self, subject: Subject, own_settings: bytes | None, window_tokens: int) -> Replay:
        """The tokens of our tools, without rounds; nothing is read from the store.

        They are offered at once by the request's header or else the session's settings (C02), by the
        deployment's only if the compaction in force was made with them (rule 14). Never for a stored branch,
        which no model is asked about, and not if they would take too much of the window beside the client's
        own tools.
        """
        how, chosen = self.how, self.is_chosen(own_settings)
        is_enabled = self.is_enabled(own_settings)
        without = Replay(is_recorded=is_enabled and (how.tools if chosen is None else chosen))
        if not isinstance(subject, Turn) or (subject.namespace, subject.model) in self.refusing:
            return without
        asked = asked_for(subject.incoming)
        wanted = asked != "off" if asked else chosen
        if (
            not is_enabled
            or subject.incoming.asks_for_compaction
            or not (how.tools if wanted is None else wanted)
            or not may_offer(subject.request, without_tools=how.tools_for_all or asked == "always")
        ):
            return without
        tokens = max(1, self.tokens.schema_tokens(subject.model, schemas(subject.wire)))
        if tokens > how.tools_share * (window_tokens - subject.fixed_tokens):
            return without
        results = how.result_chars // _CHARS_A_TOKEN
        return Replay(tokens, without.is_recorded, wanted is None, result_tokens=results, wire=subject.wire)

    async def read(self, subject: Subject, offered: Replay, current: Compaction | None) -> Replay:
        """`offered` with the rounds of the answers that `current` leaves in the view. StoreError."""
        if not offered.offers:
            return offered
        talk = subject.conversation
        rounds = await rounds_shown(
            self.exchanges, subject.namespace, subject.session, talk, current, offered.wire
        )
        return replace(offered, rounds=rounds, talk=weighed(talk, rounds)) if rounds else offered


def asked_for(incoming: Incoming) -> str:
    """The X-Palimpsest-Recall header: on, always, off, or "" without one. InvalidField for another value.

    "always": also if the client sent no tools. RepeatedHeader when it occurs twice.
    """
    asked = (incoming.only(_HEADER) or "").strip().lower()
    if asked not in ("", "on", "always", "off"):
        raise InvalidField("X-Palimpsest-Recall is on, always or off.", param="X-Palimpsest-Recall")
    return asked


# Further calls get an error as result; each call is a search.
_AT_ONCE = 8
_TOO_MANY = '{"error":{"code":"too_many_calls","message":"At most 8 calls are carried out at a time."}}'
_NOT_ADMITTED = '{"error":{"code":"invalid_api_key","message":"This key opens the archive no more."}}'


@dataclass(frozen=True, slots=True)
class ToolExecutor:
    """Executes calls to our tools, while `admits` says that the credentials still open the namespace.

    A result has at most `result_chars` characters. `count_for` makes the message counter of a model.
    """

    tools: RecallTools
    admits: Callable[[Incoming, str], Awaitable[bool]]
    count_for: Callable[[str], Callable[[Mapping[str, Any]], int]]
    result_chars: int

    async def tool_messages(self, turn: Turn, calls: Sequence[ToolCall], room_tokens: int) -> list[bytes]:
        """The tool messages that answer the calls, in order, in at most `room_tokens` together.

        Failed calls have results too. Messages of the least possible size may exceed the room.
        """
        talk, results = turn.conversation, [_NOT_ADMITTED] * len(calls)
        if await self.admits(turn.incoming, turn.namespace):
            where = Where(turn.namespace, turn.session, talk.head, "branch")
            newest_user = newest_words([message.fields for message in talk.messages])
            results = [
                await self.tools.called(where, call.name, call.arguments, newest_user)
                for call in calls[:_AT_ONCE]
            ]
            results += [_TOO_MANY] * (len(calls) - len(results))
        count = self.count_for(turn.model)
        messages: list[bytes] = []
        for place, (call, result) in enumerate(zip(calls, results, strict=True)):
            share = room_tokens // (len(calls) - place)
            message, tokens = fitted(call, result, self.result_chars, share, count, turn.wire)
            messages.append(message)
            room_tokens -= tokens
        return messages


_log = structlog.get_logger("palimpsest.recall")


class MixedTurns:
    """Executes our calls in answers that also call the client's tools.

    The next turn waits for the results at most `wait_seconds`.
    """

    def __init__(
        self,
        exchanges: Exchanges,
        jobs: Jobs,
        executing: ToolExecutor,
        wait_seconds: float,
    ) -> None:
        self._exchanges = exchanges
        self._jobs = jobs
        self._executing = executing
        self._wait_seconds = wait_seconds
        # By namespace and session.
        self.running: dict[tuple[str, str], set[asyncio.Task[None]]] = {}

    def stored(self, turn: Turn, outcome: Outcome, hidden_log: HiddenRoundLog) -> None:
        """The answer is stored: execute its calls to our tools in the background."""
        hidden = outcome.hidden
        if hidden is None or hidden.written is None or len(outcome.answers) != 1:
            return
        key = turn.namespace, turn.session
        chain = chain_of(turn.conversation.head, outcome.answers[0].canonical)
        task = self._jobs.start(self._carried_out(turn, chain, hidden, hidden_log))
        running = self.running.setdefault(key, set())
        running.add(task)

        def ended(done: asyncio.Task[None]) -> None:
            running.discard(done)
            if not running:
                self.running.pop(key, None)

        task.add_done_callback(ended)

    async def settled(self, namespace: str, session: str) -> None:
        """Wait for running calls of the session's earlier answers, at most `wait_seconds`."""
        if running := self.running.get((namespace, session)):
            await asyncio.wait(running, timeout=self._wait_seconds)

    async def _carried_out(
        self, turn: Turn, chain: bytes, hidden: HiddenRounds, hidden_log: HiddenRoundLog
    ) -> None:
        # The results of the client's own tools need room too.
        room = (hidden_log.left_tokens - hidden.written_tokens) // 2
        messages = await self._executing.tool_messages(turn, recall_calls_in(hidden.written or b""), room)
        tokens = hidden.written_tokens + hidden_log.tokens_of(messages)
        # The next turn is valid without them.
        with logged(_log, "results_not_stored", session=turn.session):
            await self._exchanges.add_hidden_results(turn.namespace, turn.session, chain, messages, tokens)


# Errors are short.
_ERROR_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RecallRounds:
    """Opens requests with our tools; at most `most_rounds` of one are hidden."""

    destinations: Destinations
    executing: ToolExecutor
    refusing: RefusalMemory
    limits: Limits
    most_rounds: int

    def begun(self, turn: Turn, shown: ForwardedView) -> HiddenRoundLog:
        """The empty log of hidden rounds for one attempt."""
        return HiddenRoundLog(self.executing.count_for(turn.model), shown.room_tokens)

    @asynccontextmanager
    async def open(
        self, turn: Turn, shown: ForwardedView, headers: Headers, body: bytes, hidden_log: HiddenRoundLog
    ) -> AsyncIterator[IncomingAnswer]:
        """As `Upstream.open`, for a body with our tools; leaving the context closes every round."""
        # Without content coding, because the answer's frames are rewritten.
        dropped = OF_THE_BYTES | {b"accept-encoding"}
        plain = [*[h for h in headers if h[0].lower() not in dropped], (b"Accept-Encoding", b"identity")]
        async with AsyncExitStack() as stack:
            yield await _Rounds(self, turn, shown, hidden_log, plain, stack).begun(body)


class _Rounds:
    """The rounds of one request, each sent with the same headers; `stack` closes them."""

    def __init__(
        self,
        means: RecallRounds,
        turn: Turn,
        shown: ForwardedView,
        hidden_log: HiddenRoundLog,
        headers: list[tuple[bytes, bytes]],
        stack: AsyncExitStack,
    ) -> None:
        self._means = means
        self._turn = turn
        self._shown = shown
        self._hidden_log = hidden_log
        self._headers = headers
        self._stack = stack
        self._messages = list(shown.replayed)
        self._offers_tools = True
        self._done = 0
        # While the model is offered our tools and may use them.
        self._may_hide = True
        # The answer as the client gets it.
        self._client_answer = client_answer(turn.wire)

    async def begun(self, body: bytes) -> IncomingAnswer:
        """The answer for the client to a body with our tools: the upstream's own unless it calls them."""
        answer = await self._ask(body)
        if answer.status == 400:
            return await self._refused(answer)
        if answer.status >= 300 or decoder_for(answer.headers, self._means.limits.answer_bytes) is None:
            return answer
        kind = await kind_of(answer, asked_for_stream=self._turn.request.stream)
        if kind == "whole":
            return await self._whole(answer)
        shown = self._streamed(answer, kind)
        self._stack.push_async_callback(shown.aclose)
        headers = answer_headers(answer.headers, "decoded")
        return HeldAnswer(answer.status, headers, await anext(shown, b""), rest=shown)

    async def _again(self, choice: AnsweredChoice, called: Called, usage: Usage) -> IncomingAnswer:
        """Execute the calls and ask for the next round.

        If the upstream refuses it, ask again without our tools, then without their results.
        """
        self._done += 1
        self._differs()
        hidden_log, request = self._hidden_log, self._turn.request
        if (bill := self._turn.incoming.bill) is not None:
            # The client's answer states the last prompt alone.
            rounds = hidden_log.rounds
            prompt = self._shown.tokens + (rounds.tokens if rounds is not None else 0)
            bill.hidden += as_theirs(prompt, self._turn.ratio)
        hidden_log.usages.append(usage)
        self._client_answer.hidden(usage.completion_tokens or 0, None)
        self._may_hide = self._done <= self._means.most_rounds
        if self._may_hide:
            # The calls and the next answer need room too.
            room = hidden_log.left_tokens * 2 // 3
            results = await self._means.executing.tool_messages(self._turn, called.ours, room)
            messages = [self._sent_back(choice), *results]
            self._messages += messages
            hidden_log.add(messages)
            may_call = self._done < self._means.most_rounds
            answer = await self._ask(offering(request, self._messages, may_call=may_call))
        else:
            # It called tools despite `tool_choice`, which not every server honours.
            answer = await self._ask(request.spliced(self._messages))
        # Without our tools the view has no rounds of earlier turns either.
        for sent in (self._messages, self._shown.view.messages):
            if answer.status < 300 or state_of_status(answer.status) != "rejected":
                break
            self._may_hide = self._offers_tools = False
            is_too_long = self._is_too_long(await read_of(answer, _ERROR_BYTES))
            if is_too_long or sent is not self._messages:
                hidden_log.clear()
                sent = self._shown.view.messages
            answer = await self._ask(request.spliced(sent))
            if is_too_long:
                break
        return answer

    def _ended(self, choice: AnsweredChoice | None, called: Called) -> None:
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
            read = await read_of(answer, self._means.limits.answer_bytes)
            if read.rest is not None:
                return read
            said, choice, usage = self._turn.wire.read_answer(read.plain), None, Usage()
            if isinstance(said, WholeAnswer) and len(said.choices) == 1:
                choice, usage = said.choices[0], said.usage
            called = called_by(choice) if choice is not None else NO_CALLS
            if choice is None or not (self._may_hide and called.is_hidden):
                self._ended(choice, called)
                body = self._client_answer.whole(read.plain, called)
                if body == read.plain:
                    return read
                return HeldAnswer(read.status, answer_headers(read.headers, "decoded"), body, body)
            self._client_answer.hidden(0, read.plain)
            answer = await self._again(choice, called, usage)
            if answer.status >= 300:
                return answer

    async def _streamed(self, answer: IncomingAnswer, kind: Kind) -> AsyncGenerator[bytes]:
        """The rounds that begin with `answer`, as the one stream that the client gets.

        UpstreamError, also when a later round fails.
        """
        form = FrameForm(data_of_line if kind == "lines" else data_of, partial(framed, kind))
        while True:
            frames = self._client_answer.frames(form, may_hide=self._may_hide)
            async for out in self._round(answer, kind, frames):
                # Before the end is sent, because the answer is recorded then.
                if frames.is_over and not frames.is_hidden:
                    self._ended(frames.choice, frames.called)
                yield out
            choice = frames.choice
            if not frames.is_hidden or choice is None:
                return
            answer = await self._again(choice, frames.called, frames.usage)
            if answer.status >= 300:
                raise UpstreamCut("The upstream refused to go on with its answer.")

    async def _round(self, answer: IncomingAnswer, kind: Kind, frames: Frames) -> AsyncIterator[bytes]:
        """The bytes of one round that the client gets; an event too large to read ends the round."""
        limits = self._means.limits
        splitter = (LineSplitter if kind == "lines" else FrameSplitter)(limits.frame_bytes)
        decoder = decoder_for(answer.headers, limits.answer_bytes)
        async for chunk in answer.chunks():
            plain = decoder.feed(chunk) if decoder else b""
            if decoder is None or decoder.failure is not None:
                raise UpstreamCut("The upstream's answer is not of the coding that it states.")
            if out := b"".join([frames.shown(frame) for frame in splitter.feed(plain)]):
                yield out
        rest = b"".join([frames.shown(frame) for frame in splitter.finish()])
        if isinstance(splitter, FrameSplitter) and not frames.is_hidden:
            # The rest of an event that was cut off.
            rest += splitter.rest
        if rest:
            yield rest

    async def _refused(self, answer: IncomingAnswer) -> IncomingAnswer:
        """Handle a 400: unless the prompt is too long, ask again without our tools (rule 31)."""
        read = await read_of(answer, _ERROR_BYTES)
        if read.rest is not None or self._is_too_long(read):
            return read
        self._may_hide = self._offers_tools = False
        plain = await self._ask(self._turn.request.spliced(self._shown.view.messages))
        if plain.status < 300:
            self._means.refusing.remember(self._turn.namespace, self._turn.model)
        return plain

    def _is_too_long(self, read: HeldAnswer) -> bool:
        """True for an error, read whole, that says that the prompt is too long."""
        sent = SentRequest((self._turn.request.body, *self._messages), tokens=self._shown.tokens)
        return classify(read.status, read.headers, read.plain, sent) is not None

    async def _ask(self, body: bytes) -> IncomingAnswer:
        """The answer to one round. UpstreamError."""
        there = self._means.destinations.of(self._turn.model)
        target = there.outgoing.target(self._turn.incoming.target)
        return await self._stack.enter_async_context(there.upstream.open("POST", target, self._headers, body))
