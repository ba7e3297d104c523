"""Asks a model for a summary until one is accepted, or says that there is none this time.

Knows nothing of when a summary is needed nor of what becomes of it. The first question rides on the
prompt the model knows already, where it is the same model and there is room; the second is a
question of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace

import structlog

from app.core.budget.economy import Call, is_worth_asking
from app.core.history.message import Message
from app.core.summary.acceptance import SummaryReply
from app.core.summary.prompt import (
    DEFAULT_INSTRUCTIONS,
    MOST_PARTS,
    Instructions,
    SummaryLimits,
    SummaryRequest,
    answer_tokens,
    question_size,
    read_anew,
    with_headroom,
)
from app.core.summary.source import SummarySource
from app.core.summary.styles.self_check import check_request, is_unchanged
from app.core.summary.working import gap_fill
from app.core.wire.responses.asking import Members
from app.errors import SummaryRejected
from app.proxy.compacting.breaker import Cause
from app.proxy.compacting.questions import Prompts
from app.proxy.compacting.restraint import Restraint
from app.proxy.compacting.scene import Scene, Told
from app.proxy.compacting.thoughts import Thoughts
from app.proxy.jobs import unless
from app.upstream.questions import Failed, KeyRefused, Question, SummaryAnswer, SummaryOutcome, TooLong
from app.upstream.summarizer import Summarizers
from app.upstream.worker import Task, Worker

_log = structlog.get_logger("palimpsest.summaries")
# What a conversation may itself have caused, and what is its key's: refused, or out of quota.
_OF_THE_CONVERSATION = frozenset({"rejected", "too_long"})
_OF_THE_KEY = frozenset({"key_refused", "status_402", "status_429"})
# Times a record's length: of less a model's record would save little, and what it says code can tell whole.
_LEAST_FOLDED = 1.5
# No model has this name.
_WORKER = "\0worker"
# How servers refuse a question behind a prompt, for its tools or a thought: one without may be taken.
_REFUSED_BEHIND = frozenset({"status_400", "status_404", "status_405", "status_422", "status_501"})


@dataclass(frozen=True, slots=True)
class SummarizerChoice:
    """Who writes: `model` None is the conversation's own; `window_tokens` None is the conversation's.

    `may_ride`: the conversation's own model on its own upstream is asked, so that its cached prompt can be
    used. One summary takes at most `call_seconds`, all its calls together. `instructions` are for those in
    nine sections.
    """

    model: str | None
    window_tokens: int | None
    may_ride: bool
    call_seconds: float
    instructions: Instructions = DEFAULT_INSTRUCTIONS


@dataclass(frozen=True, slots=True)
class NotTold:
    """No summary; `reason` is a stable word. `is_failure`: there should have been one.

    `may_again`: another attempt, a little later, may fare better.
    """

    reason: str
    is_failure: bool = True
    may_again: bool = True


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt at a summary, all its calls together; it ends at `ends` (monotonic seconds).

    `hurried` is set once a request waits for it.
    """

    id: str
    ends: float
    hurried: asyncio.Event


@dataclass(frozen=True, slots=True)
class _First:
    """A summary before the model has looked at it again: its question, the answer, what came of it.

    `replaced`: tokens of what it stands for.
    """

    request: SummaryRequest
    answer: str
    told: Told
    replaced: int


