"""Asks a model for a summary: one attempt, which returns an accepted text or the reason for its failure.

The first question is appended to the conversation's cached prompt, if the same model writes and there is
room; the second is a request of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace

import structlog

from palimpsest.core.budget.measured import THOUGHT_TOKENS, ReasoningTokens
from palimpsest.core.budget.upstream_counts import price
from palimpsest.core.history.append import open_calls
from palimpsest.core.summary.asking import (
    RecordRequest,
    appended_request,
    appended_tokens,
    is_appendable,
    settling,
    unread,
)
from palimpsest.core.summary.prompt import (
    DEFAULT_INSTRUCTIONS,
    Instructions,
    SummaryLimits,
    SummaryReply,
    SummaryRequest,
    answer_tokens,
)
from palimpsest.core.summary.record import decoded, record_of
from palimpsest.core.summary.source import SummarySource
from palimpsest.core.utc import day_of
from palimpsest.core.view.compaction import SpentTokens
from palimpsest.core.view.outcomes import Fold
from palimpsest.core.view.validity import groups_of
from palimpsest.core.wire.chat_answers import QuestionAnswer
from palimpsest.core.wire.request import Members
from palimpsest.core.wire.responses.request import has_unreadable_reasoning, previous_of
from palimpsest.errors import QuotaExceeded, StoreError, SummaryRejected
from palimpsest.proxy.compacting.breaker import Breaker, Cause
from palimpsest.proxy.compaction_context import CompactionContext, SummaryText
from palimpsest.proxy.destinations import KeptAnswers
from palimpsest.proxy.jobs import logged
from palimpsest.proxy.model_facts import ModelPrices
from palimpsest.proxy.quotas import Quotas
from palimpsest.proxy.turn import Turn
from palimpsest.storage.journal import Journal, TokensSpent
from palimpsest.upstream.summarizer import (
    Failed,
    KeyRefused,
    Question,
    QuestionTooLong,
    Summarizers,
    Task,
    Worker,
)

_log = structlog.get_logger("palimpsest.summaries")
# Failures that the conversation may have caused, and those of its key: refused, or out of quota.
_OF_THE_CONVERSATION = frozenset({"rejected", "too_long"})
_OF_THE_KEY = frozenset({"key_refused", "status_402", "status_429"})
# Multiple of a record's length: for less, a model's record saves little, and code can keep all of it.
_LEAST_FOLDED = 2
# Tokens for the chat framing of two messages and an estimate that is off.
_FRAME_TOKENS = 64
_NOTHING = SpentTokens(0, 0, 0, 0.0)
# No model has this name.
_WORKER = "\0worker"
# How servers refuse an appended question for its tools or reasoning items: one without may be accepted.
_REFUSED_BEHIND = frozenset({"status_400", "status_404", "status_405", "status_422", "status_501"})
# An appended question and its answer must fit into this share of the window: our count may be off by the
# rest.
RIDING_SHARE = 0.98


@dataclass(frozen=True, slots=True)
class SummarizerChoice:
    """The model that writes: `model` None is the conversation's own; `window_tokens` None is its window.

    `may_reuse_prompt`: the conversation's own model writes, on its own upstream, so that its cached prompt
    can be used. One call takes at most `call_seconds`. `prices` are of any model, `instructions` those of
    records.
    """

    model: str | None
    window_tokens: int | None
    may_reuse_prompt: bool
    call_seconds: float
    prices: ModelPrices
    instructions: Instructions = DEFAULT_INSTRUCTIONS


class NoSummary(Exception):
    """A question, or a whole attempt, has no answer of use; `reason` is a stable word.

    `is_failure`: one was expected. `may_again`: another attempt, a little later, may succeed. `is_final`:
    another question in the same attempt would fail too.
    """

    def __init__(
        self, reason: str, *, is_failure: bool = True, may_again: bool = True, is_final: bool = True
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_failure = is_failure
        self.may_again = may_again
        self.is_final = is_final


@dataclass(slots=True)
class Run:
    """One attempt at a summary under `limits`, with what its calls have taken."""

    id: str
    limits: SummaryLimits
    spent: SpentTokens


class SummaryWriter:
    """Asks models for summaries, and keeps the breaker and the bills up to date.

    `kept`: which answers the upstreams keep.
    """

    def __init__(
        self,
        summarizers: Summarizers,
        worker: Worker | None,
        kept: KeptAnswers,
        choice: SummarizerChoice,
        breaker: Breaker,
        journal: Journal,
        quotas: Quotas,
        new_id: Callable[[], str],
    ) -> None:
        self._summarizers = summarizers
        self._worker = worker
        self._kept = kept
        self._choice = choice
        self._breaker = breaker
        self._journal = journal
        self._quotas = quotas
        self._thoughts = ReasoningTokens()
        self._new_id = new_id

    def is_refused(self, context: CompactionContext) -> bool:
        """True while the model should not be asked about this conversation, after failures in a row (F05)."""
        return self._breaker.is_open(*self._asked_of(context))

    def model_for(self, context: CompactionContext) -> str:
        """The model that writes (D18): the policy's, else the deployment's, else the conversation's own.

        A worker (an external program) is given the conversation's model.
        """
        if self._has_worker(context):
            return context.turn.model
        return context.policy.summary_model or self._choice.model or context.turn.model

    async def write(self, context: CompactionContext, fold: Fold, source: SummarySource) -> SummaryText:
        """One attempt at a summary of the fold's source: the accepted text, else NoSummary (F09).

        It is no failure if the policy's style asks no model, or if none should be asked.
        """
        if why := await context.done(self.unasked_reason, fold):
            raise NoSummary(why, is_failure=False, may_again=False)
        run = Run(self._new_id(), self._limits(context), _NOTHING)
        # Tokens that a summary of the source replaces.
        previous = await context.done(lambda _: context.count_text(source.previous))
        replaced = previous + sum(message.tokens for _, message in source.fresh)
        # The cached prompt must show all that the question is about.
        may_append = (
            self._choice.may_reuse_prompt
            and is_appendable(source)
            and await context.done(may_reuse_prompt, run.limits, self._kept)
        )
        reason, session = "", context.turn.session
        for is_last in (False, True):
            reuses_prompt = may_append and not is_last
            try:
                written = await self._asked(
                    context, source, replaced, run, reuses_prompt=reuses_prompt, is_last=is_last
                )
            except SummaryRejected as rejected:
                _log.warning(
                    "summary_rejected", reason=rejected.message, reuses_prompt=reuses_prompt, session=session
                )
                reason = "rejected"
            except NoSummary as failure:
                _log.warning("summary_failed", reason=failure.reason, session=session)
                reason = failure.reason
                if reason == "too_long" and context.budget.window_tokens < run.limits.window_tokens:
                    # The window of the settings is not the one there is: shorter pieces may fit.
                    run.limits = replace(run.limits, window_tokens=context.budget.window_tokens)
                elif failure.is_final:
                    self._failed(context, reason)
                    raise
            else:
                if written is None:
                    raise NoSummary("nothing_to_ask", is_failure=False, may_again=False)
                self._breaker.succeeded(*self._asked_of(context))
                return replace(written, spent=run.spent)
        self._failed(context, reason)
        raise NoSummary(reason)

    async def replied(self, context: CompactionContext, request: SummaryRequest) -> SummaryReply | None:
        """The answer to a question other than a summary, on the conversation's behalf; None without one."""
        if self.is_refused(context):
            return None
        try:
            answer = await self._answer(
                context, request, Run(self._new_id(), self._limits(context), _NOTHING), None
            )
        except NoSummary as failure:
            _log.warning("question_failed", reason=failure.reason, session=context.turn.session)
            self._failed(context, failure.reason)
            return None
        self._breaker.succeeded(*self._asked_of(context))
        return SummaryReply(answer.text, answer.finish_reason, answer.has_calls)

    def unasked_reason(self, context: CompactionContext, fold: Fold) -> str:
        """A stable word for why code writes this fold's record without a call; "" if a model is asked.

        No model may be asked; there is less room than the smallest record takes; or a record would not halve
        the folded tokens, or the next fold follows at once (F04). After a fold by code the model writes the
        next one, though none in the background, so that its record does not become outdated. Policies that
        fold by a count, or have a style of their own, always ask.
        """
        policy, budget = context.policy, context.budget
        if not policy.use_summarizer:
            return "nobody_to_ask"
        if self._limits(context).record_tokens < policy.summary_min_tokens:
            return "no_room_to_ask"
        # Another model was configured for summaries, or a person asks for one now.
        has_other = not self._choice.may_reuse_prompt or policy.summary_model is not None
        is_chosen = has_other or self._has_worker(context) or context.is_ordered
        is_owed = context.owes_entry and fold.cut == fold.since
        if is_owed or is_chosen or policy.folds_by_count or policy.style != "record":
            return ""
        is_due = context.current is not None and context.current.author != "model"
        if is_due and fold.trigger != "background":
            return ""
        source = context.source(fold)
        folded = sum(message.tokens for _, message in unread(source, record_of(source)))
        is_small = folded < _LEAST_FOLDED * budget.summary_tokens
        return "not_worth_asking" if is_small or fold.leaves_tokens > budget.most_after_tokens else ""

    async def _asked(
        self,
        context: CompactionContext,
        source: SummarySource,
        replaced: int,
        run: Run,
        *,
        reuses_prompt: bool,
        is_last: bool,
    ) -> SummaryText | None:
        """The text of one attempt with all its questions; None when the style has no question this time."""
        appended, style, count_text = None, context.style, context.count_text
        if reuses_prompt:
            appended = await context.done(appended_question, source, run.limits, self._kept)
        if appended is None:
            questions = style.requests(source, run.limits, count_text, context.focus)
        else:
            questions = _appended(context, appended.request, run.limits)
        # StopIteration must not leave a worker thread.
        request = await context.done(lambda _: next(questions, None))
        if request is None:
            return None
        written = SummaryText("", self.model_for(context), 0, run.id)
        while request is not None:
            if not (appended or self._has_worker(context) or request.is_final):
                request = await context.done(self._with_headroom, request, run.limits)
            behind = appended.behind if appended and not written.passes else None
            try:
                answer = await self._answer(context, request, run, behind)
                reply = SummaryReply(answer.text, answer.finish_reason, answer.has_calls)
                text = await context.done(_accepted, reply, request, replaced)
            except (SummaryRejected, NoSummary) as failure:
                # A piece of which the model says nothing of use must not stand before all that follow.
                if is_last and request.last and isinstance(failure, SummaryRejected):
                    skipped = request.so_far.without_entry(request.first, request.last).encoded()
                    following = await context.done(_next_question, questions, skipped)
                    if following and following.last:
                        request = following
                        continue
                if written.text:
                    _log.warning("summary_partial", error=str(failure), session=context.turn.session)
                    # The entries that have arrived stand; the next question covers what they lack.
                    return replace(written, is_partial=request.last > 0)
                if request.is_final and isinstance(failure, SummaryRejected):
                    raise NoSummary("rejected", may_again=False) from failure
                raise
            written = replace(written, text=text, passes=written.passes + 1)
            request = await context.done(_next_question, questions, text)
        return written

    async def _answer(
        self, context: CompactionContext, request: SummaryRequest, run: Run, behind: Members | None
    ) -> QuestionAnswer:
        """The answer, accounted for; NoSummary without one.

        `behind`: the request members sent with an appended question; None for a request of its own.
        """
        turn, model, seconds = context.turn, self.model_for(context), self._choice.call_seconds
        reuses_prompt, bill, used = behind is not None, None, 0
        if turn.quota is not None:
            prompt = await context.done(_prompt_tokens, request, reuses_prompt=reuses_prompt)
            used = context.budget.for_model(prompt)
            try:
                bill = await self._quotas.bill(turn.quota)
                await self._quotas.reserve(bill, used + request.max_tokens)
            except QuotaExceeded:
                raise NoSummary("quota_exceeded", may_again=False) from None
            except StoreError as error:
                # What is left cannot be known.
                _log.warning("quota_not_read", error=type(error).__name__, session=turn.session)
                raise NoSummary("quota_unknown", may_again=False) from None
        try:
            if self._worker is not None and self._has_worker(context) and request.conversation:
                task = Task(
                    previous_summary=request.previous,
                    conversation=request.conversation,
                    max_tokens=request.max_tokens,
                    model=model,
                )
                outcome = await self._worker.ask(task, seconds)
            else:
                # Another model may not know the chat's members.
                asked = turn.request if isinstance(turn, Turn) and model == turn.model else None
                question = Question(
                    *(request.messages, model, request.max_tokens, context.tools if reuses_prompt else None),
                    *(turn.wire, behind or (asked.question_members if asked else ()), reuses_prompt),
                    streams=asked is not None and asked.stream,
                )
                outcome = await self._summarizers.ask(question, context.outgoing(), seconds)
            used = 0
            if isinstance(outcome, QuestionAnswer):
                used = await self._account_for(context, request, outcome, run, reuses_prompt=reuses_prompt)
        finally:
            # One that was given up on its way has used its prompt.
            if bill is not None:
                self._quotas.end(bill, used)
        match outcome:
            case QuestionAnswer():
                return outcome
            # Retrying does not help against a refused key, a reached limit or too long a text.
            case KeyRefused():
                raise NoSummary("key_refused", may_again=False)
            case QuestionTooLong():
                raise NoSummary("too_long", may_again=False, is_final=not reuses_prompt)
            case Failed(reason):
                raise NoSummary(reason, is_final=not (reuses_prompt and reason in _REFUSED_BEHIND))

    async def _account_for(
        self,
        context: CompactionContext,
        request: SummaryRequest,
        answer: QuestionAnswer,
        run: Run,
        *,
        reuses_prompt: bool,
    ) -> int:
        """Log and store the answer's usage, counted by us where the upstream states none; returns its sum."""
        turn, usage = context.turn, answer.usage
        _log.info(
            "summary_answered",
            session=turn.session,
            run=run.id,
            reuses_prompt=reuses_prompt,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            completion_tokens=usage.completion_tokens,
            max_tokens=request.max_tokens,
            finish_reason=answer.finish_reason,
        )
        prompt, completion = usage.prompt_tokens, usage.completion_tokens
        if prompt is None:
            prompt = await context.done(_prompt_tokens, request, reuses_prompt=reuses_prompt)
        if completion is None:
            completion = context.count_text(answer.text)
        usage = replace(usage, prompt_tokens=prompt, completion_tokens=completion)
        model = self.model_for(context)
        self._thoughts.answered(turn.namespace, model, usage)
        if answer.finish_reason == "length" and not answer.text.strip():
            self._thoughts.used_up(turn.namespace, model, request.max_tokens)
        prices, so_far, cached = await self._choice.prices.of(model), run.spent, usage.cached_tokens or 0
        cost = price(usage, prices) if prices else None
        run.spent = SpentTokens(
            so_far.prompt + prompt,
            so_far.cached + cached,
            so_far.completion + completion,
            None if cost is None or so_far.cost is None else so_far.cost + cost,
        )
        spent = TokensSpent(1, prompt, completion, cached)
        with logged(_log, "spending_not_stored"):
            await self._journal.add_spending(turn.namespace, day_of(time.time()), spent)
        return prompt + completion

    def _has_worker(self, context: CompactionContext) -> bool:
        """True when the policy's style asks a worker, an external program (E07)."""
        return self._worker is not None and context.policy.style == "worker"

    def _limits(self, context: CompactionContext) -> SummaryLimits:
        window = self._choice.window_tokens or context.budget.window_tokens
        length = context.budget.summary_tokens
        thoughts = self._thoughts.of(context.turn.namespace, self.model_for(context))
        limits = SummaryLimits.of(context.policy, window, length)
        return limits.for_record(length, thoughts, self._choice.instructions)

    def _with_headroom(
        self, context: CompactionContext, request: RecordRequest, limits: SummaryLimits
    ) -> RecordRequest:
        """The request with room for a longer answer, as far as the window has it."""
        thoughts = self._thoughts.of(context.turn.namespace, self.model_for(context))
        most = answer_tokens(context.budget.summary_tokens, thoughts)
        asked = context.count_text(request.system) + context.count_text(request.user) + _FRAME_TOKENS
        return replace(request, max_tokens=max(request.max_tokens, min(most, limits.window_tokens - asked)))

    def _asked_of(self, context: CompactionContext) -> tuple[str, str, str]:
        """What failures count for: the model or the worker, the namespace, the key; the operator's is ""."""
        namespace = context.turn.namespace
        if self._has_worker(context):
            return _WORKER, namespace, ""
        model = self.model_for(context)
        return model, namespace, self._summarizers.key_id(model, context.outgoing())

    def _failed(self, context: CompactionContext, reason: str) -> None:
        if reason.startswith("quota_"):
            # No model was asked.
            return
        cause: Cause = "server"
        if reason in _OF_THE_KEY:
            cause = "key"
        elif reason in _OF_THE_CONVERSATION or reason.startswith("status_4"):
            cause = "conversation"
        self._breaker.failed(*self._asked_of(context), cause=cause)


