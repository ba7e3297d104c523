"""Step 5 of an exchange: carries out a fold and stores its compaction.

Every wait is bounded. A compaction is committed before anything is forwarded under it (rule 14).

A client that sends the same long list twice, without an answer of ours in it, begins two sessions (rule 3).
They stay separate, and the second reuses the summary of the first, from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import nullcontext
from dataclasses import dataclass, replace

import structlog

from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.outcomes import Fold, MaskOnly
from palimpsest.core.view.record import WHY_BY_CODE, adopts
from palimpsest.core.view.view import applies, cut_in
from palimpsest.errors import Conflict, InvalidView, StoreError
from palimpsest.proxy.compacting.summaries import Job, SummaryJobs
from palimpsest.proxy.compaction_context import BY_CODE, CompactionContext
from palimpsest.proxy.jobs import Jobs
from palimpsest.proxy.session_journal import SessionJournal
from palimpsest.proxy.telemetry.metrics import Counts
from palimpsest.storage.database import Recent
from palimpsest.storage.store import Store

_log = structlog.get_logger("palimpsest.compactor")
# First folds remembered for repeated lists, and characters of the longest summary among them: usually 20 kB.
REMEMBERED_FOLDS = 64
_LONGEST = 256 * 1024


@dataclass(frozen=True, slots=True)
class Adopted:
    """A compaction to make a view under. `is_stored` False: for this request only."""

    compaction: Compaction
    is_stored: bool


class Compactor:
    """Turns plans into stored compactions. A request waits at most `deadline_seconds` for a summary."""

    def __init__(
        self,
        store: Store,
        jobs: Jobs,
        journal: SessionJournal,
        summaries: SummaryJobs,
        counts: Counts | None,
        deadline_seconds: float,
        new_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._journal = journal
        self._summaries = summaries
        self._counts = counts
        self._deadline_seconds = deadline_seconds
        self._new_id = new_id
        # The newest first folds of conversations, with their sessions, by the messages that they stand for.
        self._repeated: Recent[Hashable, tuple[str, Compaction]] = Recent(REMEMBERED_FOLDS)

    def erased(self, namespace: str, session: str) -> None:
        """Drop what was prepared for an erased session."""
        self._summaries.erased(namespace, session)
        for key in [key for key, (whose, _) in self._repeated.items() if whose == session]:
            del self._repeated[key]

    async def mask(self, context: CompactionContext, plan: MaskOnly) -> Adopted:
        """Store a compaction that only masks."""
        return await self.adopt(context, await context.done(CompactionContext.masked, plan, self._new_id()))

    async def fold(self, context: CompactionContext, fold: Fold, waited: float = 0.0) -> Adopted:
        """Store the fold with the best summary available before the deadline.

        `waited` seconds of the deadline have passed already. A model's summary may have been prepared
        earlier; code writes where it does not fit.
        """
        # The digest of the head covers the whole conversation within the namespace.
        turn, policy = context.turn, context.policy
        history = turn.namespace, context.conversation.head, turn.model, policy
        # Then the summary depends on the messages alone.
        is_first = not (context.current or context.memory or context.is_ordered or context.replay.rounds)
        if is_first and history in self._repeated:
            again = replace(self._repeated[history][1], id=self._new_id())
            talk, budget = context.conversation, context.budget
            if await context.done(lambda _: adopts(again, talk, None, budget, context.count_text)):
                return await self.adopt(context, again)
        job = self._summaries.begun(context) or self._begin(context, fold, is_shared=True)
        # Hold the lease until it is stored, so that no other server requests the same summary in between.
        async with self._summaries.leased(context) if job is not None else nullcontext():
            made, why = await self._awaited(context, job, waited)
            done = await context.folded_on(made, fold, self._new_id()) if made is not None else None
            if done is not None:
                shown = await context.done(CompactionContext.under, done)
                if not applies(done, context.conversation) or shown.tokens > context.budget.ceiling_tokens:
                    done, why = None, "no_room"
            done = done or await self._by_code(context, fold, why)
            filled = await context.filled(done, fold.target_tokens, self._new_id())
            adopted = await self.adopt(context, filled)
        is_by_model = adopted.is_stored and done.author == "model"
        if is_first and is_by_model and len(done.summary) <= _LONGEST:
            self._repeated[history] = turn.session, done
        return adopted

    async def by_hand(self, context: CompactionContext, fold: Fold, waited: float = 0.0) -> Compaction | None:
        """As `fold`, with a new summary; None, and nothing stored, when that would save nothing."""
        done, why = await self._awaited(context, self._begin(context, fold), waited)
        if done is None or done.tokens_after >= done.tokens_before:
            done = await self._by_code(context, fold, "no_gain" if done else why)
        if done.tokens_after >= done.tokens_before:
            return None
        adopted = await self.adopt(context, done)
        if not adopted.is_stored:
            raise Conflict("The session was erased while it was being compacted.")
        return adopted.compaction

    async def of_all(self, context: CompactionContext, fold: Fold) -> Compaction:
        """The fold with the best summary available before the deadline; nothing is stored."""
        done, why = await self._awaited(context, self._begin(context, fold), 0.0)
        return done or await self._by_code(context, fold, why)

    async def late(self, context: CompactionContext) -> Compaction | None:
        """A model's summary that was finished after code had folded the same messages; not stored yet."""
        late = self._summaries.late(context)
        if late is None:
            return None
        shown = await context.done(CompactionContext.under, late)
        return late if shown.tokens < context.budget.trigger_tokens else None

    async def adopt_late(self, context: CompactionContext, late: Compaction) -> Adopted:
        """Store a model's late summary in place of the one by code."""
        least, target = cut_in(context.current, context.conversation), context.budget.target_tokens
        return await self.adopt(context, await context.filled(late, target, self._new_id(), least=least))

    async def adopt(self, context: CompactionContext, compaction: Compaction) -> Adopted:
        """Store the compaction with current figures, after its checkpoint.

        Not stored when the session was erased meanwhile: the request in flight is still answered under it
        (rule 30). InvalidView, and nothing stored, when the view would be less valid than what the client
        sent (rule 20). StoreError when it, or its checkpoint (A36), cannot be stored: then nothing is
        removed. A write that has begun is finished even if the caller is cancelled.
        """
        turn, talk = context.turn, context.turn.conversation
        if compaction.masks:
            # The stored ids of the masked messages: after a rebase these differ from the digests of the
            # client's list.
            names = talk.names
            if names == talk.chains:
                path = await self._store.history.path(turn.namespace, turn.session, talk.head)
                names = tuple(point.chain for point in path)
            compaction = compaction.named(dict(zip(talk.chains, names, strict=False)))
        compaction = await context.done(CompactionContext.measured, compaction)
        if faults := await context.done(CompactionContext.faults_added, compaction):
            await self._failed(context, compaction, "invalid_view")
            raise InvalidView(f"A view would be refused: {', '.join(faults)}.")
        stored, row = False, await self._store.history.named(turn.namespace, turn.session)
        if row is not None:
            also, at = await self._journal.before(context, compaction)
            adding = self._store.compactions.add(
                turn.namespace, turn.session, row.epoch, compaction, at, also
            )
            try:
                stored = await self._jobs.finish(adding)
            except StoreError:
                await self._failed(context, compaction, "not_stored")
                raise
            if stored:
                self._journal.adopted(turn, compaction, at)
                _log.info(
                    "compaction",
                    session=turn.session,
                    id=compaction.id,
                    kind=compaction.kind,
                    trigger=compaction.trigger,
                    author=compaction.author,
                    tokens_before=compaction.tokens_before,
                    tokens_after=compaction.tokens_after,
                )
                if self._counts is not None:
                    self._counts.compacted(compaction, is_stored=True)
        self._summaries.adopted(context, compaction)
        return Adopted(compaction, stored)

    async def _failed(self, context: CompactionContext, compaction: Compaction, reason: str) -> None:
        """Write the event of a failed compaction; `reason` is a stable word."""
        if self._counts is not None:
            self._counts.compacted(compaction, is_stored=False)
        await self._journal.failed(context.turn, reason, compaction.trigger, compaction.watermark)

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

    def _begin(self, context: CompactionContext, fold: Fold, *, is_shared: bool = False) -> Job | None:
        """Start a summary for this request; None when the deadline is 0 or no model may be asked."""
        if self._deadline_seconds <= 0:
            return None
        job = self._summaries.begin(context, fold, is_shared=is_shared)
        if job is not None:
            job.hurried.set()
        return job

    async def _awaited(
        self, context: CompactionContext, job: Job | None, waited: float
    ) -> tuple[Compaction | None, str]:
        """The model's compaction, or None and a stable word for why there is none, "" if none was wanted."""
        if job is not None:
            return await job.awaited(self._deadline_seconds - waited)
        return None, self._summaries.block_reason(context) if self._deadline_seconds > 0 else ""