class SummaryWriter:
    """One for the application. `prompts` are those that a question may stand behind."""

    def __init__(
        self,
        summarizers: Summarizers,
        worker: Worker | None,
        prompts: Prompts,
        choice: SummarizerChoice,
        restraint: Restraint,
        new_id: Callable[[], str],
    ) -> None:
        self._summarizers = summarizers
        self._worker = worker
        self._prompts = prompts
        self._choice = choice
        self._restraint = restraint
        self._breaker = restraint.failures
        self._thoughts = Thoughts()
        self._new_id = new_id

    def rests(self, scene: Scene) -> str:
        """Why nobody is asked for this conversation now, a stable word; "" where somebody may be."""
        return self._restraint.reason(scene, self._asked_of(scene), self._key(scene))

    @property
    def restraint(self) -> Restraint:
        """What keeps from asking."""
        return self._restraint

    def model_for(self, scene: Scene) -> str:
        """The model that writes (D18): the policy's, else the deployment's, else the conversation's own.

        What a program behind an address writes is nobody's: it is told the conversation's model.
        """
        if self._has_worker(scene):
            return scene.turn.model
        return scene.policy.summary_model or self._choice.model or scene.turn.model

    async def told(self, scene: Scene, source: SummarySource, hurried: asyncio.Event) -> Told | NotTold:
        """One attempt: what the model says of the source, accepted, or why there is nothing (F09).

        No failure where the policy's style asks no model, or a model's summary is not worth its price.
        `hurried` is set once a request waits for it: then the model does not look at its text again.
        """
        run = self._run(hurried)
        await self._restraint.spending.look(scene.turn.namespace)
        replaced = await scene.done(_replaced, source)
        if not await scene.done(self.is_worth, [message for _, message in source.fresh]):
            why = "not_worth_asking" if scene.policy.asks_summarizer else "nobody_to_ask"
            return NotTold(why, is_failure=False, may_again=False)
        reason = ""
        for rides in (True, False) if await scene.done(self._rides) else (False, False):
            try:
                told = await self._asked(scene, source, replaced, run, rides=rides)
            except SummaryRejected as rejected:
                _log.warning(
                    "summary_rejected", reason=rejected.message, rides=rides, session=scene.turn.session
                )
                reason = "rejected"
            except _NobodyAsked:
                return NotTold("nothing_to_ask", is_failure=False, may_again=False)
            except _NoAnswer as failure:
                _log.warning("summary_failed", reason=failure.reason, session=scene.turn.session)
                reason = failure.reason
                if failure.is_final:
                    self._failed(scene, reason)
                    # A key that is refused, a limit or a text that is too long is so a little later, too.
                    return NotTold(reason, may_again=failure.counts and reason != "too_long")
            else:
                self._succeeded(scene)
                return told
        self._failed(scene, reason)
        return NotTold(reason)

    async def rebuilt(
        self, scene: Scene, anew: SummarySource, chained: SummarySource, hurried: asyncio.Event
    ) -> Told | NotTold:
        """One attempt at the record from the messages themselves, in questions of its own.

        `chained` is what an ordinary summary would be made of: the caller asks for that where this comes to
        nothing, unless it has nothing new to say. Given up once a request waits.
        """
        await self._restraint.spending.look(scene.turn.namespace)
        limits = self._limits(scene)
        anew = await scene.done(lambda own: read_anew(anew, limits, own.count_text))
        if not anew.fresh or not await scene.done(self._is_rebuild_worth, anew, chained):
            return NotTold("not_worth_asking", is_failure=False, may_again=False)
        # Nobody waits for it: each of its calls has the time of a summary.
        run = replace(
            self._run(hurried), ends=time.monotonic() + (MOST_PARTS + 1) * self._choice.call_seconds
        )
        replaced, reason = await scene.done(_replaced, anew), "hurried"
        try:
            told = await unless(hurried, self._asked(scene, anew, replaced, run, rides=False))
        except SummaryRejected as rejected:
            reason = "rejected"
            _log.warning("summary_rejected", reason=rejected.message, session=scene.turn.session)
        except _NoAnswer as failure:
            reason = failure.reason
        else:
            if told is not None:
                self._succeeded(scene)
                return replace(told, rebuilt=len(anew.fresh))
        _log.warning("rebuild_failed", reason=reason, session=scene.turn.session)
        if not chained.fresh:
            self._failed(scene, reason)
        return NotTold(reason, may_again=False)

    async def replied(self, scene: Scene, request: SummaryRequest) -> SummaryReply | None:
        """The answer to a question of another kind, in the scene's name; None when nobody gave one."""
        if self._breaker.is_open(self._asked_of(scene), scene.turn.namespace, self._key(scene)):
            return None
        try:
            answer = await self._answer(scene, request, self._run(asyncio.Event()), None)
        except _NoAnswer as failure:
            _log.warning("question_failed", reason=failure.reason, session=scene.turn.session)
            self._failed(scene, failure.reason)
            return None
        self._succeeded(scene)
        return SummaryReply(answer.text, answer.finish_reason, answer.had_tool_calls)

    def is_worth(self, scene: Scene, fresh: Sequence[Message]) -> bool:
        """False when nobody may be asked, or asking the own model costs too much (docs/cost-policy.md).

        `fresh` are the messages that no summary has seen yet.
        """
        previous = scene.count_text(scene.current.summary) if scene.current else 0
        size = question_size(fresh, previous, self._limits(scene), scene.count_text)
        folded = sum(message.tokens for message in fresh)
        if self._tells_as_much(scene, folded):
            return False
        return self._is_worth(scene, size, previous + folded, rides=self._rides(scene))

    def _tells_as_much(self, scene: Scene, folded: int) -> bool:
        """True where code's block holds nearly all of so many folded tokens: a record is hardly shorter.

        Of two such folds a model writes one, so that no record grows old. Where a policy folds by messages,
        or asks in a way of its own, that is what was wanted.
        """
        policy = scene.policy
        is_wanted = self._is_chosen(scene) or policy.trigger_messages or policy.style != "handoff"
        is_due = scene.current is not None and scene.current.author != "model"
        return not (is_wanted or is_due) and folded < _LEAST_FOLDED * scene.budget.summary_tokens

    def _is_worth(self, scene: Scene, size: tuple[int, int], replaced: int, *, rides: bool) -> bool:
        """True when questions of `size` (tokens read, calls) are worth `replaced` tokens of history."""
        policy = scene.policy
        if not policy.asks_summarizer:
            return False
        if policy.objective == "fidelity" or self._is_chosen(scene):
            return True
        call = Call(
            scene.costs.prices,
            rides,
            question_tokens=self._prompts.question_tokens(scene),
            read_tokens=size[0],
            calls=size[1],
            is_checked=policy.self_check,
        )
        shown = scene.under(scene.current).tokens if rides else 0
        return is_worth_asking(call, shown, replaced, scene.budget.summary_tokens)

    def _is_chosen(self, scene: Scene) -> bool:
        """True for whoever has chosen another model for summaries, or asked for one now: that is decided."""
        has_other = not self._choice.may_ride or scene.policy.summary_model is not None
        return has_other or self._has_worker(scene) or scene.is_ordered

    def _is_rebuild_worth(self, scene: Scene, anew: SummarySource, chained: SummarySource) -> bool:
        """A record written anew stands for no more than an ordinary one, which would have cost less.

        Where code wrote in the model's place it stands for all that is folded.
        """
        messages = [message for _, message in anew.fresh]
        read, calls = question_size(messages, 0, self._limits(scene), scene.count_text)
        is_by_code = scene.current is not None and scene.current.author == "deterministic"
        replaced = _replaced(scene, anew if is_by_code else chained)
        # Of several parts one more call makes one record.
        return self._is_worth(scene, (read, calls + (calls > 1)), replaced, rides=False)

    def _run(self, hurried: asyncio.Event) -> Run:
        return Run(self._new_id(), time.monotonic() + self._choice.call_seconds, hurried)

    async def _asked(
        self, scene: Scene, source: SummarySource, replaced: int, run: Run, *, rides: bool
    ) -> Told:
        riding = await scene.done(self._prompts.riding, self._thought_tokens(scene)) if rides else None
        behind = riding.behind if riding else None
        questions = self._own(scene, source) if riding is None else _alone(riding.request)
        request = await scene.done(lambda _: next(questions, None))
        if request is None:
            raise _NobodyAsked
        passes = 0
        while True:
            is_gap = request.system == gap_fill.INSTRUCTIONS
            if riding is None and not self._has_worker(scene) and not is_gap:
                request = await scene.done(self._with_headroom, request)
            answer = await self._answer(scene, request, run, behind)
            passes += 1
            reply = SummaryReply(answer.text, answer.finish_reason, answer.had_tool_calls)
            # What rides answers in nine sections, whatever the style asks for otherwise.
            try:
                text = await scene.done(_accepted, reply, request, replaced)
            except SummaryRejected as rejected:
                if is_gap:
                    # Asked once, for so many tokens and no more (D11): what was noted stands without it.
                    raise _NoAnswer("rejected", counts=False) from rejected
                raise
            following = await scene.done(_next_question, questions, text)
            if following is None:
                told = Told(text, self.model_for(scene), passes, run.id)
                first = _First(request, answer.text, told, replaced)
                return await self._checked(scene, first, run, behind)
            request = following

    async def _checked(self, scene: Scene, first: _First, run: Run, behind: Members | None) -> Told:
        """The summary after the model has looked at it once more, if the policy wants that (idea 13).

        As it was where that gives nothing better, or a request waits; a program of one's own is not asked.
        """
        asked = check_request(first.request, first.answer) if scene.policy.self_check else None
        if asked is None or self._has_worker(scene):
            return first.told
        try:
            answer = await unless(run.hurried, self._answer(scene, asked, run, behind))
            if answer is None:
                return first.told
            told = replace(first.told, passes=first.told.passes + 1)
            if is_unchanged(answer.text):
                return told
            reply = SummaryReply(answer.text, answer.finish_reason, answer.had_tool_calls)
            return replace(told, text=scene.style.accepted(reply, asked, first.replaced, scene.count_text))
        except (SummaryRejected, _NoAnswer) as nothing:
            reason = nothing.reason if isinstance(nothing, _NoAnswer) else nothing.message
            _log.warning("self_check_failed", reason=reason, session=scene.turn.session)
            return first.told

    async def _answer(
        self, scene: Scene, request: SummaryRequest, run: Run, behind: Members | None
    ) -> SummaryAnswer:
        """`behind` is what goes along with a question that rides; None for one of its own."""
        seconds = run.ends - time.monotonic()
        if seconds <= 0:
            raise _NoAnswer("timeout")
        if self._restraint.spending.is_spent(scene.turn.namespace):
            await self._restraint.spending.tell(scene.turn.namespace, scene.turn.session)
            raise _NoAnswer("spending_limit", counts=False)
        rides = behind is not None
        match await self._outcome(scene, request, seconds, behind):
            case SummaryAnswer() as answer:
                await self._account_for(scene, request, answer, run, rides=rides)
                return answer
            case KeyRefused():
                raise _NoAnswer("key_refused", counts=False)
            case TooLong():
                raise _NoAnswer("too_long", is_final=not rides)
            case Failed(reason):
                raise _NoAnswer(reason, is_final=not (rides and reason in _REFUSED_BEHIND))

    async def _outcome(
        self, scene: Scene, request: SummaryRequest, seconds: float, behind: Members | None
    ) -> SummaryOutcome:
        model, most = self.model_for(scene), request.max_tokens
        if self._worker is not None and self._has_worker(scene) and request.conversation:
            task = Task(
                previous_summary=request.previous,
                conversation=request.conversation,
                max_tokens=most,
                model=model,
            )
            return await self._worker.ask(task, seconds)
        tools = scene.tools if behind is not None else None
        question = Question(request.messages, model, most, tools, scene.turn.wire, behind)
        return await self._summarizers.ask(question, scene.outgoing, seconds)

    async def _account_for(
        self, scene: Scene, request: SummaryRequest, answer: SummaryAnswer, run: Run, *, rides: bool
    ) -> None:
        """What the answer took is known and kept; by our own count where the upstream does not say."""
        turn, spending, usage = scene.turn, self._restraint.spending, answer.usage
        _log.info(
            "summary_answered",
            session=turn.session,
            run=run.id,
            rides=rides,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            completion_tokens=usage.completion_tokens,
            max_tokens=request.max_tokens,
            finish_reason=answer.finish_reason,
        )
        if usage.prompt_tokens is None:
            tokens = await scene.done(_prompt_tokens, request, rides=rides)
            usage = replace(usage, prompt_tokens=tokens)
        if usage.completion_tokens is None:
            usage = replace(usage, completion_tokens=scene.count_text(answer.text))
        model = self.model_for(scene)
        self._thoughts.answered(turn.namespace, model, usage)
        if answer.finish_reason == "length" and not answer.text.strip():
            self._thoughts.used_up(turn.namespace, model, request.max_tokens)
        await spending.add(turn.namespace, usage)
        if spending.is_spent(turn.namespace):
            await spending.tell(turn.namespace, turn.session)

    def _has_worker(self, scene: Scene) -> bool:
        """True when the style asks a program behind an address (E07)."""
        return self._worker is not None and scene.policy.style == "worker"

    def _own(self, scene: Scene, source: SummarySource) -> Generator[SummaryRequest, str, None]:
        return scene.style.requests(source, self._limits(scene), scene.count_text, scene.focus)

    def _limits(self, scene: Scene) -> SummaryLimits:
        window = self._choice.window_tokens or scene.budget.window_tokens
        length = scene.budget.summary_tokens
        limits = SummaryLimits.of(scene.policy, window, length)
        return limits.asking_for(length, self._thought_tokens(scene), self._choice.instructions)

    def _with_headroom(self, scene: Scene, request: SummaryRequest) -> SummaryRequest:
        most = answer_tokens(scene.budget.summary_tokens, self._thought_tokens(scene))
        return with_headroom(request, self._limits(scene), most, scene.count_text)

    def _thought_tokens(self, scene: Scene) -> int:
        return self._thoughts.of(scene.turn.namespace, self.model_for(scene))

    def _rides(self, scene: Scene) -> bool:
        """True where the model's own prompt can be used."""
        return self._choice.may_ride and self._prompts.may_ride(scene, self._thought_tokens(scene))

    def _asked_of(self, scene: Scene) -> str:
        """Who is asked, for the breaker: a model's name, or the program behind an address."""
        return _WORKER if self._has_worker(scene) else self.model_for(scene)

    def _key(self, scene: Scene) -> str:
        """Which key asks, for the breaker; a program behind an address has the operator's."""
        if self._has_worker(scene):
            return ""
        return self._summarizers.key_id(self.model_for(scene), scene.outgoing)

    def _failed(self, scene: Scene, reason: str) -> None:
        if reason == "spending_limit":
            # Nobody was asked.
            return
        cause: Cause = "server"
        if reason in _OF_THE_KEY:
            cause = "key"
        elif reason in _OF_THE_CONVERSATION or reason.startswith("status_4"):
            cause = "conversation"
        self._breaker.failed(self._asked_of(scene), scene.turn.namespace, self._key(scene), cause=cause)

    def _succeeded(self, scene: Scene) -> None:
        self._breaker.succeeded(self._asked_of(scene), scene.turn.namespace, self._key(scene))


