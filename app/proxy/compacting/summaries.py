"""Summaries being written: at most one at a time for the same part of a conversation (B17).

Whoever needs one waits for the one that is being written already. The work goes on when a caller
gives up, so that a client which retries finds it done. Those for later wait for a place and are tried
again after a while; those that a request waits for are not. Knows nothing of when a summary is needed.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import islice

import structlog

from app.core.history.conversation import Conversation
from app.core.view.compaction import Compaction
from app.core.view.outcomes import Fold
from app.core.view.record import is_same_fold
from app.errors import StoreError
from app.proxy.compacting.leases import Leases
from app.proxy.compacting.scene import Scene, Told
from app.proxy.compacting.scenes import in_force
from app.proxy.compacting.summary_writer import NotTold, SummaryWriter
from app.proxy.fair_places import FairPlaces
from app.proxy.jobs import Jobs
from app.proxy.subject import Subject
from app.storage.contract import Store
from app.storage.erase.gone import Gone
from app.storage.journal import Prepared

_log = structlog.get_logger("palimpsest.summaries")
# Each waits with its conversation in memory; beyond this one is written when it is needed.
MOST_WAITING = 64
# Sessions of which a summary is being written or was written ahead; one that is kept takes some 20 kB.
REMEMBERED_SESSIONS = 500
# Summaries that are written, or wait for it, at once: each holds its request.
MOST_AHEAD = 32
# Told of a summary that came to nothing: whose, why (a stable word), for which trigger and watermark.
Failure = Callable[[Subject, str, str, bytes], Awaitable[None]]


@dataclass(eq=False, slots=True)
class Job:
    """One summary on its way. The task's result is the record made of it, None when there will be none.

    `hurried` is set once a request waits for it. `is_shared`: it is what any server would write now, so that
    it may be another one's work, and another one may put it into force. `is_due`: the prompt was at its
    trigger when it was begun. `reason` says, once it came to nothing, why; a stable word.
    """

    watermark: bytes
    policy: str
    model: str
    hurried: asyncio.Event
    is_shared: bool
    is_due: bool
    reason: str = ""
    task: asyncio.Task[Compaction | None] = field(init=False)

    def serves(self, scene: Scene) -> bool:
        """True when its result would stand for the beginning of this conversation (rule 24)."""
        on_path = scene.conversation.position(self.watermark) is not None
        return on_path and self.policy == scene.policy.name and self.model == scene.turn.model


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What another server has done: a summary for later, or (None) a compaction that is in force by now."""

    compaction: Compaction | None


@dataclass(frozen=True, slots=True)
class Means:
    """Who writes, as which jobs, under whose leases, and who hears of what failed in the background.

    What is written ahead is kept in `store`. For sessions in `gone` nothing is written.
    """

    writer: SummaryWriter
    store: Store
    jobs: Jobs
    leases: Leases
    failed: Failure
    gone: Gone = field(default_factory=Gone)


@dataclass(frozen=True, slots=True)
class JobRules:
    """At most `concurrent` in the background at once, `attempts` each; none lasts longer than `key_seconds`.

    The second attempt follows `backoff_seconds` after the first, each later one after twice as long.
    """

    concurrent: int
    key_seconds: float
    attempts: int
    backoff_seconds: float


