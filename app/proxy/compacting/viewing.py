"""Steps 3 to 5 of an exchange: what the model is shown, and that it fits.

The plan is pure (`app.core.view.plan`); here it is asked for and carried out. If anything in it fails,
the request goes out as it came, or under a summary made by code (P8).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import NoReturn, assert_never

import structlog

from app.core.history.chain import chain_of
from app.core.history.conversation import Conversation
from app.core.history.message import Message
from app.core.view.compaction import Compaction
from app.core.view.outcomes import Fold, MaskOnly, Plan, Refuse, Send
from app.core.view.view import cut_in
from app.errors import ContextLengthExceeded, RequestError, StoreError
from app.proxy.compacting.compactor import Compactor
from app.proxy.compacting.scene import Scene
from app.proxy.compacting.scenes import Scenes
from app.proxy.jobs import Jobs
from app.proxy.sessions.recorder import Outcome
from app.proxy.subject import Subject
from app.proxy.turn import Shown, Turn, original

_log = structlog.get_logger("palimpsest.viewing")
# Carrying a plan out may leave another to do (masks, then a fold); each makes the prompt smaller, or shows
# what another server has done meanwhile.
MOST_STEPS = 4


@dataclass(slots=True)
class _Watched:
    """A turn on its way: what it was decided from, the fold that is due after it, what came of it."""

    scene: Scene
    due: Fold | None = None
    tokens: int = 0
    answer: Message | None = None


class Viewing:
    """Decides what the model is shown."""

    def __init__(self, scenes: Scenes, compactor: Compactor, jobs: Jobs, *, wait_seconds: float) -> None:
        self._scenes = scenes
        self._compactor = compactor
        self._jobs = jobs
        self._wait_seconds = wait_seconds
        self._locks: dict[str, asyncio.Lock] = {}
        self._waiting: Counter[str] = Counter()
        self._watched: dict[str, _Watched] = {}

    async def shown(self, turn: Turn) -> Shown:
        """The view for a turn; a RequestError when what must be sent does not fit a known window."""
        return await self._unless_broken(turn, self._decided(turn)) or original(turn)

    async def recovered(self, turn: Turn, sent: Shown, at_most: int | None) -> Shown | None:
        """A smaller view after the upstream said that `sent` is too long (A29), and for how large a window.

        None when none can be made; ContextLengthExceeded when nothing is left to fold.
        """
        return await self._unless_broken(turn, self._smaller(turn, sent, at_most))

    def heard(self, turn: Turn, shown: Shown, outcome: Outcome) -> None:
        """The answer is stored. It is only kept in mind: the client may still wait for its end."""
        watched = self._watched.get(turn.exchange)
        if watched is not None and outcome.state == "done" and len(outcome.answers) == 1:
            hidden = outcome.hidden.tokens if outcome.hidden else 0
            watched.tokens, watched.answer = shown.tokens + hidden, outcome.answers[0]

    def answered(self, turn: Turn) -> None:
        """The turn is over: the summary that will be needed soon is being written (B03).

        Not sooner: a server that takes one request at a time lets a turn wait for the summary begun before
        it (llama.cpp with one slot: 60 s, measured), and only now is the prompt cached that it rides on.
        """
        watched = self._watched.pop(turn.exchange, None)
        if watched is None:
            return
        if watched.due is not None:
            # Nothing that is asked of the store first stands between the turn and its summary.
            self._jobs.start(self._compactor.prepare(watched.scene, watched.due))
        elif watched.answer is not None and _may_be_due(
            watched.scene, watched.tokens + watched.answer.tokens
        ):
            self._jobs.start(self._prepared(_with_answer(turn, watched.answer)))

    async def by_hand(self, subject: Subject, focus: str) -> Compaction | None:
        """A compaction that somebody asked for (D25); None when nothing would be won by one (F35)."""
        async with self._one_at_a_time(subject):
            scene = await self._scenes.of(subject, by_hand=True)
            if waited := await self._compactor.waited(scene):
                scene = await self._scenes.of(subject, by_hand=True)
            scene = replace(scene, focus=focus, is_ordered=True)
            plan = await scene.done(Scene.plan_manual)
            return await self._compactor.by_hand(scene, plan, waited) if isinstance(plan, Fold) else None

    async def of_all(self, subject: Subject, stays: Callable[[Message], bool]) -> tuple[Compaction, Scene]:
        """What would stand for all that does not stay with the client, and what it was made from.

        Nothing is in force.
        """
        scene = await self._scenes.of(subject, by_hand=True)
        return await self._compactor.of_all(scene, await scene.done(Scene.plan_all, stays)), scene

    async def is_compacting(self, scene: Scene) -> bool:
        """True while a compaction of the session is being made, or a summary for this conversation.

        Also by another server that shares the database. StoreError.
        """
        is_here = _key(scene.turn) in self._locks or self._compactor.is_preparing(scene)
        return is_here or await self._compactor.is_elsewhere(scene)

    async def _unless_broken(self, turn: Turn, work: Coroutine[None, None, Shown]) -> Shown | None:
        try:
            return await work
        except (RequestError, StoreError):
            raise
        except Exception as error:  # noqa: BLE001  # P8: a bug in planning must not cost the answer
            _log.error("planning_failed", error=type(error).__name__, session=turn.session)
            return None

    async def _smaller(self, turn: Turn, sent: Shown, at_most: int | None) -> Shown:
        if watched := self._watched.get(turn.exchange):
            watched.due = None
        async with self._one_at_a_time(turn):
            scene = await self._scenes.of(turn, at_most=at_most)
            standing = await scene.done(Scene.under, scene.current)
            if standing.tokens < sent.tokens:
                # Another request of the session met the same refusal and has compacted already.
                return standing
            plan = await scene.done(Scene.plan_overflow)
            if isinstance(plan, Refuse):
                lighter = await scene.bare().done(Scene.under, scene.current)
                if lighter.tokens < sent.tokens:
                    return lighter
                _refuse(turn, plan)
            if isinstance(plan, MaskOnly):
                adopted = await self._compactor.mask(scene, plan)
            else:
                adopted = await self._compactor.fold(scene, plan)
            return await scene.done(Scene.under, adopted.compaction)

    async def _decided(self, turn: Turn) -> Shown:
        scene = await self._scenes.of(turn, untouched=turn.is_new)
        self._watched[turn.exchange] = _Watched(scene)
        tokens = turn.tokens + scene.unsent_tokens
        is_short = tokens < scene.budget.precompute_tokens and not scene.policy.trigger_messages
        if scene.current is None and is_short:
            return original(turn)
        if shown := await self._adopted(turn, scene, self._compactor.late):
            return shown
        plan = await self._planned(scene)
        if isinstance(plan, Send):
            return await self._sent(turn, scene, plan)
        if isinstance(plan, Fold) and (shown := await self._without_waiting(turn, scene, plan)):
            return shown
        async with self._one_at_a_time(turn):
            return await self._compacted(turn)

    async def _compacted(self, turn: Turn) -> Shown:
        waited: float | None = None
        for _ in range(MOST_STEPS):
            scene = await self._scenes.of(turn)
            plan = await self._planned(scene)
            match plan:
                case Send():
                    return await self._sent(turn, scene, plan)
                case MaskOnly():
                    adopted = await self._compactor.mask(scene, plan)
                case Fold():
                    if waited is None and (waited := await self._compactor.waited(scene)):
                        continue
                    adopted = await self._compactor.fold(scene, plan, waited)
                case Refuse():
                    _refuse(turn, plan)
                case _ as never:
                    assert_never(never)
            if not adopted.is_stored:
                # The session was erased: the store would have the same done again.
                return await scene.done(Scene.under, adopted.compaction)
        scene = await self._scenes.of(turn)
        return await scene.done(Scene.under, scene.current)

    async def _without_waiting(self, turn: Turn, scene: Scene, fold: Fold) -> Shown | None:
        """The view of a ready summary, else the current one while there is room and one will be written."""
        if await self._compactor.ready(scene):
            return await self._adopted(turn, scene, self._compactor.ready)
        policy = scene.policy
        is_waited_for = policy.waits and self._compactor.is_preparing(scene)
        if (
            # A turn later the cache is warm again.
            not scene.budget.idle_seconds
            and fold.fits_now
            and policy.in_background
            and not is_waited_for
            and not await self._compactor.is_behind(scene)
            and await self._compactor.may_prepare(scene, fold)
        ):
            self._watched[turn.exchange] = _Watched(scene, fold)
            return await scene.done(Scene.under, scene.current)
        return None

    async def _adopted(
        self, turn: Turn, scene: Scene, finished: Callable[[Scene], Awaitable[Compaction | None]]
    ) -> Shown | None:
        """The view of a finished summary; None without one, or where another request was faster."""
        done = await finished(scene)
        if done is None:
            return None
        async with self._one_at_a_time(turn):
            fresh = await self._scenes.of(turn)
            if await finished(fresh) is not done:
                return None
            adopted = await self._compactor.adopt(fresh, done)
            return await fresh.done(Scene.under, adopted.compaction)

    async def _prepared(self, turn: Turn) -> None:
        """The summary that a conversation with its answer needs soon is being written, if it needs one."""
        try:
            scene = await self._scenes.of(turn)
        except StoreError as error:
            _log.warning("preparing_failed", error=type(error).__name__, session=turn.session)
            return
        if not await self._compactor.prepares(scene):
            return
        plan = await self._planned(scene)
        fold = plan.precompute if isinstance(plan, Send) else plan
        if isinstance(fold, Fold):
            await self._compactor.prepare(scene, fold)
        else:
            await self._compactor.rebuild(scene)

    async def _planned(self, scene: Scene) -> Plan:
        """The plan; masks in place of a fold while folds follow each other too fast (F04)."""
        plan = await scene.done(Scene.plan)
        if isinstance(plan, Fold) and self._compactor.is_looping(scene):
            masks = await scene.done(Scene.plan_masks)
            return masks if isinstance(masks, MaskOnly) else plan
        return plan

    async def _sent(self, turn: Turn, scene: Scene, plan: Send) -> Shown:
        self._watched[turn.exchange] = _Watched(scene, plan.precompute)
        return await scene.done(Scene.shown, plan.view)

    @asynccontextmanager
    async def _one_at_a_time(self, turn: Subject) -> AsyncIterator[None]:
        """Of one session's requests one compacts, the others wait for what it does; bounded (rule 16)."""
        key = _key(turn)
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


def _key(turn: Subject) -> str:
    return f"{turn.namespace}\0{turn.session}"


def _may_be_due(scene: Scene, tokens: int) -> bool:
    """False where a conversation of so many tokens is below every mark: then nothing more is looked at.

    True as well where its record is to be written anew.
    """
    most = scene.policy.trigger_messages
    if tokens + scene.unsent_tokens >= scene.budget.precompute_tokens:
        return True
    if scene.owes_rebuild():
        return True
    # With the answer.
    unfolded = len(scene.conversation.messages) + 1 - cut_in(scene.current, scene.conversation)
    return 0 < most <= unfolded


def _with_answer(turn: Turn, answer: Message) -> Turn:
    """The turn with its answer behind the conversation, as the next request will bring it."""
    talk = turn.conversation
    head = chain_of(talk.head, answer.canonical)
    whole = Conversation(talk.preamble, (*talk.messages, answer), (*talk.chains, head))
    return replace(turn, conversation=whole)


def _refuse(turn: Turn, plan: Refuse) -> NoReturn:
    raise ContextLengthExceeded(plan.message, param="input" if turn.wire == "responses" else "messages")
