"""The last resort: the smallest valid view there is, and the refusal when even that does not fit.

Knows nothing of triggers. What may be given up, in this order: everything before the newest group
but for what must stay; the length of the newest group's results; the original task; the length of
the standing summary. Never given up: instructions, pins, the newest user message, a message's validity.
"""

from __future__ import annotations

from dataclasses import replace

from app.core.budget.block import LEAST_SUMMARY_TOKENS, block_tokens_for
from app.core.view.outcomes import Refuse
from app.core.view.planning.fold import Draft
from app.core.view.planning.limits import maskable, squeezed
from app.core.view.planning.situation import Limits, Situation, must_keep


def squeeze(situation: Situation, limits: Limits, room: int, *, with_task: bool, floor: int) -> Draft:
    """The view with the newest group as its tail, that group's results shortened to fit `room` tokens.

    `room` counts the whole prompt. The draft may exceed it: then nothing more can be done without
    giving up more. `floor` is the least a result keeps, tokens. The draft's cut is what is folded
    already, and its kept the same, when there is nothing further to fold.
    """
    cut = situation.groups[-1].start
    kept = frozenset(index for index in must_keep(situation, with_task) if index < cut)
    if not folds_more(situation, cut, kept):
        cut, kept = situation.since, situation.kept
    summary = _least_summary(situation, cut, kept)
    tail = range(cut, len(limits.sizes))
    memory = situation.budget.memory_tokens if folds_more(situation, cut, kept) else 0
    rest = situation.budget.fixed_tokens + memory + sum(limits.sizes[index] for index in kept) + summary
    shortable = {index for index in maskable(situation) if index >= cut}
    plain = sum(limits.sizes[index] for index in tail if index not in shortable)
    limits = squeezed(situation, limits, cut, max(0, room - rest - plain), floor)
    tail_tokens = sum(limits.sizes[index] for index in tail)
    draft = Draft(cut, kept, summary, tail_tokens, rest + tail_tokens, limits)
    return _with_longer_summary(situation, draft, room) if is_new(situation, draft) else draft


def folds_more(situation: Situation, cut: int, kept: frozenset[int]) -> bool:
    """True when a message that stands in the current view is folded by this cut."""
    return any(index not in kept for index in (*situation.kept, *range(situation.since, cut)))


def is_new(situation: Situation, draft: Draft) -> bool:
    """True when the draft folds something that stands in the current view."""
    return folds_more(situation, draft.cut, draft.kept)


def refusal_of(situation: Situation, smallest: Draft) -> Refuse:
    """Which of the things that must stay verbatim is to blame, said so that a person can act on it."""
    newest, counted = situation.conversation.messages[-1], situation.budget.for_model
    kept = sum(smallest.limits.sizes[index] for index in smallest.kept)
    is_verbatim = newest.is_instruction or newest.role == "user"
    if is_verbatim and newest.tokens >= situation.budget.fixed_tokens + kept:
        return refused(situation, f"The newest message alone takes {counted(newest.tokens)}.")
    tail = f"the newest messages take {counted(smallest.tail_tokens)}"
    if situation.budget.fixed_tokens + kept >= smallest.tail_tokens:
        fixed = counted(situation.budget.fixed_tokens + kept)
        return refused(situation, f"Instructions, tools and pinned messages take {fixed}, {tail}.")
    return refused(situation, f"Nothing is left to fold: {tail}.")


def refused(situation: Situation, why: str) -> Refuse:
    """The refusal in OpenAI's words, which clients look for in a message, then `why`.

    "maximum context length is N tokens" and "reduce the length of the messages" are in the tables of LiteLLM,
    Cline, opencode and others (read 2026-11); the numbers are the model's own tokens, as in its own refusals.
    """
    window, tokens = situation.budget.window.tokens, situation.budget.for_model(situation.total)
    return Refuse(
        f"This model's maximum context length is {window} tokens. However, your messages resulted in "
        f"{tokens} tokens. Please reduce the length of the messages. {why}"
    )


def with_shortest_summary(situation: Situation, draft: Draft) -> Draft:
    """The draft with a summary of the least length: the standing one is written again, shorter."""
    least = min(draft.summary_tokens, _shortest(situation))
    return replace(draft, summary_tokens=least, total=draft.total - draft.summary_tokens + least)


def standing_summary(situation: Situation) -> int:
    """Tokens of the block in the current view, with memory and acknowledgement; 0 without one."""
    block = ("summary", "memory", "acknowledgement")
    return sum(part.tokens for part in situation.view.parts if part.kind in block)


def _least_summary(situation: Situation, cut: int, kept: frozenset[int]) -> int:
    return _shortest(situation) if folds_more(situation, cut, kept) else standing_summary(situation)


def _shortest(situation: Situation) -> int:
    return min(LEAST_SUMMARY_TOKENS, situation.budget.summary_tokens)


def _with_longer_summary(situation: Situation, draft: Draft, room: int) -> Draft:
    """What is left of the room goes to the summary, as far as a summary may go."""
    folded = sum(
        size for index, size in enumerate(draft.limits.sizes[: draft.cut]) if index not in draft.kept
    )
    wanted = block_tokens_for(situation.budget, folded)
    more = max(0, min(wanted - draft.summary_tokens, room - draft.total))
    return replace(draft, summary_tokens=draft.summary_tokens + more, total=draft.total + more)
