"""Summary jobs, one at a time for a part of a conversation (B17).

A request that needs a summary waits for the job that is already writing it. A job goes on when the request
gives up, so that a retry finds its result. Background jobs are queued and tried again after a delay; jobs
that a request waits for start at once and are tried once.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import islice

import structlog

from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.outcomes import Fold
from palimpsest.core.view.record import is_same_fold
from palimpsest.errors import StoreError
from palimpsest.proxy.compacting.breaker import BREAKER_SECONDS, LoopBreaker
from palimpsest.proxy.compacting.summary_writer import NoSummary, SummaryWriter
from palimpsest.proxy.compaction_context import CompactionContext, SummaryText, in_force
from palimpsest.proxy.jobs import FairPlaces, Jobs, logged
from palimpsest.proxy.session_journal import SessionJournal
from palimpsest.proxy.turn import Turn
from palimpsest.settings.compacting import CompactionSettings
from palimpsest.storage.erasure import RecentlyErased
from palimpsest.storage.journal import Journal, Prepared
from palimpsest.storage.store import Store

_log = structlog.get_logger("palimpsest.summaries")
_LEASES = structlog.get_logger("palimpsest.leases")
# Queued jobs of a namespace; each holds its conversation. Beyond this, summaries are written when needed.
MOST_WAITING = 64
# Sessions with running or finished jobs; a finished summary takes some 20 kB.
REMEMBERED_SESSIONS = 500
# Jobs running or queued at once, of all namespaces: each holds its request.
MOST_AHEAD = 32
# Longer than a summary takes, so that a late renewal loses nothing.
LEASE_SECONDS = 300
# Renewals within the lifetime of a lease: one may fail or come late.
RENEWALS = 3
# Interval at which another server's lease is polled (seconds): a summary takes seconds to a minute.
LOOK_SECONDS = 0.5


class Leases:
    """The leases of this server, `holder`, of `seconds` each. Several jobs of one session share its lease."""

    def __init__(
        self,
        journal: Journal,
        jobs: Jobs,
        holder: str,
        clock: Callable[[], float],
        seconds: float = LEASE_SECONDS,
    ) -> None:
        self._journal = journal
        self._jobs = jobs
        self._holder = holder
        self._clock = clock
        self._seconds = seconds
        # By key: the number of users, and the task that renews the lease.
        self._held: dict[str, tuple[int, asyncio.Task[None]]] = {}
        # Serializes taking and releasing, so that no release undoes a later take.
        self._changing = asyncio.Lock()

    @asynccontextmanager
    async def held(self, namespace: str, session: str) -> AsyncIterator[bool]:
        """Hold the session's lease. Yields False when another server has it, or the store fails."""
        key = _lease_key(namespace, session)
        has_lease = await self._take(key)
        try:
            yield has_lease
        finally:
            if has_lease:
                # Nothing is awaited before the release runs as a job: a cancellation cannot interrupt this.
                users, renewing = self._held.pop(key)
                if users > 1:
                    self._held[key] = users - 1, renewing
                else:
                    renewing.cancel()
                    await self._jobs.finish(self._release(key))

    async def is_elsewhere(self, namespace: str, session: str) -> bool:
        """True while another server writes for the session. StoreError."""
        key, now, holder = _lease_key(namespace, session), self._clock(), self._holder
        return key not in self._held and await self._journal.is_leased(key, now, holder)

    async def waited(self, namespace: str, session: str, seconds: float) -> float:
        """Wait while another server writes for the session, at most `seconds`; the seconds waited."""
        began, waited = time.monotonic(), 0.0
        with logged(_LEASES, "lease_not_read", session=session):
            while waited < seconds and await self.is_elsewhere(namespace, session):
                await asyncio.sleep(min(LOOK_SECONDS, seconds - waited))
                waited = time.monotonic() - began
        return waited

    async def _take(self, key: str) -> bool:
        async with self._changing:
            if key in self._held:
                users, renewing = self._held[key]
                self._held[key] = users + 1, renewing
                return True
            taken = False
            try:
                with logged(_LEASES, "lease_not_taken", lease=key):
                    taken = await self._journal.take_lease(key, self._holder, self._clock(), self._seconds)
            except asyncio.CancelledError:
                self._jobs.start(self._release(key))
                raise
            if taken:
                self._held[key] = 1, asyncio.create_task(self._renew(key))
            return taken

    async def _release(self, key: str) -> None:
        async with self._changing:
            if key not in self._held:
                # After a failure the lease expires by itself.
                with logged(_LEASES, "lease_not_released", lease=key):
                    await self._journal.release_lease(key, self._holder)

    async def _renew(self, key: str) -> None:
        """Renew the lease until cancelled, or until another server has taken it."""
        is_ours = True
        while is_ours:
            await asyncio.sleep(self._seconds / RENEWALS)
            with logged(_LEASES, "lease_not_renewed", lease=key):
                is_ours = await self._journal.renew_lease(key, self._holder, self._clock(), self._seconds)
        # The summary being written stays usable: whether it applies depends on the conversation.
        _LEASES.warning("lease_lost", lease=key)


