"""The steps tried, in order, when a prompt must become smaller (A07), and the last resort.

Given up, in this order: everything before the newest group except what must stay; the length of the newest
group's results; the original task; the length of the current summary. Never given up: instructions, pins, the
newest user message, and the validity of the list.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from palimpsest.core.budget.budget import LEAST_SUMMARY_TOKENS, Budget, block_tokens_for
from palimpsest.core.history.message import RESULT_ROLES, Conversation
from palimpsest.core.policy import Policy
from palimpsest.core.view.compaction import Compaction, Trigger
from palimpsest.core.view.fold import FoldDraft, counted, fold_to, with_newest
from palimpsest.core.view.limits import maskable, older, oversized, squeezed
from palimpsest.core.view.outcomes import Fold, MaskOnly, Plan, Refuse, Send
from palimpsest.core.view.plan_input import PlanInput, ResultLimits, masks_of, must_keep, plan_input_of
from palimpsest.core.view.reasons import why
from palimpsest.core.view.view import CountText


def squeeze(
    situation: PlanInput, limits: ResultLimits, room: int, *, with_task: bool, floor: int
) -> FoldDraft:
    """The view with the newest group as its tail, that group's results shortened to fit into `room` tokens.

    `room` counts the whole prompt. The draft may exceed it: then something else must be given up. A result
    keeps at least `floor` tokens. When there is nothing further to fold, the draft's `cut` and `kept` are the
    current ones.
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
    draft = FoldDraft(cut, kept, summary, tail_tokens, rest + tail_tokens, limits)
    return _with_longer_summary(situation, draft, room) if is_new(situation, draft) else draft


def folds_more(situation: PlanInput, cut: int, kept: frozenset[int]) -> bool:
    """True when this cut folds a message of the current view."""
    return any(index not in kept for index in (*situation.kept, *range(situation.since, cut)))


def is_new(situation: PlanInput, draft: FoldDraft) -> bool:
    """True when the draft folds a message of the current view."""
    return folds_more(situation, draft.cut, draft.kept)


def refusal_of(situation: PlanInput, smallest: FoldDraft) -> Refuse:
    """A refusal that names which of the messages that must stay verbatim take too much room."""
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


def refused(situation: PlanInput, why: str) -> Refuse:
    """The refusal in OpenAI's words, which clients search for, followed by `why`.

    "maximum context length is N tokens" and "reduce the length of the messages" are in the tables of LiteLLM,
    Cline, opencode and others (read 2026-11); the numbers are the model's own tokens, as in its own refusals.
    """
    window, tokens = situation.budget.window.tokens, situation.budget.for_model(situation.total)
    return Refuse(
        f"This model's maximum context length is {window} tokens. However, your messages resulted in "
        f"{tokens} tokens. Please reduce the length of the messages. {why}"
    )


def with_shortest_summary(situation: PlanInput, draft: FoldDraft) -> FoldDraft:
    """The draft with a summary of the least length: the current one is rewritten, shorter."""
    least = min(draft.summary_tokens, _shortest(situation))
    return replace(draft, summary_tokens=least, total=draft.total - draft.summary_tokens + least)


def current_block_tokens(situation: PlanInput) -> int:
    """Tokens of the block in the current view, with memory and acknowledgement; 0 without one."""
    block = ("summary", "memory", "acknowledgement")
    return sum(part.tokens for part in situation.view.parts if part.kind in block)


def _least_summary(situation: PlanInput, cut: int, kept: frozenset[int]) -> int:
    return _shortest(situation) if folds_more(situation, cut, kept) else current_block_tokens(situation)


def _shortest(situation: PlanInput) -> int:
    return min(LEAST_SUMMARY_TOKENS, situation.budget.summary_tokens)


