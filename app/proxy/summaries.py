"""Summaries being written: at most one at a time for the same part of a conversation.

Whoever needs one waits for the one that is being written already. The work goes on when a caller
gives up, so that a client which retries finds it done. Knows nothing of when a summary is needed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from app.core.history.conversation import Conversation
from app.core.summary.acceptance import SummaryReply, accepted
from app.core.summary.prompt import SummaryLimits, SummaryRequest, summary_requests
from app.core.summary.source import SummarySource
from app.core.view.compaction import Compaction
from app.core.view.outcomes import Fold
from app.errors import SummaryRejected
from app.proxy.breaker import Breaker
from app.proxy.jobs import Jobs
from app.proxy.scene import Scene
from app.upstream.summarizer import Failed, KeyRefused, Summarizer, SummaryAnswer, TooLong

_log = structlog.get_logger("palimpsest.summaries")


@dataclass(frozen=True, slots=True)
class SummarizerChoice:
    """Who writes: `model` None is the conversation's own; `window_tokens` None is the conversation's.

    `concurrent` summaries are written at a time, each within `call_seconds`, all its calls together.
    """

    model: str | None
    window_tokens: int | None
    concurrent: int
    call_seconds: float


@dataclass(eq=False, slots=True)
class Job:
    """One summary on its way. The task's result is the record made of it, None when there will be none."""

    watermark: bytes
    policy: str
    model: str
    task: asyncio.Task[Compaction | None]

    def serves(self, scene: Scene) -> bool:
        """True when its result would stand for the beginning of this conversation (rule 24)."""
        on_path = scene.conversation.position(self.watermark) is not None
        return on_path and self.policy == scene.policy.name and self.model == scene.turn.model


class Summaries:
    """Writes summaries as jobs, one table for the application."""

    def __init__(
        self,
        summarizer: Summarizer,
        choice: SummarizerChoice,
        jobs: Jobs,
        breaker: Breaker,
        new_id: Callable[[], str],
    ) -> None:
        self._summarizer = summarizer
        self._choice = choice
        self._jobs = jobs
        self._breaker = breaker
        self._places = asyncio.Semaphore(choice.concurrent)
        self._call_seconds = choice.call_seconds
        self._new_id = new_id
        self._running: dict[tuple[str, str], list[Job]] = {}

    def begun(self, scene: Scene) -> Job | None:
        """The newest summary, being written or done, that would serve this conversation."""
        jobs = self._running.get(_key(scene), [])
        serving = [job for job in jobs if job.serves(scene) and not _came_to_nothing(job)]
        current = _place(scene.conversation, scene.current)
        ahead = [job for job in serving if _position(scene.conversation, job.watermark) > current]
        return max(ahead, key=lambda job: _position(scene.conversation, job.watermark), default=None)

    def begin(self, scene: Scene, fold: Fold) -> Job | None:
        """A summary for this fold is being written; None when the breaker is open."""
        if self._breaker.is_open:
            return None
        watermark = scene.conversation.chains[fold.cut - 1]
        task = self._jobs.start(self._written(scene, fold))
        job = Job(watermark, scene.policy.name, scene.turn.model, task)
        kept = [other for other in self._running.get(_key(scene), []) if not _came_to_nothing(other)]
        self._running[_key(scene)] = [*kept[-7:], job]
        return job

    def forget(self, scene: Scene, compaction: Compaction) -> None:
        """A compaction is in force: what was prepared for no more than it is of no use any longer."""
        reached = _place(scene.conversation, compaction)
        jobs = [
            job
            for job in self._running.get(_key(scene), [])
            if not job.task.done() or _position(scene.conversation, job.watermark) > reached
        ]
        if jobs:
            self._running[_key(scene)] = jobs
        else:
            self._running.pop(_key(scene), None)

    async def _written(self, scene: Scene, fold: Fold) -> Compaction | None:
        async with self._places:
            told = await self._told(scene, scene.source(fold))
        if told is None:
            return None
        model = self._choice.model or scene.turn.model
        return await scene.folded(fold, self._new_id(), told, model)

    async def _told(self, scene: Scene, source: SummarySource) -> str | None:
        """What the summarizer says of the source, accepted; one more try when it is not (rule of F09)."""
        window = self._choice.window_tokens or scene.budget.window_tokens
        limits = SummaryLimits.of(scene.policy, window, scene.budget.summary_tokens)
        replaced = sum(message.tokens for _, message in source.fresh) + scene.count_text(source.previous)
        for _ in range(2):
            try:
                text = await self._asked(scene, source, limits, replaced)
            except SummaryRejected as rejected:
                _log.warning("summary_rejected", reason=rejected.message, session=scene.turn.session)
                continue
            except _NoAnswer as failure:
                _log.warning("summary_failed", reason=failure.reason, session=scene.turn.session)
                if failure.counts:
                    self._breaker.failed()
                return None
            self._breaker.succeeded()
            return text
        self._breaker.failed()
        return None

    async def _asked(self, scene: Scene, source: SummarySource, limits: SummaryLimits, replaced: int) -> str:
        ends = time.monotonic() + self._call_seconds
        requests = summary_requests(source, limits, scene.count_text, scene.focus)
        request = next(requests)
        while True:
            answer = await self._answer(scene, request, ends - time.monotonic())
            reply = SummaryReply(answer.text, answer.finish_reason, answer.had_tool_calls)
            text = accepted(reply, request, replaced, scene.count_text)
            try:
                request = requests.send(text)
            except StopIteration:
                return text

    async def _answer(self, scene: Scene, request: SummaryRequest, seconds: float) -> SummaryAnswer:
        if seconds <= 0:
            raise _NoAnswer("timeout", counts=True)
        outcome = await self._summarizer.ask(
            request.messages, scene.turn.model, request.max_tokens, scene.outgoing, seconds
        )
        match outcome:
            case SummaryAnswer():
                return outcome
            case KeyRefused():
                raise _NoAnswer("key_refused", counts=False)
            case TooLong():
                raise _NoAnswer("too_long", counts=True)
            case Failed(reason):
                raise _NoAnswer(reason, counts=True)


class _NoAnswer(Exception):
    """No summary this time; `counts` says whether the breaker should hear of it (rule 23)."""

    def __init__(self, reason: str, *, counts: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.counts = counts


def _key(scene: Scene) -> tuple[str, str]:
    return scene.turn.namespace, scene.turn.session


def _came_to_nothing(job: Job) -> bool:
    return job.task.done() and (job.task.cancelled() or job.task.exception() or job.task.result()) is None


def _place(talk: Conversation, compaction: Compaction | None) -> int:
    return _position(talk, compaction.watermark) if compaction else -1


def _position(talk: Conversation, watermark: bytes) -> int:
    place = talk.position(watermark)
    return -1 if place is None else place
