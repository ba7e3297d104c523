"""Questions for a summary appended to the cached prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from palimpsest.core.budget.measured import THOUGHT_TOKENS
from palimpsest.core.history.append import open_calls
from palimpsest.core.history.message import Conversation
from palimpsest.core.summary.asking import RecordRequest, appended_request, appended_tokens
from palimpsest.core.summary.prompt import SummaryLimits, answer_tokens
from palimpsest.core.summary.source import SummarySource
from palimpsest.core.view.validity import groups_of
from palimpsest.core.wire.request import Members
from palimpsest.core.wire.responses.question import has_unreadable_reasoning, previous_of
from palimpsest.proxy.compaction_context import CompactionContext
from palimpsest.proxy.kept_answers import KeptAnswers
from palimpsest.proxy.turn import Turn

# An appended question and its answer must fit into this share of the window: our count may be off by the
# rest.
RIDING_SHARE = 0.98


@dataclass(frozen=True, slots=True)
class AppendedQuestion:
    """A question appended to a prompt, and the request members sent with it: see `Question.behind`."""

    request: RecordRequest
    behind: Members


class Prompts:
    """Appends questions to the prompts that upstreams have cached; `kept`: which answers upstreams have."""

    def __init__(self, kept: KeptAnswers) -> None:
        self._kept = kept

    def may_reuse_prompt(self, context: CompactionContext, limits: SummaryLimits) -> bool:
        """True when a question may be appended to the cached prompt: it fits with its answer.

        Whatever the messages hold: the upstream has seen these bytes already (rule 46).
        """
        policy = context.policy
        if not policy.reuse_prompt_cache or policy.summary_model is not None or policy.style != "record":
            return False
        shown = context.under(context.current)
        asked = self._question_tokens(context, limits) + limits.max_tokens
        return shown.tokens + asked <= _room(context) and self._behind(context) is not None

    def _question_tokens(self, context: CompactionContext, limits: SummaryLimits) -> int:
        return appended_tokens(limits, context.count_text, context.style.form(SummarySource(())))

    def appended_question(
        self, context: CompactionContext, source: SummarySource, limits: SummaryLimits
    ) -> AppendedQuestion | None:
        """The question appended to the forwarded prompt; None where it cannot be appended.

        Its answer may take what the window leaves, up to the headroom of any summary.
        """
        behind = self._behind(context)
        if behind is None:
            return None
        shown, end = context.under(context.current), _end(context)
        raws = [part.raw for part in shown.view.parts if part.index is None or part.index < end]
        length, thought_tokens = limits.record_tokens, limits.max_tokens - limits.record_tokens
        if any(name == "reasoning" for name, _ in behind):
            # On the Responses API reasoning counts towards the answer's limit.
            thought_tokens = THOUGHT_TOKENS
        left = int(_room(context) - shown.tokens - self._question_tokens(context, limits))
        most = max(length, min(answer_tokens(length, thought_tokens), left))
        request = appended_request(
            raws, source, most, limits, context.count_text, context.focus, context.style.form(source)
        )
        own = self._own_messages(context)
        if own is not None:
            # Send only what the upstream does not keep; an answer is still checked against all of it for
            # echoes.
            request = replace(request, messages=(*own, request.messages[-1]))
        return AppendedQuestion(request, behind)

    def _own_messages(self, context: CompactionContext) -> Sequence[bytes] | None:
        """The messages after those that the upstream keeps; None where it keeps none."""
        turn = context.turn
        return (
            _beyond(turn, _end(context))
            if isinstance(turn, Turn) and self._continues_upstream(context)
            else None
        )

    def _behind(self, context: CompactionContext) -> Members | None:
        """The request members sent with a question; None where those of the last request are not known."""
        turn = context.turn
        request = turn.request if isinstance(turn, Turn) else None
        behind = turn.wire.prompt_members(request)
        if behind is None or request is None or not self._continues_upstream(context):
            return behind
        return None if self._own_messages(context) is None else (*behind, *previous_of(request))

    def _continues_upstream(self, context: CompactionContext) -> bool:
        """True when the last request referred to messages that the upstream keeps."""
        turn = context.turn
        return context.current is None and isinstance(turn, Turn) and self._kept.may_continue(turn)


def _room(context: CompactionContext) -> float:
    return RIDING_SHARE * context.budget.window_tokens


def _end(context: CompactionContext) -> int:
    """The index up to which messages stay before an appended question.

    Upstreams refuse a question after tool calls without results, or after reasoning that only they hold.
    """
    messages = context.conversation.messages
    if open_calls(messages):
        return groups_of(messages)[-1].start
    return len(messages) - 1 if messages and has_unreadable_reasoning(messages[-1].raw) else len(messages)


def _beyond(turn: Turn, end: int) -> Sequence[bytes] | None:
    """The messages that the request itself sent, with its answer if any; the upstream keeps the rest."""
    own = turn.request.message_spans
    said, cut = _raws(turn.conversation), len(turn.conversation.preamble) + end
    for answers in (0, 1):
        start = len(said) - answers - len(own)
        if start >= 0 and said[start : start + len(own)] == own and start + len(own) <= cut:
            return said[start:cut]
    return None


def _raws(talk: Conversation) -> tuple[bytes, ...]:
    return tuple(message.raw for message in (*talk.preamble, *talk.messages))
