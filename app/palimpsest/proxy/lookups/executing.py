"""Executes a model's calls to our tools, including those in answers that also call the client's tools.

Each call leaves an event (`tools`). An answer that calls both is stored and sent to its end before our calls
run. Results that are not stored before the next turn are never shown to the model, so that the upstream's
prompt cache stays valid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from palimpsest.core.history.message import chain_of
from palimpsest.core.recall.rounds.calls import RecallCall, fitted, newest_words, recall_calls_in
from palimpsest.core.recall.rounds.hidden import HiddenRounds
from palimpsest.errors import StoreError
from palimpsest.proxy.incoming import Incoming
from palimpsest.proxy.jobs import Jobs
from palimpsest.proxy.lookups.hidden_rounds import HiddenRoundLog
from palimpsest.proxy.recall.searching import Where
from palimpsest.proxy.recall.tools import RecallTools
from palimpsest.proxy.turn import Outcome, Turn
from palimpsest.storage.exchanges import Exchanges

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

    async def tool_messages(self, turn: Turn, calls: Sequence[RecallCall], room_tokens: int) -> list[bytes]:
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
        try:
            await self._exchanges.add_hidden_results(turn.namespace, turn.session, chain, messages, tokens)
        except StoreError as error:
            # The next turn is valid without them.
            _log.warning("results_not_stored", error=type(error).__name__, session=turn.session)