class Summaries:
    """Writes summaries as jobs, one table for the application."""

    def __init__(self, means: Means, rules: JobRules, new_id: Callable[[], str]) -> None:
        self._writer = means.writer
        self._store = means.store
        self._jobs = means.jobs
        self._leases = means.leases
        self._failed = means.failed
        self._gone = means.gone
        self._rules = rules
        self._places = FairPlaces(rules.concurrent)
        self._new_id = new_id
        # By session, the one that began a summary last at the end.
        self._running: OrderedDict[tuple[str, str], list[Job]] = OrderedDict()

    def rests(self, scene: Scene) -> str:
        """Why nobody should be asked for this conversation now, a stable word; "" where somebody may be."""
        return self._writer.rests(scene)

    def can_begin(self, scene: Scene) -> bool:
        """False while nobody should be asked for this conversation."""
        return not self.rests(scene)

    def has_room(self, scene: Scene) -> bool:
        """False where so many of the namespace wait for a place that one more is not begun ahead."""
        return self._places.waiting(scene.turn.namespace) < MOST_WAITING

    @property
    def is_crowded(self) -> bool:
        """True while so many are being written, or wait for a place, that none should be begun ahead."""
        running = (job for jobs in self._running.values() for job in jobs)
        return sum(not job.task.done() for job in running) >= MOST_AHEAD

    def is_looping(self, scene: Scene) -> bool:
        """True while the session should not be folded again if it can be helped (F04)."""
        return self._writer.restraint.is_looping(scene)

    async def is_worth(self, scene: Scene, fold: Fold) -> bool:
        """False when a model's summary of this fold would cost more than it is worth."""
        return await scene.done(lambda own: self._writer.is_worth(own, own.fresh(fold)))

    def begun(self, scene: Scene) -> Job | None:
        """The newest summary, being written or done, that would serve this conversation."""
        jobs = self._running.get(_key(scene), [])
        serving = [job for job in jobs if job.serves(scene) and not _came_to_nothing(job)]
        current = _place(scene.conversation, scene.current)
        ahead = [job for job in serving if _position(scene.conversation, job.watermark) > current]
        return max(ahead, key=lambda job: _position(scene.conversation, job.watermark), default=None)

    def late(self, scene: Scene) -> Compaction | None:
        """A model's summary of just what stands folded by code, which came after a request had gone on."""
        current = scene.current
        if current is None or current.author != "deterministic" or current.kind != "message_removal":
            return None
        jobs = [job for job in self._again(scene) if job.task.done()]
        done = [job.task.result() for job in jobs if not _came_to_nothing(job)]
        same = [made for made in done if made is not None and is_same_fold(current, made)]
        return same[-1] if same else None

    def is_again(self, scene: Scene) -> bool:
        """True when a summary of just what is folded is being written, or was; not if it came to nothing."""
        return any(not _came_to_nothing(job) for job in self._again(scene))

    def _again(self, scene: Scene) -> list[Job]:
        reached = scene.current.watermark if scene.current else b""
        jobs = self._running.get(_key(scene), [])
        return [job for job in jobs if job.watermark == reached and job.serves(scene)]

    def begin(self, scene: Scene, fold: Fold, *, is_shared: bool) -> Job | None:
        """A summary for this fold is being written; None when nobody should be asked.

        `is_shared`: or one that another server has written ahead is fetched.
        """
        if not self.can_begin(scene) or _key(scene) in self._gone:
            return None
        watermark = scene.conversation.chains[fold.cut - 1]
        is_due = fold.trigger != "background"
        job = Job(watermark, scene.policy.name, scene.turn.model, asyncio.Event(), is_shared, is_due)
        job.task = self._jobs.start(self._written(scene, fold, job))
        kept = [other for other in self._running.get(_key(scene), []) if not _came_to_nothing(other)]
        self._running[_key(scene)] = [*kept[-7:], job]
        self._running.move_to_end(_key(scene))
        self._bound()
        return job

    def _bound(self) -> None:
        """Of conversations that nobody goes on with what was written ahead is not kept for ever.

        A server that finds the conversation again reads it from the store.
        """
        excess = len(self._running) - REMEMBERED_SESSIONS
        over = (key for key, jobs in self._running.items() if all(job.task.done() for job in jobs))
        for key in list(islice(over, max(0, excess))):
            del self._running[key]

    def forget(self, scene: Scene, compaction: Compaction) -> None:
        """A compaction is in force: what was prepared for no more than it is of no use any longer.

        What is still being written stays: it may come late.
        """
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

    def erased(self, namespace: str, session: str) -> None:
        """The session was erased: what was written of it is gone, what is being written ends."""
        for job in self._running.pop((namespace, session), []):
            job.task.cancel()

    def leased(self, scene: Scene) -> AbstractAsyncContextManager[bool]:
        """While it is open no other server asks for a summary of the session; False: one does."""
        return self._leases.held(*_key(scene))

    async def is_elsewhere(self, scene: Scene) -> bool:
        """True while another server writes a summary for the session. StoreError."""
        return await self._leases.is_elsewhere(*_key(scene))

    async def waited(self, scene: Scene, seconds: float) -> float:
        """The seconds, at most so many, for which another server's summary was waited for."""
        return await self._leases.waited(*_key(scene), seconds)

    async def _written(self, scene: Scene, fold: Fold, job: Job) -> Compaction | None:
        # What is only written again keeps no other server from folding.
        is_again = fold.cut == fold.since
        async with nullcontext(True) if is_again else self.leased(scene) as is_ours:
            if not is_ours:
                _log.info("summary_elsewhere", session=scene.turn.session)
                job.reason = "elsewhere"
                return None
            if job.is_shared and (found := await self._elsewhere(scene, job)) is not None:
                return found.compaction
            # A job holds the caller's key: it ends, waiting or not, when the key has been kept long enough.
            told: Told | NotTold = NotTold("timeout")
            with suppress(TimeoutError):
                async with asyncio.timeout(self._rules.key_seconds):
                    told = await self._told(scene, fold, job)
            if isinstance(told, Told):
                done = await scene.folded(fold, self._new_id(), told)
                keeping = self._kept(scene, job, done)
                if self._store.server is None:
                    # Nobody else looks for it: it is there after a restart, and no turn waits for that.
                    self._jobs.start(keeping)
                else:
                    await keeping
                return done
            job.reason = told.reason
            if told.is_failure and not job.hurried.is_set():
                # Whoever waits has a summary by code, which says of itself that no model wrote it.
                await self._failed(scene.turn, told.reason, fold.trigger, job.watermark)
            return None

    async def _elsewhere(self, scene: Scene, job: Job) -> Elsewhere | None:
        """What another server has done for the conversation since the scene was gathered; None: nothing.

        In this order: a summary that is put into force is not prepared any more at the same moment.
        """
        try:
            ready = await self._store.prepared(*_key(scene))
            rows = await self._store.compactions(*_key(scene))
        except StoreError as error:
            _log.warning("prepared_not_read", error=type(error).__name__, session=scene.turn.session)
            return None
        if in_force(rows, scene.turn) != scene.current:
            return Elsewhere(None)
        if ready is None or (ready.compaction.policy, ready.model) != (job.policy, job.model):
            return None
        place = _place(scene.conversation, ready.compaction)
        if place <= _place(scene.conversation, scene.current):
            return None
        if not await scene.done(Scene.frees_enough, ready.compaction):
            # It was our own, as likely as not: what no longer does is written anew.
            return None
        job.watermark = ready.compaction.watermark
        return Elsewhere(ready.compaction)

    async def _kept(self, scene: Scene, job: Job, done: Compaction) -> None:
        """Whichever server has the next turn can use it; that it could not be stored is logged."""
        if not job.is_shared:
            return
        try:
            await self._store.prepare(*_key(scene), Prepared(done, job.model))
        except StoreError as error:
            _log.warning("prepared_not_stored", error=type(error).__name__, session=scene.turn.session)

    async def _told(self, scene: Scene, fold: Fold, job: Job) -> Told | NotTold:
        """As many attempts as the rules allow; one alone where a request waits for it."""
        backoff = self._rules.backoff_seconds
        for _ in range(self._rules.attempts - 1):
            told = await self._attempt(scene, fold, job)
            if isinstance(told, Told) or not told.may_again or job.hurried.is_set():
                return told
            # A request that comes meanwhile does not wait for the rest of it.
            with suppress(TimeoutError):
                async with asyncio.timeout(backoff):
                    await job.hurried.wait()
            if not self.can_begin(scene):
                return told
            backoff *= 2
        return await self._attempt(scene, fold, job)

    async def _attempt(self, scene: Scene, fold: Fold, job: Job) -> Told | NotTold:
        async with self._place(job, scene.turn.namespace):
            source = await scene.done(Scene.source, fold)
            if scene.owes_rebuild(fold) and not job.hurried.is_set():
                anew = await scene.done(Scene.source, fold, is_anew=True)
                told = await self._writer.rebuilt(scene, anew, source, job.hurried)
                if isinstance(told, Told) or not source.fresh:
                    return told
            return await self._writer.told(scene, source, job.hurried)

    @asynccontextmanager
    async def _place(self, job: Job, whose: str) -> AsyncIterator[None]:
        """Background work waits for a place, of which each namespace has one in turn (H05).

        What a request waits for begins at once.
        """
        if job.hurried.is_set():
            yield
            return
        waiting = (
            asyncio.ensure_future(self._places.acquire(whose)),
            asyncio.ensure_future(job.hurried.wait()),
        )
        has_place, _ = waiting
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            yield
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
            if not has_place.cancelled():
                self._places.release()


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
