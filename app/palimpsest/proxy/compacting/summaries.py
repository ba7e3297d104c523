"""Summary jobs, one at a time for a part of a conversation (B17), and a cache of repeated folds.

A request that needs a summary waits for the job that is already writing it. A job goes on when the request
gives up, so that a retry finds its result. Background jobs are queued and tried again after a delay; jobs
that a request waits for start at once and are tried once.

A client that sends the same long list twice, without an answer of ours in it, begins two sessions (rule 3).
They stay separate, and the second reuses the summary of the first, from memory.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import islice

import structlog

from palimpsest.core.history.message import Conversation
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.outcomes import Fold
from palimpsest.errors import StoreError
from palimpsest.proxy.compacting.leases import Leases
from palimpsest.proxy.compacting.summary_writer import SummaryFailure, SummaryWriter
from palimpsest.proxy.compaction_context import CompactionContext, SummaryText, in_force
from palimpsest.proxy.fair_places import FairPlaces
from palimpsest.proxy.jobs import Jobs
from palimpsest.proxy.turn import Subject
from palimpsest.storage.compactions import Prepared
from palimpsest.storage.erasure import RecentlyErased
from palimpsest.storage.store import Store

# Folds remembered; a summary takes some 20 kB.
REMEMBERED_FOLDS = 64
# Characters; a longer summary is not kept.
_LONGEST = 256 * 1024


@dataclass(frozen=True, slots=True)
class _Made:
    session: str
    compaction: Compaction


class RepeatedFolds:
    """The newest first folds of conversations, for sessions that begin with the same messages."""

    def __init__(self) -> None:
        self._made: OrderedDict[Hashable, _Made] = OrderedDict()

    def find(self, context: CompactionContext, new_id: str) -> Compaction | None:
        """A fold of the same messages for the same model and policy, with the id `new_id`; or None."""
        made = self._made.get(_history_key(context)) if _is_first(context) else None
        return replace(made.compaction, id=new_id) if made is not None else None

    def keep(self, context: CompactionContext, compaction: Compaction) -> None:
        """Remember the compaction made from this context."""
        if not _is_first(context) or len(compaction.summary) > _LONGEST:
            return
        key = _history_key(context)
        self._made[key] = _Made(context.turn.session, compaction)
        self._made.move_to_end(key)
        if len(self._made) > REMEMBERED_FOLDS:
            self._made.popitem(last=False)

    def erased(self, namespace: str, session: str) -> None:
        """Forget an erased session."""
        del namespace
        for key in [key for key, made in self._made.items() if made.session == session]:
            del self._made[key]


def _is_first(context: CompactionContext) -> bool:
    """True when the summary depends on the messages alone: no memory, no manual focus, no hidden rounds."""
    return (
        context.current is None
        and not context.memory
        and not context.is_ordered
        and not context.replay.rounds
    )


def _history_key(context: CompactionContext) -> Hashable:
    # The head's digest covers the whole conversation within the namespace.
    turn = context.turn
    return turn.namespace, context.conversation.head, turn.model, context.policy


_log = structlog.get_logger("palimpsest.summaries")
# Queued jobs of a namespace; each holds its conversation. Beyond this, summaries are written when needed.
MOST_WAITING = 64
# Sessions with running or finished jobs; a finished summary takes some 20 kB.
REMEMBERED_SESSIONS = 500
# Jobs running or queued at once, of all namespaces: each holds its request.
MOST_AHEAD = 32
# Called when a background summary failed: subject, reason (a stable word), trigger, watermark.
Failure = Callable[[Subject, str, str, bytes], Awaitable[None]]


@dataclass(eq=False, slots=True)
class Job:
    """One summary being written. The task's result is its compaction, None when there is none.

    `hurried` is set once a request waits for it. `is_shared`: any server would write the same, so that the
    result may be fetched from or stored for other servers. `reason`: why there is no result, a stable word.
    """

    watermark: bytes
    policy: str
    model: str
    hurried: asyncio.Event
    is_shared: bool
    reason: str = ""
    task: asyncio.Task[Compaction | None] = field(init=False)

    def serves(self, context: CompactionContext) -> bool:
        """True when its result applies to this conversation (rule 24)."""
        on_path = context.conversation.position(self.watermark) is not None
        return on_path and self.policy == context.policy.name and self.model == context.turn.model


@dataclass(frozen=True, slots=True)
class MadeElsewhere:
    """What another server has made: a prepared summary, or (None) a compaction that is in force already."""

    compaction: Compaction | None


@dataclass(frozen=True, slots=True)
class SummaryMeans:
    """What summary jobs work with. `failed` is called for failures in the background.

    Prepared summaries are kept in `store`. No summary is written for sessions in `gone`.
    """

    writer: SummaryWriter
    store: Store
    jobs: Jobs
    leases: Leases
    failed: Failure
    gone: RecentlyErased = field(default_factory=RecentlyErased)


@dataclass(frozen=True, slots=True)
class JobRules:
    """At most `concurrent` background jobs at once, with two attempts each; a job ends after `key_seconds`.

    The second attempt, which survives a short failure, follows after `backoff_seconds`.
    """

    concurrent: int
    key_seconds: float
    backoff_seconds: float


class SummaryJobs:
    """Writes summaries as jobs, and keeps their results until they are used."""

    def __init__(self, means: SummaryMeans, rules: JobRules, new_id: Callable[[], str]) -> None:
        self._writer = means.writer
        self._store = means.store
        self._jobs = means.jobs
        self._leases = means.leases
        self._failed = means.failed
        self._gone = means.gone
        self._rules = rules
        self._places = FairPlaces(rules.concurrent)
        self._new_id = new_id
        # By session; the session that started a job last is at the end.
        self._running: OrderedDict[tuple[str, str], list[Job]] = OrderedDict()

    def block_reason(self, context: CompactionContext) -> str:
        """A stable word for why no model may be asked about this conversation now; "" if one may be."""
        return self._writer.block_reason(context)

    def can_begin(self, context: CompactionContext) -> bool:
        """True while a model may be asked about this conversation."""
        return not self.block_reason(context)

    def has_room(self, context: CompactionContext) -> bool:
        """True while fewer than MOST_WAITING jobs of the namespace are queued."""
        return self._places.waiting(context.turn.namespace) < MOST_WAITING

    @property
    def is_crowded(self) -> bool:
        """True while MOST_AHEAD jobs are running or queued: no background job should be started."""
        running = (job for jobs in self._running.values() for job in jobs)
        return sum(not job.task.done() for job in running) >= MOST_AHEAD

    def is_looping(self, context: CompactionContext) -> bool:
        """True while further folds of the session should be avoided (F04)."""
        return self._writer.guard.is_looping(context)

    async def asks(self, context: CompactionContext, fold: Fold) -> bool:
        """True when a model, and not code, should write the record of this fold."""
        return not await context.done(self._writer.unasked_reason, fold)

    def begun(self, context: CompactionContext) -> Job | None:
        """The job, running or finished, that covers most of this conversation beyond the current fold."""
        jobs = self._running.get(_key(context), [])
        serving = [job for job in jobs if job.serves(context) and not _has_no_result(job)]
        current = _place(context.conversation, context.current)
        ahead = [job for job in serving if _position(context.conversation, job.watermark) > current]
        return max(ahead, key=lambda job: _position(context.conversation, job.watermark), default=None)

    def late(self, context: CompactionContext) -> Compaction | None:
        """A model's summary of exactly what code has folded, finished after a request stopped waiting."""
        current = context.current
        if current is None or current.author != "deterministic" or current.kind != "message_removal":
            return None
        jobs = [job for job in self._again(context) if job.task.done()]
        done = [job.task.result() for job in jobs if not _has_no_result(job)]
        return next((made for made in reversed(done) if made is not None), None)

    def is_again(self, context: CompactionContext) -> bool:
        """True when a summary of exactly the current fold is being written or was written."""
        return any(not _has_no_result(job) for job in self._again(context))

    def _again(self, context: CompactionContext) -> list[Job]:
        current = context.current
        reached = {current.watermark, current.covers} if current else set()
        jobs = self._running.get(_key(context), [])
        return [job for job in jobs if job.watermark in reached and job.serves(context)]

    def begin(self, context: CompactionContext, fold: Fold, *, is_shared: bool) -> Job | None:
        """Start a job for this fold; None when no model may be asked.

        `is_shared`: a summary that another server has prepared is used instead.
        """
        if not self.can_begin(context) or _key(context) in self._gone:
            return None
        watermark = context.conversation.chains[fold.cut - 1]
        job = Job(watermark, context.policy.name, context.turn.model, asyncio.Event(), is_shared)
        job.task = self._jobs.start(self._write(context, fold, job))
        kept = [other for other in self._running.get(_key(context), []) if not _has_no_result(other)]
        self._running[_key(context)] = [*kept[-7:], job]
        self._running.move_to_end(_key(context))
        self._bound()
        return job

    def _bound(self) -> None:
        """Drop the finished jobs of the oldest sessions; the store still has the summaries."""
        excess = len(self._running) - REMEMBERED_SESSIONS
        over = (key for key, jobs in self._running.items() if all(job.task.done() for job in jobs))
        for key in list(islice(over, max(0, excess))):
            del self._running[key]

    def forget(self, context: CompactionContext, compaction: Compaction) -> None:
        """A compaction is in force: drop finished jobs that cover no more. Running ones may still be late."""
        self._writer.guard.compacted(context, compaction)
        reached = _place(context.conversation, compaction)
        jobs = [
            job
            for job in self._running.get(_key(context), [])
            if not job.task.done() or _position(context.conversation, job.watermark) > reached
        ]
        if jobs:
            self._running[_key(context)] = jobs
        else:
            self._running.pop(_key(context), None)

    def erased(self, namespace: str, session: str) -> None:
        """Drop the finished jobs of an erased session and cancel the running ones."""
        for job in self._running.pop((namespace, session), []):
            job.task.cancel()

    def leased(self, context: CompactionContext) -> AbstractAsyncContextManager[bool]:
        """Hold the session's lease for summaries; yields False when another server has it."""
        return self._leases.held(*_key(context))

    async def is_elsewhere(self, context: CompactionContext) -> bool:
        """True while another server writes a summary for the session. StoreError."""
        return await self._leases.is_elsewhere(*_key(context))

    async def waited(self, context: CompactionContext, seconds: float) -> float:
        """Wait while another server writes for the session, at most `seconds`; the seconds waited."""
        return await self._leases.waited(*_key(context), seconds)

    async def _write(self, context: CompactionContext, fold: Fold, job: Job) -> Compaction | None:
        # A rewrite of the current fold takes no lease: other servers may fold meanwhile.
        is_again = fold.cut == fold.since
        async with nullcontext(True) if is_again else self.leased(context) as is_ours:
            if not is_ours:
                _log.info("summary_elsewhere", session=context.turn.session)
                job.reason = "elsewhere"
                return None
            if job.is_shared and (found := await self._made_elsewhere(context, job)) is not None:
                return found.compaction
            # A job holds the caller's key: it ends after `key_seconds`, even while queued.
            result: SummaryText | SummaryFailure = SummaryFailure("timeout")
            began = time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._rules.key_seconds):
                    result = await self._attempts(context, fold, job)
            if isinstance(result, SummaryText):
                context.paces.summary_took(context.turn, time.monotonic() - began)
                done = await context.folded(fold, self._new_id(), result)
                keeping = self._kept(context, job, done)
                if self._store.journal.server is None:
                    # No other server needs it; it is stored for a restart, in the background.
                    self._jobs.start(keeping)
                else:
                    await keeping
                return done
            job.reason = result.reason
            if result.is_failure and not job.hurried.is_set():
                # A waiting request gets a summary by code, whose record states why no model wrote it.
                await self._failed(context.turn, result.reason, fold.trigger, job.watermark)
            return None

    async def _made_elsewhere(self, context: CompactionContext, job: Job) -> MadeElsewhere | None:
        """What another server has made for the conversation since the context was loaded; None: nothing.

        Prepared summaries are read before compactions: adopting a summary removes the prepared one in the
        same transaction, so that it is found in one of them.
        """
        try:
            ready = await self._store.compactions.prepared(*_key(context))
            rows = await self._store.compactions.of_session(*_key(context))
        except StoreError as error:
            _log.warning("prepared_not_read", error=type(error).__name__, session=context.turn.session)
            return None
        if in_force(rows, context.conversation) != context.current:
            return MadeElsewhere(None)
        if ready is None or (ready.compaction.policy, ready.model) != (job.policy, job.model):
            return None
        place = _place(context.conversation, ready.compaction)
        if place <= _place(context.conversation, context.current):
            return None
        job.watermark = ready.compaction.watermark
        return MadeElsewhere(ready.compaction)

    async def _kept(self, context: CompactionContext, job: Job, done: Compaction) -> None:
        """Store the summary for the server that has the next turn; a store error is logged."""
        if not job.is_shared:
            return
        try:
            await self._store.compactions.prepare(*_key(context), Prepared(done, job.model))
        except StoreError as error:
            _log.warning("prepared_not_stored", error=type(error).__name__, session=context.turn.session)

    async def _attempts(
        self, context: CompactionContext, fold: Fold, job: Job
    ) -> SummaryText | SummaryFailure:
        """Try twice, or once if a request waits (B17)."""
        result = await self._attempt(context, fold, job)
        if isinstance(result, SummaryText) or not result.may_again or job.hurried.is_set():
            return result
        # A request that arrives meanwhile ends the delay.
        with suppress(TimeoutError):
            async with asyncio.timeout(self._rules.backoff_seconds):
                await job.hurried.wait()
        return await self._attempt(context, fold, job) if self.can_begin(context) else result

    async def _attempt(
        self, context: CompactionContext, fold: Fold, job: Job
    ) -> SummaryText | SummaryFailure:
        async with self._place(job, context.turn.namespace):
            source = await context.done(CompactionContext.source, fold)
            return await self._writer.write(context, fold, source)

    @asynccontextmanager
    async def _place(self, job: Job, whose: str) -> AsyncIterator[None]:
        """Wait for a slot, given to namespaces in turn (H05); none is needed once a request waits."""
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


def _key(context: CompactionContext) -> tuple[str, str]:
    return context.turn.namespace, context.turn.session


def _has_no_result(job: Job) -> bool:
    if not job.task.done():
        return False
    return job.task.cancelled() or job.task.exception() is not None or job.task.result() is None


def _place(talk: Conversation, compaction: Compaction | None) -> int:
    return _position(talk, compaction.covers) if compaction else -1


def _position(talk: Conversation, watermark: bytes) -> int:
    place = talk.position(watermark)
    return -1 if place is None else place
