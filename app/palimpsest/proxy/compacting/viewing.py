"""Steps 3 to 5 of an exchange: makes the view that is forwarded, carries out a fold, stores compactions.

The plan is pure (`palimpsest.core.view.plan`) and is carried out here. On any failure the request is sent
unchanged, or under a summary made by code (P8). Every wait is bounded. A compaction is committed before
anything is forwarded under it (rule 14).

A client that sends the same long list twice, without an answer of ours in it, begins two sessions (rule 3).
They stay separate, and the second reuses the summary of the first, from memory.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal, assert_never

import structlog

from palimpsest.core.history.message import Message
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.outcomes import Fold, MaskOnly, Plan, Refuse, Send
from palimpsest.core.view.plan import plan_all, plan_manual, plan_overflow
from palimpsest.core.view.record import WHY_BY_CODE, adopts
from palimpsest.core.view.view import applies, cut_in
from palimpsest.errors import Conflict, ContextLengthExceeded, InvalidView, RequestError, StoreError
from palimpsest.proxy.compacting.summary_jobs import Job, SummaryJobs
from palimpsest.proxy.compaction_context import BY_CODE, CompactionContext, ContextLoader
from palimpsest.proxy.jobs import Jobs
from palimpsest.proxy.session_journal import SessionJournal
from palimpsest.proxy.telemetry.counts import Counts
from palimpsest.proxy.turn import ForwardedView, Outcome, Subject, Turn, original
from palimpsest.storage.database import Recent
from palimpsest.storage.store import Store

_compactor_log = structlog.get_logger("palimpsest.compactor")
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
                _compactor_log.info(
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
        _compactor_log.info("summary_by_code", why=why, session=context.turn.session, id=done.id)
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


_log = structlog.get_logger("palimpsest.viewing")
# One plan may lead to another (masks, then a fold); each makes the prompt smaller, or takes up what another
# server has done meanwhile.
MOST_STEPS = 4
# Why a compaction by hand was not made.
NotMade = Literal["nothing_to_fold", "off"]


@dataclass(slots=True)
class _TurnState:
    """A turn in progress: its context, the fold to prepare after it, and its answer once stored."""

    context: CompactionContext
    due: Fold | None = None
    tokens: int = 0
    answer: Message | None = None


class ViewPlanner:
    """Decides which view of a conversation is forwarded, and compacts it if it must."""

    def __init__(
        self,
        contexts: ContextLoader,
        summaries: SummaryJobs,
        compactor: Compactor,
        jobs: Jobs,
        *,
        wait_seconds: float,
    ) -> None:
        self._contexts = contexts
        self._summaries = summaries
        self._compactor = compactor
        self._jobs = jobs
        self._wait_seconds = wait_seconds
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._waiting: Counter[tuple[str, str]] = Counter()
        self._states: dict[str, _TurnState] = {}

    async def shown(self, turn: Turn) -> ForwardedView:
        """The view for a turn; RequestError when what must be sent does not fit a known window."""
        return await self._unless_broken(turn, self._decided(turn)) or original(turn)

    async def recovered(
        self, turn: Turn, sent: ForwardedView, at_most: int | None, for_answer: int | None
    ) -> ForwardedView | None:
        """A smaller view after the upstream refused `sent` as too long (A29); `at_most`: the stated window.

        `for_answer`: the largest prompt (our count) that leaves room for `max_tokens`, where only their sum
        was refused. None when planning failed, or no fold makes that room; ContextLengthExceeded when nothing
        is left to fold.
        """
        return await self._unless_broken(turn, self._smaller(turn, sent, at_most, for_answer))

    def answer_stored(self, turn: Turn, shown: ForwardedView, outcome: Outcome) -> None:
        """Remember a stored answer for `answered`. The client may still wait for its end."""
        state = self._states.get(turn.exchange)
        if state is not None and outcome.state == "done" and len(outcome.answers) == 1:
            state.tokens, state.answer = shown.tokens + outcome.hidden_tokens, outcome.answers[0]

    def answered(self, turn: Turn) -> None:
        """The turn is over: start the summary that will be needed soon (B03).

        Not earlier: on a server that handles one request at a time the turn would wait for the summary
        (llama.cpp with one slot: 60 s, measured), and the prompt that its question reuses is cached only now.
        """
        state = self._states.pop(turn.exchange, None)
        if state is None:
            return
        context, answer = state.context, state.answer
        if state.due is not None:
            # The fold is planned already: no read of the store delays the summary.
            self._jobs.start(self._summaries.prepare(context, state.due))
        elif answer is not None and (
            context.due(state.tokens + answer.tokens, answer) != "later" or context.owes_entry
        ):
            # As the next request will send it.
            talk = turn.conversation.extended([answer])
            self._jobs.start(self._prepared(replace(turn, conversation=talk)))

    async def by_hand(self, subject: Subject, focus: str) -> Compaction | NotMade:
        """A compaction requested by a person (D25), or why none was made: it would save nothing (F35)."""
        async with self._one_at_a_time(subject):
            context = await self._contexts.of(subject, by_hand=True)
            if context.policy.is_off:
                return "off"
            if waited := await self._summaries.waited(context):
                context = await self._contexts.of(subject, by_hand=True)
            context = replace(context, focus=focus, is_ordered=True)
            plan = await context.done(CompactionContext.plan, plan_manual)
            made = await self._compactor.by_hand(context, plan, waited) if isinstance(plan, Fold) else None
            return made or "nothing_to_fold"

    async def of_all(
        self, subject: Subject, stays: Callable[[Message], bool]
    ) -> tuple[Compaction, CompactionContext]:
        """A compaction of all messages but those that `stays` keeps, and its context; nothing is stored."""
        context = await self._contexts.of(subject, by_hand=True)
        fold = await context.done(
            lambda _: plan_all(context.conversation, context.current, context.budget, stays)
        )
        return await self._compactor.of_all(context, fold), context

    async def is_compacting(self, context: CompactionContext) -> bool:
        """True while a compaction of the session, or a summary for this conversation, is being made.

        Also by another server on the same database. StoreError.
        """
        return context.key in self._locks or await self._summaries.is_writing(context)

    async def _unless_broken(
        self, turn: Turn, work: Coroutine[None, None, ForwardedView | None]
    ) -> ForwardedView | None:
        try:
            return await work
        except (RequestError, StoreError):
            raise
        except Exception as error:  # noqa: BLE001  # P8: a bug in planning must not cost the answer
            _log.error("planning_failed", error=type(error).__name__, session=turn.session)
            return None

    async def _smaller(
        self, turn: Turn, sent: ForwardedView, at_most: int | None, for_answer: int | None
    ) -> ForwardedView | None:
        if state := self._states.get(turn.exchange):
            state.due = None
        began = time.perf_counter()
        async with self._one_at_a_time(turn):
            context = await self._contexts.of(turn, at_most=at_most)
            now = await context.done(CompactionContext.under, context.current)
            if now.tokens < sent.tokens:
                # Another request of the session was refused too and has compacted already.
                return now
            plan: Fold | MaskOnly | Refuse
            if for_answer is None:
                plan = await context.done(CompactionContext.plan, plan_overflow)
            elif (found := await context.done(CompactionContext.for_answer, for_answer)) is None:
                return None
            else:
                context, plan = found
            match plan:
                case MaskOnly():
                    adopted = await self._compactor.mask(context, plan)
                case Fold():
                    adopted = await self._compactor.fold(context, plan)
                case Refuse():
                    lighter = await context.bare().done(CompactionContext.under, context.current)
                    if lighter.tokens < sent.tokens:
                        return lighter
                    raise ContextLengthExceeded(plan.message, param=turn.wire.listed)
            smaller = await context.done(CompactionContext.under, adopted.compaction)
            return _waited(smaller, began, sent.waited_seconds or 0.0)

    async def _decided(self, turn: Turn) -> ForwardedView:
        context = await self._contexts.of(turn, untouched=turn.is_new)
        state = self._states[turn.exchange] = _TurnState(context)
        if context.current is None and context.due(turn.tokens) == "later":
            is_off, window = context.policy.is_off, context.budget.window
            return replace(original(turn, is_off=is_off), window_tokens=window.tokens)
        if (late := await self._compactor.late(context)) is not None:
            async with self._one_at_a_time(turn):
                fresh = await self._contexts.of(turn)
                # Unless another request has adopted it.
                if await self._compactor.late(fresh) is late:
                    adopted = await self._compactor.adopt_late(fresh, late)
                    return await fresh.done(CompactionContext.under, adopted.compaction)
        plan, policy = await self._planned(context), context.policy
        if isinstance(plan, Send):
            return await self._sent(turn, context, plan)
        if isinstance(plan, Fold) and plan.fits_now and policy.in_background:
            job = self._summaries.begun(context)
            is_needed = job is not None and (policy.wait_for_summary or job.made is not None)
            if not is_needed and await self._summaries.is_ahead(context, plan):
                # The view still fits, and a summary in the background will follow: nothing waits.
                state.due = plan
                return await context.done(CompactionContext.under, context.current)
        began = time.perf_counter()
        async with self._one_at_a_time(turn):
            return _waited(await self._compacted(turn), began)

    async def _compacted(self, turn: Turn) -> ForwardedView:
        waited: float | None = None
        for _ in range(MOST_STEPS):
            context = await self._contexts.of(turn)
            plan = await self._planned(context)
            match plan:
                case Send():
                    return await self._sent(turn, context, plan)
                case MaskOnly():
                    adopted = await self._compactor.mask(context, plan)
                case Fold():
                    if waited is None and (waited := await self._summaries.waited(context)):
                        continue
                    adopted = await self._compactor.fold(context, plan, waited)
                case Refuse():
                    raise ContextLengthExceeded(plan.message, param=turn.wire.listed)
                case _ as never:
                    assert_never(never)
            if not adopted.is_stored:
                # The session was erased: the next context would lead to the same plan.
                return await context.done(CompactionContext.under, adopted.compaction)
        context = await self._contexts.of(turn)
        return await context.done(CompactionContext.under, context.current)

    async def _prepared(self, turn: Turn) -> None:
        """Start the summary, or the missing entry, that the conversation with its answer will need soon."""
        try:
            context = await self._contexts.of(turn)
        except StoreError as error:
            _log.warning("preparing_failed", error=type(error).__name__, session=turn.session)
            return
        summaries = self._summaries
        if not context.policy.in_background or summaries.begun(context) or not summaries.may_prepare(context):
            return
        plan = await self._planned(context)
        fold = plan.precompute if isinstance(plan, Send) else plan
        if isinstance(fold, Fold):
            await summaries.prepare(context, fold)
        elif context.owes_entry and (again := await context.done(CompactionContext.fold_in_force)):
            await summaries.prepare(context, again, is_again=True)

    async def _planned(self, context: CompactionContext) -> Plan:
        return await context.done(CompactionContext.decide, is_looping=self._summaries.is_looping(context))

    async def _sent(self, turn: Turn, context: CompactionContext, plan: Send) -> ForwardedView:
        self._states[turn.exchange] = _TurnState(context, plan.precompute)
        return await context.done(CompactionContext.shown, plan.view)

    @asynccontextmanager
    async def _one_at_a_time(self, turn: Subject) -> AsyncIterator[None]:
        """Let one request of a session compact while the others wait, at most `wait_seconds` (rule 16)."""
        key = turn.namespace, turn.session
        self._waiting[key] += 1
        lock = self._locks.setdefault(key, asyncio.Lock())
        held = False
        try:
            try:
                async with asyncio.timeout(self._wait_seconds):
                    held = await lock.acquire()
            except TimeoutError:
                _log.warning("compaction_wait", session=turn.session)
            yield
        finally:
            if held:
                lock.release()
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key]
                del self._locks[key]


def _waited(shown: ForwardedView, began: float, before: float = 0.0) -> ForwardedView:
    """The view, for which the request has waited since `began`, and `before` seconds earlier."""
    return replace(shown, waited_seconds=before + time.perf_counter() - began)