def _with_longer_summary(situation: PlanInput, draft: FoldDraft, room: int) -> FoldDraft:
    """The draft with the rest of the room given to the summary, up to its maximum."""
    folded = sum(
        size for index, size in enumerate(draft.limits.sizes[: draft.cut]) if index not in draft.kept
    )
    wanted = block_tokens_for(situation.budget, folded)
    more = max(0, min(wanted - draft.summary_tokens, room - draft.total))
    return replace(draft, summary_tokens=draft.summary_tokens + more, total=draft.total + more)


# A result of the newest group keeps at least this many tokens while only the target is exceeded.
_SOFT_FLOOR_TOKENS = 1_000
# Where the other messages take at most this share of the target, the newest group is what is too large.
_NEWEST_SHARE = 0.5
# A prompt that cannot reach the target may exceed its lowest size by this share of the way to the trigger, so
# that the tail is more than one group.
_RELAXED_SHARE = 1 / 3


@dataclass(frozen=True, slots=True)
class Goal:
    """The size that the prompt should have, and must not exceed; tokens of the whole prompt.

    `most` is what it may take where the newest exchanges would not stay otherwise (rule 38).
    """

    target: int
    limit: int
    trigger: Trigger
    most: int = 0


def compacted(situation: PlanInput, limits: ResultLimits, goal: Goal) -> Plan:
    """The first step that suffices; Send when none gains anything. `limits` mask the oversized results."""
    if not situation.groups:
        return _alone(situation)
    if situation.policy.only_thins and (thinned := _thinned(situation, limits, goal)):
        return thinned
    return (
        by_masks(situation, limits, goal)
        or _by_count(situation, limits, goal)
        or _by_fold(situation, limits, goal)
        or _above_target(situation, limits, goal)
        or _at_any_price(situation, limits, goal)
        or Send(situation.view)
    )


def by_messages(situation: PlanInput, limits: ResultLimits, goal: Goal) -> Fold | None:
    """A fold to the tail that the policy counts, where tokens require none (A14).

    Its block takes at most what it frees (F12). None while that is less than a summary takes: the messages
    are few and short.
    """
    draft = counted(situation, limits)
    if draft is None:
        return None
    room = situation.total - (draft.total - draft.summary_tokens)
    if room < min(draft.summary_tokens, LEAST_SUMMARY_TOKENS):
        return None
    return fold_of(situation, replace(draft, summary_tokens=min(draft.summary_tokens, room)), goal)


def by_masks(situation: PlanInput, limits: ResultLimits, goal: Goal) -> MaskOnly | None:
    """Masks alone, if they reach the target: of oversized results, a huge newest group, or old results."""
    if situation.total_with(limits) <= goal.target:
        return _masks(situation, limits, goal, "oversized tool results shortened")
    newest = None if _newest_fits(situation, limits, goal) else _newest_squeezed(situation, limits, goal)
    if newest is not None:
        return _masks(situation, newest, goal, "the newest tool results shortened")
    stubs = older(situation, limits, goal.target)
    if situation.total_with(stubs) <= goal.target:
        return _masks(situation, stubs, goal, "older tool results shortened")
    return None


def _thinned(situation: PlanInput, limits: ResultLimits, goal: Goal) -> MaskOnly | Send | None:
    """Older results shortened as far as the target requires (E08); Send where that gains nothing.

    None where the result does not fit: then only a fold keeps the session usable.
    """
    masks = by_masks(situation, limits, goal)
    if masks is not None:
        return masks
    stubs = older(situation, limits, goal.target)
    total = situation.total_with(stubs)
    if total <= goal.limit and _is_worth(situation, total, goal):
        return _masks(situation, stubs, goal, "older tool results shortened")
    fits = goal.trigger != "overflow" and situation.total <= goal.limit
    return Send(situation.view) if fits else None