def _appended(
    context: CompactionContext, request: RecordRequest, limits: SummaryLimits
) -> Generator[RecordRequest, str, None]:
    """The appended question, then those that settle the record."""
    record = decoded((yield request))
    if record is not None:
        yield from settling(record, request.source, limits, context.count_text)


def _accepted(context: CompactionContext, reply: SummaryReply, request: RecordRequest, replaced: int) -> str:
    return context.style.accepted(reply, request, replaced, context.count_text)


def _next_question(
    context: CompactionContext, questions: Generator[RecordRequest, str, None], text: str
) -> RecordRequest | None:
    """The next question after an accepted text, None after the last.

    StopIteration must not leave a worker thread.
    """
    del context
    try:
        return questions.send(text)
    except StopIteration:
        return None


def _prompt_tokens(context: CompactionContext, request: SummaryRequest, *, reuses_prompt: bool) -> int:
    """Tokens of a question's prompt, in our count."""
    if reuses_prompt:
        return context.under(context.current).tokens + context.count_text(request.user)
    return sum(context.count_text(text) for text in (request.system, request.user))


@dataclass(frozen=True, slots=True)
class AppendedQuestion:
    """A question appended to a prompt, and the request members sent with it."""

    request: RecordRequest
    behind: Members


def may_reuse_prompt(context: CompactionContext, limits: SummaryLimits, kept: KeptAnswers) -> bool:
    """True when a question may be appended to the cached prompt: it fits with its answer."""
    policy = context.policy
    if not policy.reuse_prompt_cache or policy.summary_model is not None or policy.style != "record":
        return False
    room = _room_left(context, context.under(context.current).tokens, limits)
    return room >= limits.max_tokens and _behind(context, kept) is not None


