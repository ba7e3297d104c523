"""The last resort: the smallest valid view there is, and the refusal when even that does not fit.

Knows nothing of triggers. What may be given up, in this order: everything before the newest group
but for what must stay; the length of the newest group's results; the original task; the length of
the summary. Never given up: instructions, pins, the newest user message, a message's validity.
"""

from __future__ import annotations

from app.core.view.cuts import RESULT_ROLES
from app.core.view.fold import LEAST_SUMMARY_TOKENS, Draft, block_room
from app.core.view.limits import squeezed
from app.core.view.outcomes import Refuse
from app.core.view.situation import Limits, Situation, must_keep


def squeeze(situation: Situation, limits: Limits, room: int, *, with_task: bool, floor: int) -> Draft:
    """The view with the newest group as its tail, that group's results shortened to fit `room` tokens.

    `room` counts the whole prompt. The draft may exceed it: then nothing more can be done without
    giving up more. `floor` is the least a result keeps, tokens. The draft's cut is what is folded
    already, and its kept the same, when there is nothing further to fold.
    """
    cut = situation.groups[-1].start
    kept = frozenset(index for index in must_keep(situation, with_task) if index < cut)
    summary = _least_summary(situation, cut, kept)
    sizes = limits.sizes
    tail = range(cut, len(sizes))
    rest = situation.budget.fixed_tokens + sum(sizes[index] for index in kept) + summary
    maskable = [i for i in tail if situation.conversation.messages[i].role in RESULT_ROLES]
    plain = sum(sizes[i] for i in tail) - sum(sizes[i] for i in maskable)
    limits = squeezed(situation, limits, cut, max(0, room - rest - plain), floor)
    tail_tokens = sum(limits.sizes[index] for index in tail)
    total = rest + tail_tokens
    if cut > situation.since and total < room:
        folded = sum(sizes[i] for i in range(cut) if i not in kept)
        wanted = block_room(situation, tokens=folded, wording=0)
        more = max(0, min(wanted - summary, room - total))
        summary, total = summary + more, total + more
    return Draft(cut, kept, summary, tail_tokens, total, limits)


def is_new(situation: Situation, draft: Draft) -> bool:
    """True when the draft folds something that stands in the current view."""
    return draft.cut > situation.since or bool(situation.kept - draft.kept)


def refusal_of(situation: Situation, smallest: Draft) -> Refuse:
    """Which of the things that must stay verbatim is to blame, said so that a person can act on it."""
    messages, window = situation.conversation.messages, situation.budget.window_tokens
    newest = messages[-1]
    kept = sum(smallest.limits.sizes[index] for index in smallest.kept)
    is_verbatim = newest.is_instruction or newest.role == "user"
    if is_verbatim and newest.tokens >= situation.budget.fixed_tokens + kept:
        text = f"The newest message takes {newest.tokens} tokens; the model's window holds {window}."
        return Refuse("message_too_large", text)
    if situation.budget.fixed_tokens + kept >= smallest.tail_tokens:
        text = (
            f"Instructions, tools and pinned messages take {situation.budget.fixed_tokens + kept} tokens, "
            f"the newest messages {smallest.tail_tokens}; the model's window holds {window}."
        )
        return Refuse("pins_too_large", text)
    text = f"The newest messages take {smallest.tail_tokens} tokens; the model's window holds {window}."
    return Refuse("context_length_exceeded", text)


def _least_summary(situation: Situation, cut: int, kept: frozenset[int]) -> int:
    if not cut:
        return 0
    if cut == situation.since and not situation.kept - kept:
        return sum(part.tokens for part in situation.view.parts if part.kind == "summary")
    return min(LEAST_SUMMARY_TOKENS, situation.budget.summary_tokens)
