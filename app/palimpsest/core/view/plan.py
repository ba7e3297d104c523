"""What a request needs before it is sent: nothing, shorter tool results, a fold, or a refusal.

Start with `plan_of`. A plan states what to do; the caller does it.

Given up, in this order, when a prompt must become smaller: everything before the newest group except what
must stay; the length of the newest group's results; the original task; the length of the current summary.
Never given up: instructions, pins, the newest user message, and the validity of the list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from palimpsest.core.budget.budget import (
    LEAST_SUMMARY_TOKENS,
    Budget,
    block_tokens_for,
    due,
    overflow_target,
)
from palimpsest.core.history.message import RESULT_ROLES, Conversation, Message
from palimpsest.core.view.compaction import Compaction, Trigger
from palimpsest.core.view.fold import FoldDraft, counted, drafts, fold_to, with_newest
from palimpsest.core.view.outcomes import Fold, MaskOnly, Plan, Refuse, Send
from palimpsest.core.view.plan_input import Goal, PlanInput, ResultLimits
from palimpsest.core.view.view import cut_in
from palimpsest.core.wire.compaction_items import is_ours

# A view is filled up to this share of its target, since our count may be a little off; a tail that starts at
# a user's message may leave another share free.
_FILLED_SHARE, _UNFILLED_SHARE = 0.99, 0.08
# After an overflow the upstream's true window is below what we sent: the limit is this share of that.
_OVERFLOW_LIMIT_SHARE = 0.9
# ... or this share, where the newest exchanges would be folded otherwise (rule 38).
_OVERFLOW_NEWEST_SHARE = 0.75
# A background fold leaves at least this share of the room to messages.
_LEAST_TAIL_SHARE = 1 / 3
# A manual compaction keeps as its tail this share of the conversation, or of the target's room, whichever is
# less. Both are the same when it is repeated, so that the tail does not shrink each time (F35).
_MANUAL_TAIL_SHARE = 0.3
_MANUAL_ROOM_SHARE = 0.5
# Manual: fewer folded messages, or fewer tokens, are not worth a summary (D21).
_MANUAL_MESSAGES = 2
_MANUAL_TOKENS = 64
# A result of the newest group keeps at least this many tokens while only the target is exceeded.
_SOFT_FLOOR_TOKENS = 1_000
# Where the other messages take at most this share of the target, the newest group is what is too large.
_NEWEST_SHARE = 0.5
# A prompt that cannot reach the target may exceed its lowest size by this share of the way to the trigger, so
# that the tail is more than one group.
_RELAXED_SHARE = 1 / 3


def plan_of(situation: PlanInput) -> Plan:
    """What to do with a request.

    Below the precompute mark: send. Below the trigger: send, and where masks are not enough, prepare a
    summary in the background, with a tail that leaves room for what is added before the trigger. Due only by
    its number of messages (A14): fold to the counted tail, or send.

    At or above the trigger (A02), in this order (A07): masks, if they alone reach the target; a fold to the
    target; a fold or masks that stay above it but free at least the least gain (F12). Above the ceiling:
    results of the newest group are shortened as far as needed (F33), and the original task is given up last.
    What still exceeds a known window is refused (rule 18). With a guessed window, or where nothing is gained,
    the view is sent as it is. Planning again after carrying out a plan sends.
    """
    budget, policy = situation.budget, situation.policy
    when = due(situation.total, situation.unfolded, budget, policy)
    if when != "now":
        is_ahead = when == "soon" and policy.in_background and not policy.only_thins
        return Send(situation.view, _background(situation) if is_ahead else None)
    if situation.total < budget.trigger_tokens and not policy.only_thins:
        return _by_messages(situation) or Send(situation.view)
    return _compacted(situation, _usual_goal(situation))


def plan_overflow(situation: PlanInput) -> Fold | MaskOnly | Refuse:
    """What to do after the upstream refused the prompt as too long (A29).

    The target is `overflow_target`. Each repeated call has a lower target, as the compaction it planned is
    `current` by then. Refuse when nothing is left that would make the prompt smaller.
    """
    budget = situation.budget
    fixed, sent = budget.fixed_tokens, situation.total - budget.fixed_tokens
    most = min(budget.most_after_tokens, fixed + int(_OVERFLOW_NEWEST_SHARE * sent))
    goal = Goal(
        target=overflow_target(budget, situation.total, situation.policy),
        limit=min(budget.ceiling_tokens, fixed + int(_OVERFLOW_LIMIT_SHARE * sent)),
        trigger="overflow",
        # Where the true window is unknown, nothing may exceed the target.
        most=most if budget.window.is_known else 0,
    )
    plan = _compacted(situation, goal)
    if isinstance(plan, Send):
        return _refused(situation, "Nothing is left that compaction could fold.")
    return plan


def plan_for_answer(situation: PlanInput) -> Plan:
    """What to do after the upstream refused only the sum of prompt and `max_tokens` (rule 40).

    The budget has the ceiling of prompts that the upstream takes, and the target of `answer_target`.
    """
    budget = situation.budget
    goal = Goal(budget.target_tokens, budget.ceiling_tokens, "overflow", budget.ceiling_tokens)
    return _compacted(situation, goal)


def plan_manual(situation: PlanInput) -> Fold | Send:
    """What to do when a user requests a compaction (D25): a Fold, or Send for "nothing to do".

    The cut depends on the conversation alone, so that a second request without new messages finds nothing to
    do (F35).
    """
    budget = situation.budget
    draft = _by_hand(situation)
    # Once something is folded, a fold that frees less would only break the prefix (F12).
    least = budget.gain_tokens if situation.current else 1
    if draft is None or situation.total - _expected_after(situation, draft) < least:
        return Send(situation.view)
    folded = [index for index in range(situation.since, draft.cut) if index not in draft.kept]
    tokens = sum(situation.oversized.sizes[index] for index in folded)
    if len(folded) < _MANUAL_MESSAGES or tokens < _MANUAL_TOKENS:
        return Send(situation.view)
    return _fold_of(situation, draft, Goal(budget.target_tokens, budget.ceiling_tokens, "manual"))


def plan_masks(situation: PlanInput) -> MaskOnly | Send:
    """Masks that bring the prompt below the trigger by the least gain; Send where they cannot.

    They shorten as far as the target, so that the next ones are not due at once.
    """
    budget, plan = situation.budget, None
    if situation.groups:
        limits = situation.older(situation.oversized, budget.target_tokens)
        if situation.total_with(limits) <= budget.trigger_tokens - budget.gain_tokens:
            what = "tool results shortened in place of a fold"
            plan = _masks(situation, limits, _usual_goal(situation), what)
    return plan or Send(situation.view)


def plan_filled(before: PlanInput, now: PlanInput, target: int, first: int) -> Fold | None:
    """The fold of `now` with whole messages given back, newest first, as far as `target` has room (rule 42).

    Messages before `first` stay folded. `before` is the conversation under the compaction before it,
    whose masks the messages had. None where nothing fits, or where the policy counts its tail.
    """
    if now.policy.tail_messages or now.policy.tail_ratio or now.current is None:
        return None
    limits, free, cut = before.oversized, int(_FILLED_SHARE * target) - now.total, now.since
    at_user: tuple[int, int] | None = None
    for group in reversed(before.groups):
        if first <= group.start < cut:
            indexes = range(group.start, group.stop)
            free -= sum(limits.sizes[index] for index in indexes if index not in now.kept)
            if free < 0:
                break
            cut = group.start
            if now.conversation.messages[cut].role == "user":
                at_user = cut, free
    if at_user and at_user[1] <= _UNFILLED_SHARE * target:
        cut = at_user[0]
    if cut == now.since:
        return None
    kept = frozenset(index for index in now.kept if index < cut)
    folded = sum(message.tokens for message in now.conversation.messages[:cut])
    return Fold(
        cut=cut,
        since=cut,
        kept=tuple(sorted(kept)),
        masks=before.masks(limits, cut, kept),
        summary_tokens=block_tokens_for(now.budget, folded),
        target_tokens=target,
        trigger=now.current.trigger,
        reason=now.current.reason,
        fits_now=True,
        memory_tokens=0 if now.current.leaves_memory_out else now.budget.memory_tokens,
    )


def plan_all(
    conversation: Conversation, current: Compaction | None, budget: Budget, stays: Callable[[Message], bool]
) -> Fold:
    """Fold everything but the messages that `stays` names, for a client that continues from the summary."""
    kept = [index for index, message in enumerate(conversation.messages) if stays(message)]
    return Fold(
        cut=len(conversation.messages),
        since=cut_in(current, conversation),
        kept=tuple(kept),
        masks=(),
        summary_tokens=budget.summary_tokens,
        target_tokens=budget.target_tokens,
        trigger="manual",
        reason="the client asked for it",
        fits_now=True,
    )


def stays_with_client(message: Message) -> bool:
    """True for instructions and user messages: a client sends them again, beside the summary."""
    return message.is_instruction or (message.role == "user" and not is_ours(message.raw))


def _usual_goal(situation: PlanInput) -> Goal:
    budget = situation.budget
    trigger: Trigger = "proactive" if situation.total < budget.window_tokens else "reactive"
    return Goal(budget.target_tokens, budget.ceiling_tokens, trigger, budget.most_after_tokens)


def _background(situation: PlanInput) -> Fold | None:
    """The fold to prepare: its view leaves room for what is added before the trigger."""
    budget = situation.budget
    growth = budget.trigger_tokens - situation.total
    # Room for what is added before the trigger, as far as messages keep a third of theirs.
    target = max(budget.fixed_tokens + int(_LEAST_TAIL_SHARE * situation.room), budget.target_tokens - growth)
    goal = Goal(target, budget.ceiling_tokens, "background", budget.most_after_tokens - growth)
    if _by_masks(situation, goal) is not None:
        return None
    draft = counted(situation) or fold_to(situation, goal.target)
    if draft is None or not _is_worth(situation, draft.total, goal):
        return None
    # When the fold comes into force, the view has reached the budget's target.
    return replace(_fold_with_newest(situation, draft, goal), target_tokens=budget.target_tokens)


def _by_hand(situation: PlanInput) -> FoldDraft | None:
    """The tail that the policy counts; else the longest within its share that starts at a user message.

    Where none starts at one, the longest within its share.
    """
    if len(situation.groups) < 2:
        return None
    if situation.policy.tail_messages or situation.policy.tail_ratio:
        return counted(situation)
    messages = situation.conversation.messages
    whole = sum(message.tokens for message in messages)
    most = int(min(_MANUAL_ROOM_SHARE * situation.room, _MANUAL_TAIL_SHARE * whole))
    every = list(drafts(situation, situation.must_keep(), start=1))
    short = [draft for draft in every if draft.tail_tokens <= most] or every[-1:]
    return next((draft for draft in short if messages[draft.cut].role == "user"), short[0])


def _compacted(situation: PlanInput, goal: Goal) -> Plan:
    """The first step that suffices; Send when none gains anything."""
    if not situation.groups:
        # Instructions alone: there is nothing to fold.
        if situation.budget.window.is_known and situation.total > situation.budget.window_tokens:
            return _refused(situation, "There is nothing but instructions and tools in it.")
        return Send(situation.view)
    if situation.policy.only_thins and (thinned := _thinned(situation, goal)):
        return thinned
    return (
        _by_masks(situation, goal)
        or _by_count(situation, goal)
        or _by_fold(situation, goal)
        or _above_target(situation, goal)
        or _at_any_price(situation, goal)
        or Send(situation.view)
    )


def _by_messages(situation: PlanInput) -> Fold | None:
    """A fold to the tail that the policy counts, where tokens require none (A14).

    Its block takes at most what it frees (F12). None while that is less than a summary takes: the messages
    are few and short.
    """
    draft = counted(situation)
    if draft is None:
        return None
    room = situation.total - (draft.total - draft.summary_tokens)
    if room < min(draft.summary_tokens, LEAST_SUMMARY_TOKENS):
        return None
    draft = replace(draft, summary_tokens=min(draft.summary_tokens, room))
    return _fold_of(situation, draft, _usual_goal(situation))


def _by_masks(situation: PlanInput, goal: Goal) -> MaskOnly | None:
    """Masks alone, if they reach the target: of oversized results, a huge newest group, or old results."""
    oversized = situation.oversized
    if situation.total_with(oversized) <= goal.target:
        return _masks(situation, oversized, goal, "oversized tool results shortened")
    newest = None if _newest_fits(situation, goal) else _newest_squeezed(situation, goal)
    if newest is not None:
        return _masks(situation, newest, goal, "the newest tool results shortened")
    stubs = situation.older(oversized, goal.target)
    if situation.total_with(stubs) <= goal.target:
        return _masks(situation, stubs, goal, "older tool results shortened")
    return None


def _thinned(situation: PlanInput, goal: Goal) -> MaskOnly | Send | None:
    """Older results shortened as far as the target requires (E08); Send where that gains nothing.

    None where the result does not fit: then only a fold keeps the session usable.
    """
    if masks := _by_masks(situation, goal):
        return masks
    stubs = situation.older(situation.oversized, goal.target)
    total = situation.total_with(stubs)
    if total <= goal.limit and _is_worth(situation, total, goal):
        return _masks(situation, stubs, goal, "older tool results shortened")
    fits = goal.trigger != "overflow" and situation.total <= goal.limit
    return Send(situation.view) if fits else None


def _by_count(situation: PlanInput, goal: Goal) -> Fold | None:
    """The tail that the policy counts, where it leaves room for growth; else the target decides."""
    draft, budget = counted(situation), situation.budget
    # A view at the trigger would be compacted again at once (F04).
    most = min(goal.limit, budget.trigger_tokens - max(1, budget.gain_tokens))
    if draft is None or draft.total > most or not _is_worth(situation, draft.total, goal):
        return None
    return _fold_of(situation, draft, goal)


def _by_fold(situation: PlanInput, goal: Goal) -> Fold | None:
    draft = fold_to(situation, goal.target)
    if draft is None or draft.total > goal.target or not _is_worth(situation, draft.total, goal):
        return None
    return _fold_with_newest(situation, draft, goal)


def _above_target(situation: PlanInput, goal: Goal) -> Fold | MaskOnly | None:
    """The target cannot be reached: the smallest view that is worth it and within the limit."""
    lowest = fold_to(situation, goal.target)
    room = goal.limit if _newest_fits(situation, goal) else goal.target
    soft = _squeezed(situation, room, with_task=True, floor=_SOFT_FLOOR_TOKENS)
    candidates = [soft] if situation.folds_more(soft.cut, soft.kept) else []
    if lowest is not None:
        trigger = min(situation.budget.trigger_tokens, situation.total)
        relaxed = lowest.total + int(max(0, trigger - lowest.total) * _RELAXED_SHARE)
        candidates.append(fold_to(situation, relaxed) or lowest)
    good = [d for d in candidates if d.total <= goal.limit and _is_worth(situation, d.total, goal)]
    if good:
        return _fold_with_newest(situation, min(good, key=lambda d: d.total), goal)
    stubs = situation.older(soft.limits, goal.target)
    total = situation.total_with(stubs)
    if total <= goal.limit and _is_worth(situation, total, goal):
        return _masks(situation, stubs, goal, "tool results shortened")
    return None


def _at_any_price(situation: PlanInput, goal: Goal) -> Plan | None:
    """Above the limit: the smallest view; without the original task; with a shorter summary; a refusal."""
    if situation.total <= goal.limit:
        return None
    tried = [_squeezed(situation, goal.limit, with_task=task, floor=0) for task in (True, False)]
    smallest = tried[-1]
    # The current summary is rewritten, shorter.
    least = min(smallest.summary_tokens, _shortest_summary(situation))
    smallest = replace(smallest, summary_tokens=least, total=smallest.total - smallest.summary_tokens + least)
    for draft in (*tried, smallest):
        if draft.total <= goal.limit and draft.total < situation.total:
            return _taken(situation, draft, goal)
    is_known, most = situation.budget.window.is_known, situation.budget.window_tokens
    if not is_known or smallest.total <= most:
        # Better than the current view, though the upstream may still refuse it.
        is_needed = is_known and situation.total > most
        is_worth = is_needed or _is_worth(situation, smallest.total, goal)
        return _taken(situation, smallest, goal) if is_worth else None
    return _refusal_of(situation, smallest) if situation.total > most else None


def _squeezed(situation: PlanInput, room: int, *, with_task: bool, floor: int) -> FoldDraft:
    """The view with the newest group as its tail, that group's results shortened to fit into `room` tokens.

    `room` counts the whole prompt. The draft may exceed it: then something else must be given up. A result
    keeps at least `floor` tokens. When there is nothing further to fold, the draft's `cut` and `kept` are the
    current ones; else the rest of the room is given to the summary, up to its maximum.
    """
    budget, sizes = situation.budget, situation.oversized.sizes
    cut = situation.groups[-1].start
    kept = frozenset(index for index in situation.must_keep(with_task) if index < cut)
    is_new = situation.folds_more(cut, kept)
    if not is_new:
        cut, kept = situation.since, situation.kept
    summary = _shortest_summary(situation) if is_new else _current_block_tokens(situation)
    memory = budget.memory_tokens if is_new else 0
    rest = budget.fixed_tokens + memory + sum(sizes[index] for index in kept) + summary
    plain = sum(sizes[cut:]) - sum(sizes[index] for index in situation.maskable(cut))
    limits = situation.squeezed(cut, max(0, room - rest - plain), floor)
    tail = sum(limits.sizes[cut:])
    if is_new:
        folded = sum(size for index, size in enumerate(limits.sizes[:cut]) if index not in kept)
        more = max(0, min(block_tokens_for(budget, folded) - summary, room - rest - tail))
        summary, rest = summary + more, rest + more
    return FoldDraft(cut, kept, summary, tail, rest + tail, limits)


def _newest_fits(situation: PlanInput, goal: Goal) -> bool:
    """True when the smallest view with the newest results whole is within the limit.

    The model is about to use them: they are shortened for the limit, not for the target.
    """
    smallest = _squeezed(situation, goal.limit, with_task=True, floor=0)
    return smallest.total <= goal.limit and smallest.limits.chars == situation.oversized.chars


def _newest_squeezed(situation: PlanInput, goal: Goal) -> ResultLimits | None:
    sizes, start = situation.oversized.sizes, situation.groups[-1].start
    others = situation.total_with(situation.oversized) - sum(sizes[start:])
    if others > goal.target * _NEWEST_SHARE:
        return None
    newest = enumerate(situation.conversation.messages[start:], start)
    plain = sum(sizes[index] for index, message in newest if message.role not in RESULT_ROLES)
    limits = situation.squeezed(start, goal.target - others - plain, _SOFT_FLOOR_TOKENS)
    return limits if situation.total_with(limits) <= goal.target else None


def _taken(situation: PlanInput, draft: FoldDraft, goal: Goal) -> Fold | MaskOnly | None:
    is_new = situation.folds_more(draft.cut, draft.kept)
    if is_new or draft.summary_tokens < _current_block_tokens(situation):
        return _fold_with_newest(situation, draft, goal)
    return _masks(situation, draft.limits, goal, "the newest tool results shortened")


def _masks(situation: PlanInput, limits: ResultLimits, goal: Goal, what: str) -> MaskOnly | None:
    """The decision to mask so; None where nothing changes."""
    if limits.chars == situation.limits.chars:
        return None
    masks = situation.masks(limits, situation.since, situation.kept)
    return MaskOnly(masks, goal.trigger, f"{situation.reason(goal.trigger)}: {what}")


def _fold_with_newest(situation: PlanInput, draft: FoldDraft, goal: Goal) -> Fold:
    """The draft as a decision, with the newest exchanges where there is room and it stays worth it."""
    kept = with_newest(situation, draft, goal)
    return _fold_of(situation, kept if _is_worth(situation, kept.total, goal) else draft, goal)


def _fold_of(situation: PlanInput, draft: FoldDraft, goal: Goal) -> Fold:
    return Fold(
        cut=draft.cut,
        since=situation.since,
        kept=tuple(sorted(draft.kept)),
        masks=situation.masks(draft.limits, draft.cut, draft.kept),
        summary_tokens=draft.summary_tokens,
        target_tokens=goal.target,
        trigger=goal.trigger,
        reason=situation.reason(goal.trigger),
        fits_now=situation.total <= situation.budget.cheap_tokens,
        memory_tokens=situation.budget.memory_tokens,
        leaves_tokens=_expected_after(situation, draft),
    )


def _expected_after(situation: PlanInput, draft: FoldDraft) -> int:
    """The tokens expected of the view: a block has room for three records, and usually takes one.

    It is hardly ever shorter than the one before.
    """
    summary = max(situation.budget.summary_tokens, _current_block_tokens(situation))
    return draft.total - max(0, draft.summary_tokens - summary)


def _current_block_tokens(situation: PlanInput) -> int:
    """Tokens of the block in the current view, with memory and acknowledgement; 0 without one."""
    block = ("summary", "memory", "acknowledgement")
    return sum(part.tokens for part in situation.view.parts if part.kind in block)


def _shortest_summary(situation: PlanInput) -> int:
    return min(LEAST_SUMMARY_TOKENS, situation.budget.summary_tokens)


def _is_worth(situation: PlanInput, total: int, goal: Goal) -> bool:
    """True when enough is freed: the least gain, or the excess over the limit if that is less."""
    needed, missing = situation.budget.gain_tokens, situation.total - goal.limit
    return situation.total - total >= (min(needed, missing) if missing > 0 else needed)


def _refusal_of(situation: PlanInput, smallest: FoldDraft) -> Refuse:
    """A refusal that names which of the messages that must stay verbatim take too much room."""
    newest, counted_for = situation.conversation.messages[-1], situation.budget.for_model
    kept = sum(smallest.limits.sizes[index] for index in smallest.kept)
    fixed = situation.budget.fixed_tokens + kept
    is_verbatim = newest.is_instruction or newest.role == "user"
    if is_verbatim and newest.tokens >= fixed:
        return _refused(situation, f"The newest message alone takes {counted_for(newest.tokens)}.")
    tail = f"the newest messages take {counted_for(smallest.tail_tokens)}"
    if fixed >= smallest.tail_tokens:
        said = f"Instructions, tools and pinned messages take {counted_for(fixed)}, {tail}."
        return _refused(situation, said)
    return _refused(situation, f"Nothing is left to fold: {tail}.")


def _refused(situation: PlanInput, why: str) -> Refuse:
    """The refusal in OpenAI's words, which clients search for, followed by `why`.

    "maximum context length is N tokens" and "reduce the length of the messages" are in the tables of LiteLLM,
    Cline, opencode and others (read 2026-11); the numbers are the model's own tokens, as in its own refusals.
    """
    window, tokens = situation.budget.window.tokens, situation.budget.for_model(situation.total)
    return Refuse(
        f"This model's maximum context length is {window} tokens. However, your messages resulted in "
        f"{tokens} tokens. Please reduce the length of the messages. {why}"
    )