class _NobodyAsked(Exception):
    """The style needs no model this time."""


class _NoAnswer(Exception):
    """No summary from this question.

    `counts`: it may be over a little later. `is_final`: another question would fare no better.
    """

    def __init__(self, reason: str, *, counts: bool = True, is_final: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.counts = counts
        self.is_final = is_final


def _alone(request: SummaryRequest) -> Generator[SummaryRequest, str, None]:
    """One question and no more."""
    yield request


def _replaced(scene: Scene, source: SummarySource) -> int:
    """Tokens of what a summary of the source would stand for."""
    return sum(message.tokens for _, message in source.fresh) + scene.count_text(source.previous)


def _accepted(scene: Scene, reply: SummaryReply, request: SummaryRequest, replaced: int) -> str:
    return scene.style.accepted(reply, request, replaced, scene.count_text)


def _next_question(
    scene: Scene, questions: Generator[SummaryRequest, str, None], text: str
) -> SummaryRequest | None:
    """The question behind an accepted text; None behind the last. No StopIteration leaves a thread."""
    del scene
    try:
        return questions.send(text)
    except StopIteration:
        return None


def _prompt_tokens(scene: Scene, request: SummaryRequest, *, rides: bool) -> int:
    """What a question takes, in our count."""
    if rides:
        return scene.under(scene.current).tokens + scene.count_text(request.user)
    return sum(scene.count_text(text) for text in (request.system, request.user))
