"""The order in which means are tried when a prompt must become smaller (A07).

Pure. Knows nothing of marks and of who asked: the goal says where to come down to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.core.budget.block import LEAST_SUMMARY_TOKENS
from app.core.view.compaction import Trigger
from app.core.view.cuts import RESULT_ROLES
from app.core.view.outcomes import Fold, MaskOnly, Plan, Send
from app.core.view.planning.fold import Draft, counted, fold_to
from app.core.view.planning.limits import older, squeezed
from app.core.view.planning.newest import with_newest
from app.core.view.planning.reasons import why
from app.core.view.planning.situation import Limits, Situation, masks_of
from app.core.view.planning.squeeze import (
    is_new,
    refusal_of,
    refused,
    squeeze,
    standing_summary,
    with_shortest_summary,
)

# A result of the newest group keeps at least so many tokens while only the target is missed.
_SOFT_FLOOR_TOKENS = 1_000
# With no more than this share of the target outside the newest group, that group is the trouble.
_NEWEST_SHARE = 0.5
# What cannot come down to the target comes down to its lowest point and so much of the way back up
# to the trigger, so that the tail is more than one group.
_RELAXED_SHARE = 1 / 3


@dataclass(frozen=True, slots=True)
class Goal:
    """Where the prompt should come down to, and what it must not exceed; tokens of the whole prompt.

    `most` is what it may take where the newest exchanges would not stay otherwise (rule 38).
    """

    target: int
    limit: int
    trigger: Trigger
    most: int = 0


def compacted(situation: Situation, limits: Limits, goal: Goal) -> Plan:
    """The first means that will do; Send when none wins anything. `limits` mask the oversized results."""
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


def by_messages(situation: Situation, limits: Limits, goal: Goal) -> Fold | None:
    """The tail the policy counts where there is no need of room (A14); its block takes what it frees (F12).

    None while that would be less than a summary takes: the messages are few and short.
    """
    draft = counted(situation, limits)
    if draft is None:
        return None
    room = situation.total - (draft.total - draft.summary_tokens)
    if room < min(draft.summary_tokens, LEAST_SUMMARY_TOKENS):
        return None
    return fold_of(situation, replace(draft, summary_tokens=min(draft.summary_tokens, room)), goal)


def by_masks(situation: Situation, limits: Limits, goal: Goal) -> MaskOnly | None:
    """Masks alone, if they reach the target: of oversized results, of a huge newest group, of old results."""
    if situation.total_with(limits) <= goal.target:
        return _masks(situation, limits, goal, "oversized tool results shortened")
    newest = None if _newest_fits(situation, limits, goal) else _newest_squeezed(situation, limits, goal)
    if newest is not None:
        return _masks(situation, newest, goal, "the newest tool results shortened")
    stubs = older(situation, limits, goal.target)
    if situation.total_with(stubs) <= goal.target:
        return _masks(situation, stubs, goal, "older tool results shortened")
    return None


def _thinned(situation: Situation, limits: Limits, goal: Goal) -> MaskOnly | Send | None:
    """Older results shortened as far as the target asks for (E08); Send where that wins nothing.

    None where what is left does not fit: then a fold is all that keeps the session going.
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


def fold_of(situation: Situation, draft: Draft, goal: Goal) -> Fold:
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
    )


def with_room(situation: Situation, draft: Draft, goal: Goal) -> Draft:
    """The draft with the newest exchanges, where there is room for them and it is still worth folding."""
    kept = with_newest(
        situation,
        draft,
        target=goal.target,
        most=goal.most,
        records=1 if goal.trigger == "overflow" else 2,
    )
    return kept if _is_worth(situation, kept.total, goal) else draft


def reason_of(situation: Situation, trigger: Trigger) -> str:
    """See `why`."""
    return why(situation.total, situation.unfolded, situation.budget, situation.policy, trigger)


def _by_count(situation: Situation, limits: Limits, goal: Goal) -> Fold | None:
    """The tail the policy counts, where the view then leaves room for what comes; else the target decides."""
    draft = counted(situation, limits)
    # Landing at the trigger would compact again at once (F04).
    most = min(goal.limit, situation.budget.trigger_tokens - max(1, situation.min_gain))
    if draft is None or draft.total > most or not _is_worth(situation, draft.total, goal):
        return None
    return fold_of(situation, draft, goal)


def _by_fold(situation: Situation, limits: Limits, goal: Goal) -> Fold | None:
    draft = fold_to(situation, limits, goal.target)
    if draft is None or draft.total > goal.target or not _is_worth(situation, draft.total, goal):
        return None
    return fold_of(situation, with_room(situation, draft, goal), goal)


def _above_target(situation: Situation, limits: Limits, goal: Goal) -> Fold | MaskOnly | None:
    """The target is out of reach: the lowest point that is worth it and within the limit."""
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


def _at_any_price(situation: Situation, limits: Limits, goal: Goal) -> Plan | None:
    """Above the limit: the smallest view, without the original task, with a shorter summary, a refusal."""
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
        # Better than what goes out now, though the upstream may still refuse it.
        is_needed = window.is_known and situation.total > most
        is_worth = is_needed or _is_worth(situation, smallest.total, goal)
        return _taken(situation, smallest, goal) if is_worth else None
    return refusal_of(situation, smallest) if situation.total > most else None


def _alone(situation: Situation) -> Plan:
    """Instructions and nothing else: there is nothing to fold."""
    if situation.budget.window.is_known and situation.total > situation.budget.window_tokens:
        return refused(situation, "There is nothing but instructions and tools in it.")
    return Send(situation.view)


def _taken(situation: Situation, draft: Draft, goal: Goal) -> Fold | MaskOnly | None:
    if is_new(situation, draft) or draft.summary_tokens < standing_summary(situation):
        return fold_of(situation, with_room(situation, draft, goal), goal)
    if draft.limits.chars != situation.limits.chars:
        return _masks(situation, draft.limits, goal, "the newest tool results shortened")
    return None


def _masks(situation: Situation, limits: Limits, goal: Goal, what: str) -> MaskOnly | None:
    masks = masks_of(situation, limits, situation.since, situation.kept)
    if limits.chars == situation.limits.chars:
        return None
    return MaskOnly(masks, goal.trigger, f"{reason_of(situation, goal.trigger)}: {what}")


def _newest_fits(situation: Situation, limits: Limits, goal: Goal) -> bool:
    """True when the smallest view with the newest results whole is within the limit.

    The model is about to act on them: they are shortened when they must be, not to reach a target.
    """
    smallest = squeeze(situation, limits, goal.limit, with_task=True, floor=0)
    return smallest.total <= goal.limit and smallest.limits.chars == limits.chars


def _newest_squeezed(situation: Situation, limits: Limits, goal: Goal) -> Limits | None:
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


def _is_worth(situation: Situation, total: int, goal: Goal) -> bool:
    """True when enough is freed: the least gain, or what is missing to the limit if that is less."""
    missing = max(1, situation.total - goal.limit)
    needed = min(situation.min_gain, missing) if situation.total > goal.limit else situation.min_gain
    return situation.total - total >= needed
