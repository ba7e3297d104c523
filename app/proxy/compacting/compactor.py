"""Step 5 of an exchange: carries a fold out, by a summary that is ready, one asked for, or code alone.

Every wait is bounded. A compaction is committed before anything is forwarded under it (rule 14).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from app.core.view.compaction import Compaction
from app.core.view.outcomes import Fold, MaskOnly
from app.core.view.record import adopts
from app.errors import Conflict, InvalidView
from app.proxy.chronicle.adoption import Adoption
from app.proxy.compacting.repeated import RepeatedFolds
from app.proxy.compacting.scene import Scene
from app.proxy.compacting.summaries import Job, Summaries


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
        if await self.may_prepare(scene, fold) and not self._summaries.begun(scene):
            self._summaries.begin(scene, fold, is_shared=True)

    def prepares(self, scene: Scene) -> bool:
        """True where a summary would be written ahead if one were due: none is, and somebody may be asked."""
        is_ahead = self._background and scene.policy.in_background
        return is_ahead and self._summaries.begun(scene) is None and self._can_wait(scene)

    async def may_prepare(self, scene: Scene, fold: Fold) -> bool:
        """True when a summary that serves is being written, or would be if asked for."""
        if not self._background:
            return False
        can_begin = self._can_wait(scene) and await self._summaries.is_worth(scene, fold)
        return can_begin or self._summaries.begun(scene) is not None

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

    async def ready(self, scene: Scene) -> Compaction | None:
        """A finished background summary that does what is needed now, not stored yet."""
        job = self._summaries.begun(scene)
        if job is None or not job.task.done() or job.task.cancelled():
            return None
        done = job.task.result() if job.task.exception() is None else None
        fits = done is not None and await scene.done(_adopts, done)
        return done if fits else None

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
        job = self._summaries.begun(scene) or self._asked_for(scene, fold, is_shared=True)
        if job is None:
            return await self.adopt(scene, await scene.folded(fold, self._new_id(), None))
        # Held until it is in force: another server would else ask for the same in between.
        async with self._summaries.leased(scene):
            done = await self._awaited(job, waited)
            shown = await scene.done(Scene.under, done) if done is not None else None
            usable = shown is not None and shown.tokens <= scene.budget.ceiling_tokens
            if done is None or not usable:
                done = await scene.folded(fold, self._new_id(), None)
            adopted = await self.adopt(scene, done)
            if adopted.is_stored and done.author == "model":
                self._repeated.keep(scene, done)
            return adopted

    async def by_hand(self, scene: Scene, fold: Fold, waited: float = 0.0) -> Compaction | None:
        """As `fold`, with a summary of its own; None, and nothing stored, when that would save nothing."""
        job = self._asked_for(scene, fold)
        done = await self._awaited(job, waited) if job else None
        if done is None or done.tokens_after >= done.tokens_before:
            done = await scene.folded(fold, self._new_id(), None)
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
        return done or await scene.folded(fold, self._new_id(), None)

    async def adopt(self, scene: Scene, compaction: Compaction) -> Adopted:
        """The compaction is stored, with the figures of this moment, after what must be there before it.

        It is not when the session was erased meanwhile: a request on its way is answered under it all the
        same (rule 30). InvalidView, and nothing stored, when the view
        would be less valid than what the client sent (rule 20). StoreError when it, or its checkpoint
        (A36), cannot be stored.
        """
        compaction = await scene.done(Scene.measured, compaction)
        if faults := await scene.done(Scene.faults_added, compaction):
            await self._adoption.failed(scene, compaction, "invalid_view")
            raise InvalidView(f"A view would be refused: {', '.join(faults)}.")
        stored = await self._adoption.stored(scene, compaction, summaries=int(self.is_preparing(scene)))
        self._summaries.forget(scene, compaction)
        return Adopted(compaction, stored)

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


def _adopts(scene: Scene, prepared: Compaction) -> bool:
    return adopts(prepared, scene.conversation, scene.current, scene.budget, scene.count_text)
