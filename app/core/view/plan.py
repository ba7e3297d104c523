"""What a request needs before it goes out: nothing, shorter tool results, a fold, or a refusal.

Read `plan_of` first. Pure: it knows the budget's numbers and the messages' sizes, not how a summary
is written nor when; a plan says what, the caller does it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from app.core.budget.budget import Budget, most_after, target_of
from app.core.history.conversation import Conversation
from app.core.history.message import Message
from app.core.view.compaction import Compaction, Trigger
from app.core.view.outcomes import Fold, MaskOnly, Plan, Refuse, Send
from app.core.view.planning.fold import Draft, counted, drafts, fold_to
from app.core.view.planning.limits import oversized
from app.core.view.planning.newest import with_newest
from app.core.view.planning.situation import Limits, Situation, must_keep, situation_of
from app.core.view.planning.squeeze import refused, standing_summary
from app.core.view.planning.steps import Goal, by_masks, by_messages, compacted, fold_of
from app.core.view.policy import Policy
from app.core.view.view import CountText, cut_in
from app.core.wire.responses.compacting import is_ours

# After an overflow the upstream's true window is below what we sent: come down to so much of it.
_OVERFLOW_TARGET_SHARE = 0.5
_OVERFLOW_LIMIT_SHARE = 0.9
# ... or to so much of it, where the newest exchanges would be folded otherwise (rule 38).
_OVERFLOW_NEWEST_SHARE = 0.75
# A background fold still leaves a tail of this share of the room for messages.
_LEAST_TAIL_SHARE = 1 / 3
# A compaction by hand keeps as the tail so much of the whole conversation, or of the target's room,
# whichever is less: both are the same when asked again, so that it does not erode (F35).
_MANUAL_TAIL_SHARE = 0.3
_MANUAL_ROOM_SHARE = 0.5
# By hand: fewer older messages, or fewer tokens of them, are not worth a summary (D21).
_MANUAL_MESSAGES = 2
_MANUAL_TOKENS = 64


def plan_of(
    conversation: Conversation,
    current: Compaction | None,
    budget: Budget,
    pins: frozenset[bytes],
    policy: Policy,
    count_text: CountText,
) -> Plan:
    """What to do with a request; `current` is the compaction that applies, `pins` are chain digests.

    Below the precompute mark: send. Below the trigger: send, and where masks will not do, ask for a
    summary in the background whose tail leaves room for what is still to come before the trigger. Due by
    its messages alone (A14): the tail that is counted, or send.
    At or above it (A02), in this order (A07): masks, if they alone reach the target; a fold down to
    the target; a fold or masks that stay above it but free at least the least gain (F12). Above the
    ceiling: results of the newest group shortened as far as needed (F33), and the original task
    given up last. What still exceeds a known window is refused (rule 18); with a guessed one, or
    where nothing is won, the view goes out as it is. Planning again after carrying a plan out sends.
    """
    situation = situation_of(conversation, current, budget, pins, policy, count_text)
    if not situation.is_due:
        ahead = policy.in_background and not policy.only_thins
        is_soon = situation.total >= budget.precompute_tokens and ahead
        return Send(situation.view, _background(situation) if is_soon else None)
    trigger: Trigger = "proactive" if situation.total < budget.window_tokens else "reactive"
    goal = Goal(
        budget.target_tokens,
        budget.ceiling_tokens,
        trigger,
        most_after(budget.fixed_tokens, budget.trigger_tokens),
    )
    if situation.total < budget.trigger_tokens and not policy.only_thins:
        return by_messages(situation, oversized(situation), goal) or Send(situation.view)
    return compacted(situation, oversized(situation), goal)


def plan_overflow(
    conversation: Conversation,
    current: Compaction | None,
    budget: Budget,
    pins: frozenset[bytes],
    policy: Policy,
    count_text: CountText,
) -> Fold | MaskOnly | Refuse:
    """What to do after the upstream said the prompt is too long (A29).

    The target is the overflow ratio, and at most half of what was sent beyond the fixed part: the
    true window may be far smaller than the one we believe in. Each call in a row comes lower, as the
    compaction it asked for is `current` by then. Refuse when nothing is
    left that would make the prompt smaller.
    """
    situation = situation_of(conversation, current, budget, pins, policy, count_text)
    fixed, sent = budget.fixed_tokens, situation.total - budget.fixed_tokens
    room = int(policy.overflow_target_ratio * budget.available_tokens)
    target = target_of(room, fixed, budget.trigger_tokens, policy)
    goal = Goal(
        target=min(target, fixed + int(_OVERFLOW_TARGET_SHARE * sent)),
        limit=min(budget.ceiling_tokens, fixed + int(_OVERFLOW_LIMIT_SHARE * sent)),
        trigger="overflow",
        most=_most_after_overflow(situation, sent),
    )
    plan = compacted(situation, oversized(situation), goal)
    if isinstance(plan, Send):
        return refused(situation, "Nothing is left that compaction could fold.")
    return plan


def plan_manual(
    conversation: Conversation,
    current: Compaction | None,
    budget: Budget,
    pins: frozenset[bytes],
    policy: Policy,
    count_text: CountText,
) -> Fold | Send:
    """What to do when somebody asks for a compaction now (D25): a Fold, or Send for "nothing to do".

    Where it cuts depends on the conversation alone, so that asking again without new messages finds
    nothing to do (F35).
    """
    situation = situation_of(conversation, current, budget, pins, policy, count_text)
    limits = oversized(situation)
    draft = _by_hand(situation, limits)
    # Once something is folded, a fold that frees less would only break the prefix (F12).
    least = budget.gain_tokens if situation.current else 1
    if draft is None or situation.total - _expected(situation, draft) < least:
        return Send(situation.view)
    folded = [index for index in range(situation.since, draft.cut) if index not in draft.kept]
    if len(folded) < _MANUAL_MESSAGES or sum(limits.sizes[index] for index in folded) < _MANUAL_TOKENS:
        return Send(situation.view)
    return fold_of(situation, draft, Goal(budget.target_tokens, budget.ceiling_tokens, "manual"))


def plan_all(
    conversation: Conversation, current: Compaction | None, budget: Budget, stays: Callable[[Message], bool]
) -> Fold:
    """Everything is folded but what `stays` with a client that goes on from the summary."""
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
    """True for instructions and for what a user said: a client sends them again, beside the summary."""
    return message.is_instruction or (message.role == "user" and not is_ours(message.raw))


def _most_after_overflow(situation: Situation, sent: int) -> int:
    """What the newest exchanges may bring the prompt to: nothing more where the true window is not known."""
    budget = situation.budget
    if not budget.window.is_known:
        return 0
    return min(
        most_after(budget.fixed_tokens, budget.trigger_tokens),
        budget.fixed_tokens + int(_OVERFLOW_NEWEST_SHARE * sent),
    )


def _background(situation: Situation) -> Fold | None:
    """The fold to prepare, so that its view leaves room when what comes before the trigger is added."""
    budget = situation.budget
    growth = budget.trigger_tokens - situation.total
    limits = oversized(situation)
    most = most_after(budget.fixed_tokens, budget.trigger_tokens) - growth
    goal = Goal(_prepared_target(situation, growth), budget.ceiling_tokens, "background", most)
    if by_masks(situation, limits, goal) is not None:
        return None
    draft = counted(situation, limits) or fold_to(situation, limits, goal.target)
    if draft is None or situation.total - draft.total < _prepared_gain(situation, growth):
        return None
    # The view stands at the budget's target when the fold comes into force.
    kept = with_newest(situation, draft, target=goal.target, most=goal.most)
    draft = kept if situation.total - kept.total >= _prepared_gain(situation, growth) else draft
    return fold_of(situation, draft, replace(goal, target=budget.target_tokens))


def _prepared_target(situation: Situation, growth: int) -> int:
    """Lower than the target by what is still to come; a derived target is as low as it should be already."""
    budget = situation.budget
    if budget.is_derived:
        return budget.target_tokens
    least = budget.fixed_tokens + int(_LEAST_TAIL_SHARE * situation.room)
    return max(least, budget.target_tokens - growth)


def _prepared_gain(situation: Situation, growth: int) -> int:
    """What must be freed already; of a derived gain what comes before the trigger is part."""
    if situation.budget.is_derived:
        return max(1, situation.min_gain - growth)
    return situation.min_gain


def _expected(situation: Situation, draft: Draft) -> int:
    """Tokens of the view: a block has room for three records, and as a rule takes little more than one.

    It is hardly ever shorter than the one before.
    """
    summary = max(situation.budget.summary_tokens, standing_summary(situation))
    return draft.total - max(0, draft.summary_tokens - summary)


def _by_hand(situation: Situation, limits: Limits) -> Draft | None:
    """The tail the policy counts; else the longest within its share that starts at a user message.

    Where no group with one does, any group.
    """
    if len(situation.groups) < 2:
        return None
    if situation.policy.tail_messages or situation.policy.tail_ratio:
        return counted(situation, limits)
    whole = sum(message.tokens for message in situation.conversation.messages)
    most = int(min(_MANUAL_ROOM_SHARE * situation.room, _MANUAL_TAIL_SHARE * whole))
    every = list(drafts(situation, limits, must_keep(situation, with_task=True), start=1))
    short = [draft for draft in every if draft.tail_tokens <= most] or every[-1:]
    messages = situation.conversation.messages
    return next((draft for draft in short if messages[draft.cut].role == "user"), short[0])