def fold_of(situation: PlanInput, draft: FoldDraft, goal: Goal) -> Fold:
    """The draft as a decision."""
    return Fold(
        cut=draft.cut,
        since=situation.since,
        kept=tuple(sorted(draft.kept)),
        masks=masks_of(situation, draft.limits, draft.cut, draft.kept),
        summary_tokens=draft.summary_tokens,
        target_tokens=goal.target,
        trigger=goal.trigger,
        reason=reason_of(situation, goal.trigger),
        fits_now=situation.total <= situation.budget.ceiling_tokens,
        memory_tokens=situation.budget.memory_tokens,
        leaves_tokens=expected_after(situation, draft),
    )


def expected_after(situation: PlanInput, draft: FoldDraft) -> int:
    """The tokens expected of the view: a block has room for three records, and usually takes one.

    It is hardly ever shorter than the one before.
    """
    summary = max(situation.budget.summary_tokens, current_block_tokens(situation))
    return draft.total - max(0, draft.summary_tokens - summary)


def with_room(situation: PlanInput, draft: FoldDraft, goal: Goal) -> FoldDraft:
    """The draft with the newest exchanges, where there is room for them and it is still worth folding."""
    kept = with_newest(
        situation,
        draft,
        target=goal.target,
        most=goal.most,
        records=1 if goal.trigger == "overflow" else 2,
    )
    return kept if _is_worth(situation, kept.total, goal) else draft


def reason_of(situation: PlanInput, trigger: Trigger) -> str:
    """See `why`."""
    return why(situation.total, situation.unfolded, situation.budget, situation.policy, trigger)


def _by_count(situation: PlanInput, limits: ResultLimits, goal: Goal) -> Fold | None:
    """The tail that the policy counts, where it leaves room for growth; else the target decides."""
    draft = counted(situation, limits)
    # A view at the trigger would be compacted again at once (F04).
    most = min(goal.limit, situation.budget.trigger_tokens - max(1, situation.min_gain))
    if draft is None or draft.total > most or not _is_worth(situation, draft.total, goal):
        return None
    return fold_of(situation, draft, goal)


def _by_fold(situation: PlanInput, limits: ResultLimits, goal: Goal) -> Fold | None:
    draft = fold_to(situation, limits, goal.target)
    if draft is None or draft.total > goal.target or not _is_worth(situation, draft.total, goal):
        return None
    return fold_of(situation, with_room(situation, draft, goal), goal)


def _above_target(situation: PlanInput, limits: ResultLimits, goal: Goal) -> Fold | MaskOnly | None:
    """The target cannot be reached: the smallest view that is worth it and within the limit."""
    lowest = fold_to(situation, limits, goal.target)
    room = goal.limit if _newest_fits(situation, limits, goal) else goal.target
    soft = squeeze(situation, limits, room, with_task=True, floor=_SOFT_FLOOR_TOKENS)
    candidates = [soft] if is_new(situation, soft) else []
    if lowest is not None:
        trigger = min(situation.budget.trigger_tokens, situation.total)
        relaxed = lowest.total + int(max(0, trigger - lowest.total) * _RELAXED_SHARE)
        candidates.append(fold_to(situation, limits, relaxed) or lowest)
    good = [d for d in candidates if d.total <= goal.limit and _is_worth(situation, d.total, goal)]
    if good:
        return fold_of(situation, with_room(situation, min(good, key=lambda d: d.total), goal), goal)
    stubs = older(situation, soft.limits, goal.target)
    total = situation.total_with(stubs)
    if total <= goal.limit and _is_worth(situation, total, goal):
        return _masks(situation, stubs, goal, "tool results shortened")
    return None


def _at_any_price(situation: PlanInput, limits: ResultLimits, goal: Goal) -> Plan | None:
    """Above the limit: the smallest view; without the original task; with a shorter summary; a refusal."""
    if situation.total <= goal.limit:
        return None
    drafts = [squeeze(situation, limits, goal.limit, with_task=task, floor=0) for task in (True, False)]
    drafts.append(with_shortest_summary(situation, drafts[-1]))
    for draft in drafts:
        if draft.total <= goal.limit and draft.total < situation.total:
            return _taken(situation, draft, goal)
    smallest = drafts[-1]
    window = situation.budget.window
    most = situation.budget.window_tokens
    if not window.is_known or smallest.total <= most:
        # Better than the current view, though the upstream may still refuse it.
        is_needed = window.is_known and situation.total > most
        is_worth = is_needed or _is_worth(situation, smallest.total, goal)
        return _taken(situation, smallest, goal) if is_worth else None
    return refusal_of(situation, smallest) if situation.total > most else None


