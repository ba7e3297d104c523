"""Questions for a summary appended to the cached prompt.

Whatever the messages hold: the upstream has seen these bytes already (rule 46).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from palimpsest.core.budget.measured import THOUGHT_TOKENS
from palimpsest.core.history.append import open_calls
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
    behind = turn.wire.prompt_members(request)
    if behind is None:
        return None
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