def _lease_key(namespace: str, session: str) -> str:
    return f"compact:{namespace}:{session}"


@dataclass(eq=False, slots=True)
class Job:
    """One summary being written, until it is `made`; a job that makes none is forgotten as it ends.

    `hurried` is set once a request waits for it. `is_shared`: any server would write the same, so that the
    result may be fetched from or stored for other servers. `reason`: why it has no result, a stable word.
    """

    watermark: bytes
    policy: str
    model: str
    is_shared: bool
    hurried: asyncio.Event = field(default_factory=asyncio.Event)
    made: Compaction | None = None
    reason: str = "broken"
    task: asyncio.Task[None] = field(init=False)

    def reach(self, context: CompactionContext) -> int:
        """The index of the last message that it covers; -1 when it does not apply here (rule 24)."""
        is_same = self.policy == context.policy.name and self.model == context.turn.model
        return context.position(self.watermark) if is_same else -1

    async def awaited(self, seconds: float) -> tuple[Compaction | None, str]:
        """The result, else why there is none after `seconds`; a late job keeps running."""
        self.hurried.set()
        await asyncio.wait({self.task}, timeout=max(0.0, seconds))
        return self.made, self.reason if self.task.done() else "late"


class SummaryJobs:
    """Writes summaries as jobs, and keeps their results until they are used.

    At most `how.concurrent_summaries` run in the background at once. Prepared summaries are kept in `store`.
    No summary is written for sessions in `gone`.
    """

    def __init__(
        self,
        writer: SummaryWriter,
        store: Store,
        jobs: Jobs,
        journal: SessionJournal,
        gone: RecentlyErased,
        how: CompactionSettings,
        new_id: Callable[[], str],
    ) -> None:
        self._writer = writer
        self._store = store
        self._jobs = jobs
        self._journal = journal
        self._gone = gone
        self._how = how
        self._in_background = how.background and how.key_ttl_seconds > 0
        self._new_id = new_id
        # A SQLite file has one server, which takes over the leases of a killed one at its restart.
        self._leases = Leases(store.journal, jobs, store.journal.server or "sole", time.time)
        self._loops = LoopBreaker(BREAKER_SECONDS, time.monotonic)
        self._places = FairPlaces(how.concurrent_summaries)
        # By session; the session that started a job last is at the end.
        self._running: OrderedDict[tuple[str, str], list[Job]] = OrderedDict()

    def block_reason(self, context: CompactionContext) -> str:
        """A stable word for why no model may be asked about this conversation now; "" if one may be."""
        if context.is_ordered:
            # A manual compaction may follow a repair of the model: it is always tried (F05).
            return ""
        if self._writer.is_refused(context):
            return "breaker_open"
        return "looping" if self.is_looping(context) else ""

    def is_looping(self, context: CompactionContext) -> bool:
        """True for a while after the session was folded in three consecutive turns (F04)."""
        return self._loops.is_open(context.key)

    def may_prepare(self, context: CompactionContext) -> bool:
        """True while a job for this conversation may be queued in the background."""
        has_room = self._places.waiting(context.turn.namespace) < MOST_WAITING
        return self._in_background and has_room and not self.block_reason(context)

    async def is_ahead(self, context: CompactionContext, fold: Fold) -> bool:
        """True when a usable summary was made or is being written in the background, or may be started."""
        if self.begun(context) is not None:
            return self._in_background
        return self.may_prepare(context) and not await context.done(self._writer.unasked_reason, fold)

    async def prepare(self, context: CompactionContext, fold: Fold, *, is_again: bool = False) -> None:
        """Start a summary in the background, unless there is one or too many are queued.

        `is_again`: the fold is the one in force, whose record lacks an entry. It is adopted at the next turn.
        """

        def is_begun() -> bool:
            return bool(self._again(context) if is_again else self.begun(context))

        unmade = (job for jobs in self._running.values() for job in jobs if job.made is None)
        if is_begun() or sum(1 for _ in unmade) >= MOST_AHEAD or not self.may_prepare(context):
            return
        if not await context.done(self._writer.unasked_reason, fold) and not is_begun():
            self.begin(context, fold, is_shared=not is_again)

    def begun(self, context: CompactionContext) -> Job | None:
        """The job, running or finished, that covers most of this conversation beyond the current fold."""
        jobs, current = self._running.get(context.key, []), context.reach(context.current)
        ahead = [job for job in jobs if job.reach(context) > current]
        return max(ahead, key=lambda job: job.reach(context), default=None)

    def late(self, context: CompactionContext) -> Compaction | None:
        """A model's summary of exactly what code has folded, finished after a request stopped waiting."""
        current = context.current
        if current is None or current.author != "deterministic" or current.kind != "message_removal":
            return None
        return next((job.made for job in reversed(self._again(context)) if job.made is not None), None)

    def _again(self, context: CompactionContext) -> list[Job]:
        """The jobs whose summary is of exactly the current fold."""
        current = context.current
        reached = {current.watermark, current.covers} if current else set()
        jobs = self._running.get(context.key, [])
        return [job for job in jobs if job.watermark in reached and job.reach(context) >= 0]

    def begin(self, context: CompactionContext, fold: Fold, *, is_shared: bool) -> Job | None:
        """Start a job for this fold; None when no model may be asked.

        `is_shared`: a summary that another server has prepared is used instead.
        """
        key = context.key
        if self.block_reason(context) or key in self._gone:
            return None
        watermark = context.conversation.chains[fold.cut - 1]
        job = Job(watermark, context.policy.name, context.turn.model, is_shared)

        async def run() -> None:
            try:
                job.made = await self._written(context, fold, job)
            finally:
                if job.made is None:
                    self._keep(key, lambda other: other is not job)

        job.task = self._jobs.start(run())
        self._running[key] = [*self._running.get(key, [])[-7:], job]
        self._running.move_to_end(key)
        # The finished jobs of the oldest sessions are dropped; the store still has the summaries.
        over = (key for key, jobs in self._running.items() if all(job.made for job in jobs))
        for old in list(islice(over, max(0, len(self._running) - REMEMBERED_SESSIONS))):
            del self._running[old]
        return job

    def adopted(self, context: CompactionContext, compaction: Compaction) -> None:
        """A compaction is in force: drop finished jobs that cover no more. Running ones may still be late.

        A fold counts towards a loop, unless it is manual or a new text for the same fold.
        """
        is_fold = compaction.kind == "message_removal" and not is_same_fold(context.current, compaction)
        if isinstance(context.turn, Turn) and is_fold:
            answers = sum(message.role == "assistant" for message in context.conversation.messages)
            self._loops.folded(context.key, answers)
        reached = context.reach(compaction)
        self._keep(context.key, lambda job: job.made is None or context.position(job.watermark) > reached)

    def _keep(self, key: tuple[str, str], stays: Callable[[Job], bool]) -> None:
        """Keep only the session's jobs that stay."""
        if jobs := [job for job in self._running.get(key, []) if stays(job)]:
            self._running[key] = jobs
        else:
            self._running.pop(key, None)

    def erased(self, namespace: str, session: str) -> None:
        """Drop the finished jobs of an erased session and cancel the running ones."""
        for job in self._running.pop((namespace, session), []):
            job.task.cancel()

    def leased(self, context: CompactionContext) -> AbstractAsyncContextManager[bool]:
        """Hold the session's lease for summaries; yields False when another server has it."""
        return self._leases.held(*context.key)

    async def is_writing(self, context: CompactionContext) -> bool:
        """True while a usable summary is being written, here or on another server. StoreError."""
        job = self.begun(context)
        is_here = job is not None and job.made is None
        return is_here or await self._leases.is_elsewhere(*context.key)

    async def waited(self, context: CompactionContext) -> float:
        """Wait for another server's summary, at most until the deadline; the seconds waited."""
        job = self.begun(context)
        if (job is not None and job.made is not None) or self.block_reason(context):
            # No model would be asked here, so there is no duplicate call to avoid.
            return 0.0
        return await self._leases.waited(*context.key, self._how.deadline_seconds)

    async def _written(self, context: CompactionContext, fold: Fold, job: Job) -> Compaction | None:
        turn, how = context.turn, self._how
        # A rewrite of the current fold takes no lease: other servers may fold meanwhile.
        is_again = fold.cut == fold.since
        async with nullcontext(True) if is_again else self.leased(context) as is_ours:
            if not is_ours:
                _log.info("summary_elsewhere", session=turn.session)
                job.reason = "elsewhere"
                return None
            if job.is_shared:
                try:
                    # Prepared summaries are read before compactions: adopting a summary removes the prepared
                    # one in the same transaction, so that it is found in one of them.
                    ready = await self._store.compactions.prepared(*context.key)
                    rows = await self._store.compactions.of_session(*context.key)
                except StoreError as error:
                    _log.warning("prepared_not_read", error=type(error).__name__, session=turn.session)
                else:
                    if in_force(rows, context.conversation) != context.current:
                        # Another server has folded since the context was loaded.
                        job.reason = ""
                        return None
                    if (
                        ready is not None
                        and (ready.compaction.policy, ready.model) == (job.policy, job.model)
                        and context.reach(ready.compaction) > context.reach(context.current)
                    ):
                        job.watermark = ready.compaction.watermark
                        return ready.compaction
            # A job holds the caller's key: it ends after that time, even while queued. Keys are kept at least
            # as long as a request may wait for a summary.
            began = time.monotonic()
            try:
                async with asyncio.timeout(max(how.key_ttl_seconds, how.deadline_seconds)):
                    text = await self._attempts(context, fold, job)
            except (NoSummary, TimeoutError) as failure:
                is_failure, job.reason = True, "timeout"
                if isinstance(failure, NoSummary):
                    is_failure, job.reason = failure.is_failure, failure.reason
                if is_failure and not job.hurried.is_set():
                    # A waiting request gets a summary by code, whose record states why no model wrote it.
                    await self._journal.failed(turn, job.reason, fold.trigger, job.watermark)
                return None
            context.paces.summary_took(turn.namespace, turn.model, time.monotonic() - began)
            made = await context.folded(fold, self._new_id(), text)
            if job.is_shared:
                keeping = self._kept(context, Prepared(made, job.model))
                if self._store.journal.server is None:
                    # No other server needs it; it is stored for a restart, in the background.
                    self._jobs.start(keeping)
                else:
                    await keeping
            return made

    async def _kept(self, context: CompactionContext, prepared: Prepared) -> None:
        """Store the summary for the server that has the next turn; a store error is logged."""
        with logged(_log, "prepared_not_stored", session=context.turn.session):
            await self._store.compactions.prepare(*context.key, prepared)

    async def _attempts(self, context: CompactionContext, fold: Fold, job: Job) -> SummaryText:
        """Try twice, or once if a request waits (B17): the second time survives a short failure."""
        reason = ""
        for is_last in (False, True):
            if reason and self.block_reason(context):
                break
            async with self._place(job, context.turn.namespace):
                source = await context.done(CompactionContext.source, fold)
                try:
                    return await self._writer.write(context, fold, source)
                except NoSummary as failure:
                    if is_last or not failure.may_again or job.hurried.is_set():
                        raise
                    reason = failure.reason
            # A request that arrives meanwhile ends the delay.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._how.summary_backoff_seconds):
                    await job.hurried.wait()
        raise NoSummary(reason)

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