def appended_question(
    context: CompactionContext, source: SummarySource, limits: SummaryLimits, kept: KeptAnswers
) -> AppendedQuestion | None:
    """The question appended to the forwarded prompt; None where it cannot be appended.

    Its answer may take what the window leaves, up to the headroom of any summary.
    """
    found = _behind(context, kept)
    if found is None:
        return None
    behind, own = found
    shown, end = context.under(context.current), _end(context)
    raws = [part.raw for part in shown.view.parts if part.index is None or part.index < end]
    length, thought_tokens = limits.record_tokens, limits.max_tokens - limits.record_tokens
    if any(name == "reasoning" for name, _ in behind):
        # On the Responses API reasoning counts towards the answer's limit.
        thought_tokens = THOUGHT_TOKENS
    left = int(_room_left(context, shown.tokens, limits))
    most = max(length, min(answer_tokens(length, thought_tokens), left))
    request = appended_request(
        raws, source, most, limits, context.count_text, context.focus, context.style.form(source)
    )
    if own is not None:
        # An answer is still checked against the whole prompt for echoes.
        request = replace(request, messages=(*own, request.messages[-1]))
    return AppendedQuestion(request, behind)


def _room_left(context: CompactionContext, prompt_tokens: int, limits: SummaryLimits) -> float:
    """Tokens that the window leaves beside the prompt and the question."""
    question = appended_tokens(limits, context.count_text, context.style.form(SummarySource(())))
    return RIDING_SHARE * context.budget.window_tokens - prompt_tokens - question


