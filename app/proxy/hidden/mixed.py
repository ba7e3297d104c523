"""Our calls in an answer that calls the client's tools too: carried out while the client carries out its own.

The answer is stored, and its end sent, before that begins. What is not found until the next turn is stored is
left out of it for good, so that the upstream's prompt cache holds. Knows nothing of how rounds are asked for.
"""

from __future__ import annotations

import asyncio

import structlog

from app.core.history.chain import chain_of
from app.core.recall.rounds.calls import ours_in
from app.core.recall.rounds.hidden import HiddenRounds
from app.errors import StoreError
from app.proxy.hidden.happening import Happening
from app.proxy.jobs import Jobs
from app.proxy.recall.executing import Executing
from app.proxy.sessions.recorder import Outcome
from app.proxy.turn import Turn
from app.storage.contract import Store

_log = structlog.get_logger("palimpsest.recall")


class MixedTurns:
    """One for the application; a next turn waits for results at most `wait_seconds`."""

    def __init__(self, store: Store, jobs: Jobs, executing: Executing, wait_seconds: float) -> None:
        self._store = store
        self._jobs = jobs
        self._executing = executing
        self._wait_seconds = wait_seconds
        self._running: dict[tuple[str, str], set[asyncio.Task[None]]] = {}

    def stored(self, turn: Turn, outcome: Outcome, happening: Happening) -> None:
        """The answer is durable: what it asks of us is being carried out."""
        hidden = outcome.hidden
        if hidden is None or hidden.written is None or len(outcome.answers) != 1:
            return
        key = turn.namespace, turn.session
        chain = chain_of(turn.conversation.head, outcome.answers[0].canonical)
        task = self._jobs.start(self._carried_out(turn, chain, hidden, happening))
        self._running.setdefault(key, set()).add(task)
        task.add_done_callback(lambda done: self._ended(key, done))

    async def settled(self, namespace: str, session: str) -> None:
        """What an earlier answer of the session asks of us is done, or has been waited for long enough."""
        if running := self._running.get((namespace, session)):
            await asyncio.wait(running, timeout=self._wait_seconds)

    async def _carried_out(
        self, turn: Turn, chain: bytes, hidden: HiddenRounds, happening: Happening
    ) -> None:
        # What the client's own tools find needs room too.
        room = (happening.left_tokens - hidden.written_tokens) // 2
        told = await self._executing.told(turn, ours_in(hidden.written or b""), room)
        tokens = hidden.written_tokens + happening.tokens_of(told)
        try:
            await self._store.add_hidden_results(turn.namespace, turn.session, chain, told, tokens)
        except StoreError as error:
            # The next turn is valid without them.
            _log.warning("results_not_stored", error=type(error).__name__, session=turn.session)

    def _ended(self, key: tuple[str, str], task: asyncio.Task[None]) -> None:
        running = self._running[key]
        running.discard(task)
        if not running:
            del self._running[key]