def _alone(situation: PlanInput) -> Plan:
    """Instructions alone: there is nothing to fold."""
    if situation.budget.window.is_known and situation.total > situation.budget.window_tokens:
        return refused(situation, "There is nothing but instructions and tools in it.")
    return Send(situation.view)


def _taken(situation: PlanInput, draft: FoldDraft, goal: Goal) -> Fold | MaskOnly | None:
    if is_new(situation, draft) or draft.summary_tokens < current_block_tokens(situation):
        return fold_of(situation, with_room(situation, draft, goal), goal)
    if draft.limits.chars != situation.limits.chars:
        return _masks(situation, draft.limits, goal, "the newest tool results shortened")
    return None


def _masks(situation: PlanInput, limits: ResultLimits, goal: Goal, what: str) -> MaskOnly | None:
    masks = masks_of(situation, limits, situation.since, situation.kept)
    if limits.chars == situation.limits.chars:
        return None
    return MaskOnly(masks, goal.trigger, f"{reason_of(situation, goal.trigger)}: {what}")


def _newest_fits(situation: PlanInput, limits: ResultLimits, goal: Goal) -> bool:
    """True when the smallest view with the newest results whole is within the limit.

    The model is about to use them: they are shortened for the limit, not for the target.
    """
    smallest = squeeze(situation, limits, goal.limit, with_task=True, floor=0)
    return smallest.total <= goal.limit and smallest.limits.chars == limits.chars


def _newest_squeezed(situation: PlanInput, limits: ResultLimits, goal: Goal) -> ResultLimits | None:
    start = situation.groups[-1].start
    newest = sum(limits.sizes[start:])
    others = situation.total_with(limits) - newest
    if others > goal.target * _NEWEST_SHARE:
        return None
    messages = situation.conversation.messages
    results = [i for i in range(start, len(messages)) if messages[i].role in RESULT_ROLES]
    plain = newest - sum(limits.sizes[i] for i in results)
    squeezed_limits = squeezed(situation, limits, start, goal.target - others - plain, _SOFT_FLOOR_TOKENS)
    return squeezed_limits if situation.total_with(squeezed_limits) <= goal.target else None


def _is_worth(situation: PlanInput, total: int, goal: Goal) -> bool:
    """True when enough is freed: the least gain, or the excess over the limit if that is less."""
    missing = max(1, situation.total - goal.limit)
    needed = min(situation.min_gain, missing) if situation.total > goal.limit else situation.min_gain
    return situation.total - total >= needed


def plan_masks(
    conversation: Conversation,
    current: Compaction | None,
    budget: Budget,
    pins: frozenset[bytes],
    policy: Policy,
    count_text: CountText,
) -> MaskOnly | Send:
    """Masks that bring the prompt below the trigger by the least gain; Send where they cannot.

    They shorten as far as the target, so that the next ones are not due at once.
    """
    situation = plan_input_of(conversation, current, budget, pins, policy, count_text)
    if not situation.groups:
        return Send(situation.view)
    limits = older(situation, oversized(situation), budget.target_tokens)
    is_changed = limits.chars != situation.limits.chars
    if not is_changed or situation.total_with(limits) > budget.trigger_tokens - situation.min_gain:
        return Send(situation.view)
    masks = masks_of(situation, limits, situation.since, situation.kept)
    trigger: Trigger = "proactive" if situation.total < budget.window_tokens else "reactive"
    return MaskOnly(
        masks, trigger, f"{reason_of(situation, trigger)}: tool results shortened in place of a fold"
    )