def _behind(context: CompactionContext, kept: KeptAnswers) -> tuple[Members, Sequence[bytes] | None] | None:
    """The request members sent with a question, and its messages where the upstream keeps those before.

    None where no question can be appended: the members of the last request are not known, or what the
    upstream keeps is not.
    """
    turn = context.turn
    request = turn.request if isinstance(turn, Turn) else None
    if request is None and turn.wire.keeps_answers:
        return None
    behind = request.question_members if request else ()
    if not isinstance(turn, Turn) or context.current is not None or not kept.may_continue(turn):
        return behind, None
    # The request itself sent the last messages, without its answer if there is one.
    sent, talk = turn.request.message_spans, turn.conversation
    said, cut = [each.raw for each in (*talk.preamble, *talk.messages)], len(talk.preamble) + _end(context)
    for answers in (0, 1):
        start = len(said) - answers - len(sent)
        if start >= 0 and said[start : start + len(sent)] == list(sent) and start + len(sent) <= cut:
            return (*behind, *previous_of(turn.request)), said[start:cut]
    return None


def _end(context: CompactionContext) -> int:
    """The index up to which messages stay before an appended question.

    Upstreams refuse a question after tool calls without results, or after reasoning that only they hold.
    """
    messages = context.conversation.messages
    if open_calls(messages):
        return groups_of(messages)[-1].start
    return len(messages) - 1 if messages and has_unreadable_reasoning(messages[-1].raw) else len(messages)
