"""Summaries being written: at most one at a time for the same part of a conversation.

Whoever needs one waits for the one that is being written already. The work goes on when a caller
gives up, so that a client which retries finds it done. Knows nothing of when a summary is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from app.core.history.conversation import Conversation
from app.core.view.compaction import Compaction
from app.core.view.outcomes import Fold
from app.proxy.compacting.scene import Scene
from app.proxy.compacting.summary_writer import SummaryWriter
from app.proxy.jobs import Jobs


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
    """Writes summaries as jobs, one table for the application; none lasts longer than `key_seconds`."""

    def __init__(
        self,
        writer: SummaryWriter,
        jobs: Jobs,
        *,
        concurrent: int,
        key_seconds: float,
        new_id: Callable[[], str],
    ) -> None:
        self._writer = writer
        self._jobs = jobs
        self._key_seconds = key_seconds
        self._places = asyncio.Semaphore(concurrent)
        self._new_id = new_id
        self._running: dict[tuple[str, str], list[Job]] = {}

    def can_begin(self, scene: Scene) -> bool:
        """False while nobody should be asked for this conversation."""
        return not self._writer.restraint.holds(scene)

    def is_looping(self, scene: Scene) -> bool:
        """True while the session should not be folded again if it can be helped (F04)."""
        return self._writer.restraint.is_looping(scene)

    def is_worth(self, scene: Scene, fold: Fold) -> bool:
        """False when a model's summary of this fold would cost more than it is worth."""
        return self._writer.is_worth(scene, scene.folded_tokens(fold))

    def begun(self, scene: Scene) -> Job | None:
        """The newest summary, being written or done, that would serve this conversation."""
        jobs = self._running.get(_key(scene), [])
        serving = [job for job in jobs if job.serves(scene) and not _came_to_nothing(job)]
        current = _place(scene.conversation, scene.current)
        ahead = [job for job in serving if _position(scene.conversation, job.watermark) > current]
        return max(ahead, key=lambda job: _position(scene.conversation, job.watermark), default=None)

    def begin(self, scene: Scene, fold: Fold) -> Job | None:
        """A summary for this fold is being written; None when nobody should be asked."""
        if not self.can_begin(scene):
            return None
        watermark = scene.conversation.chains[fold.cut - 1]
        task = self._jobs.start(self._written(scene, fold))
        job = Job(watermark, scene.policy.name, scene.turn.model, task)
        kept = [other for other in self._running.get(_key(scene), []) if not _came_to_nothing(other)]
        self._running[_key(scene)] = [*kept[-7:], job]
        return job

    def forget(self, scene: Scene, compaction: Compaction) -> None:
        """A compaction is in force: what was prepared for no more than it is of no use any longer."""
        self._writer.restraint.compacted(scene, compaction)
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
        told = None
        # A job holds the caller's key: it ends, waiting or not, when the key has been kept long enough.
        with suppress(TimeoutError):
            async with asyncio.timeout(self._key_seconds), self._places:
                told = await self._writer.told(scene, scene.source(fold))
        if told is None:
            return None
        model = self._writer.model_for(scene)
        return await scene.folded(fold, self._new_id(), told, model)


def _key(scene: Scene) -> tuple[str, str]:
    return scene.turn.namespace, scene.turn.session


def _came_to_nothing(job: Job) -> bool:
    if not job.task.done():
        return False
    return job.task.cancelled() or job.task.exception() is not None or job.task.result() is None


def _place(talk: Conversation, compaction: Compaction | None) -> int:
    return _position(talk, compaction.watermark) if compaction else -1


def _position(talk: Conversation, watermark: bytes) -> int:
    place = talk.position(watermark)
    return -1 if place is None else place
