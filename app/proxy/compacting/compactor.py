"""Step 5 of an exchange: carries a fold out, by a summary that is ready, one asked for, or code alone.

Every wait is bounded. A compaction is committed before anything is forwarded under it (rule 14).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import structlog

from app.core.view.compaction import Compaction
from app.core.view.outcomes import Fold, MaskOnly
from app.core.view.record import adopts, folds_more
from app.errors import Conflict, InvalidView
from app.proxy.chronicle.adoption import Adoption
from app.proxy.compacting.repeated import RepeatedFolds
from app.proxy.compacting.scene import BY_CODE, Scene
from app.proxy.compacting.summaries import Job, Summaries

_log = structlog.get_logger("palimpsest.compactor")
# Why a model did not write a summary, in words for a person; a fold that needs no model has no reason.
WHY_BY_CODE: Mapping[str, str] = {
    "late": "the model had not answered at the deadline",
    "timeout": "the model did not answer in time",
    "rejected": "what the model wrote was no summary",
    "too_long": "the question did not fit the model's window",
    "key_refused": "the key was refused",
    "nobody_to_ask": "no model may be asked",
    "not_worth_asking": "a model's summary would cost more than it is worth",
    "spending_limit": "the limit for summaries is reached",
    "breaker_open": "the model failed several times and is not asked for a while",
    "looping": "the conversation was folded in three turns in a row",
    "elsewhere": "another server was writing one",
    "no_room": "the model's summary did not fit",
    "no_gain": "the model's summary freed nothing",
    "unreachable": "the model's server was not reached",
    "cut": "the model's answer broke off",
    "unreadable": "the model's answer could not be read",
    "no_choice": "the model's answer held no text",
    "no_summary": "the program's answer held no summary",
    "broken": "writing it failed",
}


@dataclass(frozen=True, slots=True)
class Adopted:
    """A compaction that a view may be made under. `is_stored`: until further notice, not only this once."""

    compaction: Compaction
    is_stored: bool


class Compactor:
    """Turns plans into stored compactions."""

    def __init__(
        self,
        adoption: Adoption,
        summaries: Summaries,
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

    async def prepare(self, scene: Scene, fold: Fold) -> None:
        """A summary is being written in the background, unless one that serves is there or many wait."""
        if self._summaries.is_crowded:
            return
        if await self.may_prepare(scene, fold) and await self._serving(scene) is None:
            self._summaries.begin(scene, fold, is_shared=True)

    async def rebuild(self, scene: Scene) -> None:
        """A model's record in place of the code's is being written from the messages, if that is due.

        It takes its place at the next turn; nothing waits for it.
        """
        if not self._background or not scene.owes_rebuild() or self._summaries.is_crowded:
            return
        fold = await scene.done(Scene.standing)
        if fold is not None and self._can_wait(scene) and not self._summaries.is_again(scene):
            self._summaries.begin(scene, fold, is_shared=False)

    async def prepares(self, scene: Scene) -> bool:
        """True where a summary would be written ahead if one were due: none is, and somebody may be asked."""
        is_ahead = self._background and scene.policy.in_background
        return is_ahead and self._can_wait(scene) and await self._serving(scene) is None

    async def may_prepare(self, scene: Scene, fold: Fold) -> bool:
        """True when a summary that serves is being written, or would be if asked for."""
        if not self._background:
            return False
        can_begin = self._can_wait(scene) and await self._summaries.is_worth(scene, fold)
        return can_begin or await self._serving(scene) is not None

    async def _serving(self, scene: Scene) -> Job | None:
        """The summary that is being written, or one that is ready and still frees enough.

        One that does not must not keep a newer one from being written.
        """
        job = self._summaries.begun(scene)
        if job is None or not job.task.done():
            return job
        done = job.task.result()
        return job if done is not None and await scene.done(_serves, done) else None

    def _can_wait(self, scene: Scene) -> bool:
        return self._summaries.can_begin(scene) and self._summaries.has_room(scene)

    def is_looping(self, scene: Scene) -> bool:
        """True while the session should not be folded again if it can be helped (F04)."""
        return self._summaries.is_looping(scene)

    async def is_elsewhere(self, scene: Scene) -> bool:
        """True while another server writes a summary for the session. StoreError."""
        return await self._summaries.is_elsewhere(scene)

    async def waited(self, scene: Scene) -> float:
        """The seconds, at most the deadline, for which another server's summary was waited for."""
        if not self._summaries.can_begin(scene):
            # Nobody would be asked here: there is nothing to leave to others.
            return 0.0
        return await self._summaries.waited(scene, self._deadline_seconds)

    def is_preparing(self, scene: Scene) -> bool:
        """True while a summary that serves is being written."""
        job = self._summaries.begun(scene)
        return job is not None and not job.task.done()

    async def is_behind(self, scene: Scene) -> bool:
        """True when a summary begun at the trigger came too late to bring the view below it.

        Turns are faster than summaries here: the next one would be late as well.
        """
        job = self._summaries.begun(scene)
        is_late = job is not None and job.is_due and job.task.done()
        return is_late and await self._serving(scene) is None

    async def ready(self, scene: Scene) -> Compaction | None:
        """A finished background summary that does what is needed now, not stored yet."""
        job = await self._serving(scene)
        return job.task.result() if job is not None and job.task.done() else None

    async def late(self, scene: Scene) -> Compaction | None:
        """A model's summary that came after code had folded the same in its place; not stored yet."""
        late = self._summaries.late(scene)
        return late if late is not None and await scene.done(Scene.frees_enough, late) else None

    def erased(self, namespace: str, session: str) -> None:
        """The session was erased: nothing is prepared for it."""
        self._summaries.erased(namespace, session)
        self._repeated.erased(namespace, session)

    async def mask(self, scene: Scene, plan: MaskOnly) -> Adopted:
        """The masks are in force."""
        return await self.adopt(scene, await scene.done(Scene.masked, plan, self._new_id()))

    async def fold(self, scene: Scene, fold: Fold, waited: float = 0.0) -> Adopted:
        """The fold is in force, with the best summary that can be had before the deadline.

        Of it `waited` seconds are over already.
        """
        again = self._repeated.find(scene, self._new_id())
        if again is not None and await scene.done(_adopts, again):
            return await self.adopt(scene, again)
        job = await self._serving(scene) or self._asked_for(scene, fold, is_shared=True)
        if job is None:
            return await self.adopt(scene, await self._by_code(scene, fold, self._unasked(scene)))
        # Held until it is in force: another server would else ask for the same in between.
        async with self._summaries.leased(scene):
            done = await self._awaited(job, waited)
            shown = await scene.done(Scene.under, done) if done is not None else None
            usable = shown is not None and shown.tokens <= scene.budget.ceiling_tokens
            if done is None or not usable:
                done = await self._by_code(scene, fold, "no_room" if done else _missing(job))
            adopted = await self.adopt(scene, done)
            if adopted.is_stored and done.author == "model":
                self._repeated.keep(scene, done)
            return adopted

    async def by_hand(self, scene: Scene, fold: Fold, waited: float = 0.0) -> Compaction | None:
        """As `fold`, with a summary of its own; None, and nothing stored, when that would save nothing."""
        job = self._asked_for(scene, fold)
        done = await self._awaited(job, waited) if job else None
        if done is None or done.tokens_after >= done.tokens_before:
            missing = _missing(job) if job else self._unasked(scene)
            done = await self._by_code(scene, fold, "no_gain" if done else missing)
        if done.tokens_after >= done.tokens_before:
            return None
        adopted = await self.adopt(scene, done)
        if not adopted.is_stored:
            raise Conflict("The session was erased while it was being compacted.")
        return adopted.compaction

    async def of_all(self, scene: Scene, fold: Fold) -> Compaction:
        """What a fold would be, with the best summary to be had before the deadline; nothing is in force."""
        job = self._asked_for(scene, fold)
        done = await self._awaited(job, 0.0) if job else None
        return done or await self._by_code(scene, fold, _missing(job) if job else self._unasked(scene))

    async def adopt(self, scene: Scene, compaction: Compaction) -> Adopted:
        """The compaction is stored, with the figures of this moment, after what must be there before it.

        It is not when the session was erased meanwhile: a request on its way is answered under it all the
        same (rule 30). InvalidView, and nothing stored, when the view
        would be less valid than what the client sent (rule 20). StoreError when it, or its checkpoint
        (A36), cannot be stored.
        """
        compaction = await self._adoption.named(scene, compaction)
        compaction = await scene.done(Scene.measured, compaction)
        if faults := await scene.done(Scene.faults_added, compaction):
            await self._adoption.failed(scene, compaction, "invalid_view")
            raise InvalidView(f"A view would be refused: {', '.join(faults)}.")
        stored = await self._adoption.stored(scene, compaction, summaries=int(self.is_preparing(scene)))
        self._summaries.forget(scene, compaction)
        return Adopted(compaction, stored)

    async def _by_code(self, scene: Scene, fold: Fold, why: str) -> Compaction:
        """The fold without a model's text; its record and the log say why."""
        done = await scene.folded(fold, self._new_id(), None)
        said = WHY_BY_CODE.get(why, f"the model's server answered {why}" if why.startswith("status_") else "")
        if not said:
            return done
        _log.info("summary_by_code", why=why, session=scene.turn.session, id=done.id)
        if why != "not_worth_asking":
            # The model's record says nothing of these messages: it is due to be written anew.
            done = done.owing()
        return replace(done, reason=f"{done.reason}{BY_CODE}{said}")

    def _unasked(self, scene: Scene) -> str:
        """Why nobody was asked, a stable word; "" where that is how the server is set."""
        return self._summaries.rests(scene) if self._deadline_seconds > 0 else ""

    def _asked_for(self, scene: Scene, fold: Fold, *, is_shared: bool = False) -> Job | None:
        """A summary being written for this moment; None where nobody may wait for one, or be asked."""
        job = self._summaries.begin(scene, fold, is_shared=is_shared) if self._deadline_seconds > 0 else None
        if job is not None:
            job.hurried.set()
        return job

    async def _awaited(self, job: Job, waited: float) -> Compaction | None:
        """The job's result if it comes in time; the job goes on when it does not."""
        job.hurried.set()
        await asyncio.wait({job.task}, timeout=max(0.0, self._deadline_seconds - waited))
        if not job.task.done() or job.task.cancelled() or job.task.exception() is not None:
            return None
        return job.task.result()


def _missing(job: Job) -> str:
    """Why a job has given nothing by now, a stable word."""
    if not job.task.done():
        return "late"
    is_broken = job.task.cancelled() or job.task.exception() is not None
    return "broken" if is_broken else job.reason


def _serves(scene: Scene, prepared: Compaction) -> bool:
    """True where it folds more than what is in force and brings the view below the trigger.

    Above the precompute mark too: it is paid for, and the next one is begun at once.
    """
    return folds_more(prepared, scene.conversation, scene.current) and scene.frees_enough(prepared)


def _adopts(scene: Scene, prepared: Compaction) -> bool:
    return adopts(prepared, scene.conversation, scene.current, scene.budget, scene.count_text)
