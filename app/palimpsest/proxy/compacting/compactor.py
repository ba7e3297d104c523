"""Step 5 of an exchange: carries out a fold and stores its compaction.

Every wait is bounded. A compaction is committed before anything is forwarded under it (rule 14).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.outcomes import Fold, MaskOnly
from palimpsest.core.view.record import WHY_BY_CODE, adopts
from palimpsest.core.view.view import applies, cut_in
from palimpsest.errors import Conflict, InvalidView, StoreError
from palimpsest.proxy.compacting.summaries import Job, RepeatedFolds, SummaryJobs
from palimpsest.proxy.compaction_context import BY_CODE, CompactionContext
from palimpsest.proxy.jobs import Jobs
from palimpsest.proxy.journal.session_journal import SessionJournal
from palimpsest.storage.store import Store

_log = structlog.get_logger("palimpsest.compactor")


class CountCompaction(Protocol):
    """Called with each compaction that is stored, or that failed."""

    def __call__(self, compaction: Compaction, *, is_stored: bool) -> None:
        """Count it."""


class Adoption:
    """Stores compactions, with their checkpoints and events; `counts` them."""

    def __init__(
        self, store: Store, jobs: Jobs, journal: SessionJournal, counts: CountCompaction | None = None
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._journal = journal
        self._counts = counts

    async def stored(self, context: CompactionContext, compaction: Compaction) -> bool:
        """Store the compaction; False when the session was erased meanwhile.

        StoreError when it, or its checkpoint (A36), cannot be stored: then nothing is removed. A write that
        has begun is finished even if the caller is cancelled.
        """
        turn = context.turn
        row = await self._store.history.named(turn.namespace, turn.session)
        if row is None:
            return False
        also, at = await self._journal.before(context, compaction)
        adding = self._store.compactions.add(turn.namespace, turn.session, row.epoch, compaction, at, also)
        try:
            stored = await self._jobs.finish(adding)
        except StoreError:
            await self.failed(context, compaction, "not_stored")
            raise
        if stored:
            self._journal.adopted(turn, compaction, at)
            _log_compaction(turn.session, compaction)
            if self._counts is not None:
                self._counts(compaction, is_stored=True)
        return stored

    async def named(self, context: CompactionContext, compaction: Compaction) -> Compaction:
        """The compaction with the stored ids of the messages that it masks. StoreError.

        After a rebase these differ from the digests of the client's list.
        """
        if not compaction.masks:
            return compaction
        turn, talk = context.turn, context.turn.conversation
        names: Sequence[bytes] = talk.names
        if names == talk.chains:
            names = [
                point.chain
                for point in await self._store.history.path(turn.namespace, turn.session, talk.head)
            ]
        return compaction.named(dict(zip(talk.chains, names, strict=False)))

    async def failed(self, context: CompactionContext, compaction: Compaction, reason: str) -> None:
        """Write the event of a failed compaction; `reason` is a stable word."""
        if self._counts is not None:
            self._counts(compaction, is_stored=False)
        await self._journal.failed(context.turn, reason, compaction.trigger, compaction.watermark)


def _log_compaction(session: str, compaction: Compaction) -> None:
    _log.info(
        "compaction",
        session=session,
        id=compaction.id,
        kind=compaction.kind,
        trigger=compaction.trigger,
        author=compaction.author,
        tokens_before=compaction.tokens_before,
        tokens_after=compaction.tokens_after,
    )


@dataclass(frozen=True, slots=True)
class Adopted:
    """A compaction to make a view under. `is_stored` False: for this request only."""

    compaction: Compaction
    is_stored: bool


class Compactor:
    """Turns plans into stored compactions."""

    def __init__(
        self,
        adoption: Adoption,
        summaries: SummaryJobs,
        *,
        deadline_seconds: float,
        background: bool,
        new_id: Callable[[], str],
    ) -> None:
        self._adoption = adoption
        self._summaries = summaries
        self._deadline_seconds = deadline_seconds
        self._background = background
        self._new_id = new_id
        self._repeated = RepeatedFolds()

    async def prepare(self, context: CompactionContext, fold: Fold) -> None:
        """Start a summary in the background, unless a usable one exists or too many are queued."""
        if self._summaries.is_crowded:
            return
        if await self.may_prepare(context, fold) and self._summaries.begun(context) is None:
            self._summaries.begin(context, fold, is_shared=True)

    async def complete(self, context: CompactionContext) -> None:
        """Start writing the entry that the record in force lacks, if one is owed.

        It is adopted at the next turn; no request waits for it.
        """
        if not self._background or not context.owes_entry or self._summaries.is_crowded:
            return
        fold = await context.done(CompactionContext.fold_in_force)
        if fold is not None and self._can_wait(context) and not self._summaries.is_again(context):
            self._summaries.begin(context, fold, is_shared=False)

    def prepares(self, context: CompactionContext) -> bool:
        """True when a background summary may be started: none is there, and a model may be asked."""
        is_ahead = self._background and context.policy.in_background
        return is_ahead and self._can_wait(context) and self._summaries.begun(context) is None

    async def may_prepare(self, context: CompactionContext, fold: Fold) -> bool:
        """True when a usable summary is being written in the background, or may be started."""
        if not self._background:
            return False
        can_begin = self._can_wait(context) and await self._summaries.asks(context, fold)
        return can_begin or self._summaries.begun(context) is not None

    def _can_wait(self, context: CompactionContext) -> bool:
        return self._summaries.can_begin(context) and self._summaries.has_room(context)

    def is_looping(self, context: CompactionContext) -> bool:
        """True while further folds of the session should be avoided (F04)."""
        return self._summaries.is_looping(context)

    async def is_elsewhere(self, context: CompactionContext) -> bool:
        """True while another server writes a summary for the session. StoreError."""
        return await self._summaries.is_elsewhere(context)

    async def waited(self, context: CompactionContext) -> float:
        """Wait for another server's summary, at most until the deadline; the seconds waited."""
        if self.is_ready(context) or not self._summaries.can_begin(context):
            # No model would be asked here, so there is no duplicate call to avoid.
            return 0.0
        return await self._summaries.waited(context, self._deadline_seconds)

    def is_preparing(self, context: CompactionContext) -> bool:
        """True while a usable summary is being written."""
        job = self._summaries.begun(context)
        return job is not None and not job.task.done()

    def is_ready(self, context: CompactionContext) -> bool:
        """True when a usable summary has been written and is not in force yet."""
        job = self._summaries.begun(context)
        return job is not None and job.task.done()

    async def late(self, context: CompactionContext) -> Compaction | None:
        """A model's summary that was finished after code had folded the same messages; not stored yet."""
        late = self._summaries.late(context)
        return late if late is not None and await context.done(CompactionContext.frees_enough, late) else None

    async def adopt_late(self, context: CompactionContext, late: Compaction) -> Adopted:
        """Store a model's late summary in place of the one by code."""
        least = cut_in(context.current, context.conversation)
        target = context.budget.target_tokens
        return await self.adopt(context, await context.filled(late, target, self._new_id(), least=least))

    def erased(self, namespace: str, session: str) -> None:
        """Drop what was prepared for an erased session."""
        self._summaries.erased(namespace, session)
        self._repeated.erased(namespace, session)

    async def mask(self, context: CompactionContext, plan: MaskOnly) -> Adopted:
        """Store a compaction that only masks."""
        return await self.adopt(context, await context.done(CompactionContext.masked, plan, self._new_id()))

    async def fold(self, context: CompactionContext, fold: Fold, waited: float = 0.0) -> Adopted:
        """Store the fold with the best summary available before the deadline.

        `waited` seconds of the deadline have passed already.
        """
        again = self._repeated.find(context, self._new_id())
        if again is not None and await context.done(_adopts, again):
            return await self.adopt(context, again)
        job = self._summaries.begun(context) or self._asked_for(context, fold, is_shared=True)
        if job is None:
            done = await self._by_code(context, fold, self._unasked(context))
            return await self.adopt(context, await context.filled(done, fold.target_tokens, self._new_id()))
        # Hold the lease until it is stored, so that no other server requests the same summary in between.
        async with self._summaries.leased(context):
            made = await self._awaited(job, waited)
            usable = await self._usable(context, made, fold) if made is not None else None
            done = usable or await self._by_code(context, fold, "no_room" if made else _missing(job))
            adopted = await self.adopt(
                context, await context.filled(done, fold.target_tokens, self._new_id())
            )
            if adopted.is_stored and done.author == "model":
                self._repeated.keep(context, done)
            return adopted

    async def _usable(self, context: CompactionContext, made: Compaction, fold: Fold) -> Compaction | None:
        """The fold with a model's record, perhaps one prepared earlier; None when it does not fit."""
        done = await context.folded_on(made, fold, self._new_id())
        is_usable = applies(done, context.conversation)
        shown = await context.done(CompactionContext.under, done)
        return done if is_usable and shown.tokens <= context.budget.ceiling_tokens else None

    async def by_hand(self, context: CompactionContext, fold: Fold, waited: float = 0.0) -> Compaction | None:
        """As `fold`, with a new summary; None, and nothing stored, when that would save nothing."""
        job = self._asked_for(context, fold)
        done = await self._awaited(job, waited) if job else None
        if done is None or done.tokens_after >= done.tokens_before:
            missing = _missing(job) if job else self._unasked(context)
            done = await self._by_code(context, fold, "no_gain" if done else missing)
        if done.tokens_after >= done.tokens_before:
            return None
        adopted = await self.adopt(context, done)
        if not adopted.is_stored:
            raise Conflict("The session was erased while it was being compacted.")
        return adopted.compaction

    async def of_all(self, context: CompactionContext, fold: Fold) -> Compaction:
        """The fold with the best summary available before the deadline; nothing is stored."""
        job = self._asked_for(context, fold)
        done = await self._awaited(job, 0.0) if job else None
        return done or await self._by_code(context, fold, _missing(job) if job else self._unasked(context))

    async def adopt(self, context: CompactionContext, compaction: Compaction) -> Adopted:
        """Store the compaction with current figures, after its checkpoint.

        Not stored when the session was erased meanwhile: the request in flight is still answered under it
        (rule 30). InvalidView, and nothing stored, when the view would be less valid than what the client
        sent (rule 20). StoreError when it, or its checkpoint (A36), cannot be stored.
        """
        compaction = await self._adoption.named(context, compaction)
        compaction = await context.done(CompactionContext.measured, compaction)
        if faults := await context.done(CompactionContext.faults_added, compaction):
            await self._adoption.failed(context, compaction, "invalid_view")
            raise InvalidView(f"A view would be refused: {', '.join(faults)}.")
        stored = await self._adoption.stored(context, compaction)
        self._summaries.forget(context, compaction)
        return Adopted(compaction, stored)

    async def _by_code(self, context: CompactionContext, fold: Fold, why: str) -> Compaction:
        """The fold without a model's text; the record and the log state the reason."""
        done = await context.folded(fold, self._new_id(), None)
        said = WHY_BY_CODE.get(why, f"the model's server answered {why}" if why.startswith("status_") else "")
        if not said:
            return done
        _log.info("summary_by_code", why=why, session=context.turn.session, id=done.id)
        if why not in ("not_worth_asking", "no_room_to_ask"):
            done = done.owing_entry()
        return replace(done, reason=f"{done.reason}{BY_CODE}{said}")

    def _unasked(self, context: CompactionContext) -> str:
        """A stable word for why no model was asked; "" when the deadline setting is 0."""
        return self._summaries.block_reason(context) if self._deadline_seconds > 0 else ""

    def _asked_for(self, context: CompactionContext, fold: Fold, *, is_shared: bool = False) -> Job | None:
        """Start a summary for this request; None when the deadline is 0 or no model may be asked."""
        job = (
            self._summaries.begin(context, fold, is_shared=is_shared) if self._deadline_seconds > 0 else None
        )
        if job is not None:
            job.hurried.set()
        return job

    async def _awaited(self, job: Job, waited: float) -> Compaction | None:
        """The job's result, None when it is late or failed; a late job keeps running."""
        job.hurried.set()
        await asyncio.wait({job.task}, timeout=max(0.0, self._deadline_seconds - waited))
        if not job.task.done() or job.task.cancelled() or job.task.exception() is not None:
            return None
        return job.task.result()


def _missing(job: Job) -> str:
    """A stable word for why a job has no result yet."""
    if not job.task.done():
        return "late"
    is_broken = job.task.cancelled() or job.task.exception() is not None
    return "broken" if is_broken else job.reason


def _adopts(context: CompactionContext, prepared: Compaction) -> bool:
    return adopts(prepared, context.conversation, context.current, context.budget, context.count_text)
