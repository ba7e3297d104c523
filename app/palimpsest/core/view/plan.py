"""What a request needs before it is sent: nothing, shorter tool results, a fold, or a refusal.

Start with `plan_of`. A plan states what to do; the caller does it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from palimpsest.core.budget.budget import Budget, overflow_target
from palimpsest.core.history.message import Conversation, Message
from palimpsest.core.policy import Policy
from palimpsest.core.view.compaction import Compaction, Trigger
from palimpsest.core.view.fold import FoldDraft, counted, drafts, fold_to, with_newest
from palimpsest.core.view.limits import oversized
from palimpsest.core.view.outcomes import Fold, MaskOnly, Plan, Refuse, Send
from palimpsest.core.view.plan_input import PlanInput, ResultLimits, must_keep, plan_input_of
from palimpsest.core.view.steps import (
    Goal,
    by_masks,
    by_messages,
    compacted,
    expected_after,
    fold_of,
    refused,
)
from palimpsest.core.view.view import CountText, cut_in
from palimpsest.core.wire.compaction_items import is_ours

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


def plan_of(
    conversation: Conversation,
    current: Compaction | None,
    budget: Budget,
    pins: frozenset[bytes],
    policy: Policy,
    count_text: CountText,
) -> Plan:
    """What to do with a request; `current` is the compaction that applies, `pins` are chain digests.

    Below the precompute mark: send. Below the trigger: send, and where masks are not enough, prepare a
    summary in the background, with a tail that leaves room for what is added before the trigger. Due only by
    its number of messages (A14): fold to the counted tail, or send.

    At or above the trigger (A02), in this order (A07): masks, if they alone reach the target; a fold to the
    target; a fold or masks that stay above it but free at least the least gain (F12). Above the ceiling:
    results of the newest group are shortened as far as needed (F33), and the original task is given up last.
    What still exceeds a known window is refused (rule 18). With a guessed window, or where nothing is gained,
    the view is sent as it is. Planning again after carrying out a plan sends.
    """
    situation = plan_input_of(conversation, current, budget, pins, policy, count_text)
    if situation.due != "now":
        is_ahead = situation.due == "soon" and policy.in_background and not policy.only_thins
        return Send(situation.view, _background(situation) if is_ahead else None)
    trigger: Trigger = "proactive" if situation.total < budget.window_tokens else "reactive"
    goal = Goal(budget.target_tokens, budget.ceiling_tokens, trigger, budget.most_after_tokens)
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
    """What to do after the upstream refused the prompt as too long (A29).

    The target is `overflow_target`. Each repeated call has a lower target, as the compaction it planned is
    `current` by then. Refuse when nothing is left that would make the prompt smaller.
    """
    situation = plan_input_of(conversation, current, budget, pins, policy, count_text)
    fixed, sent = budget.fixed_tokens, situation.total - budget.fixed_tokens
    goal = Goal(
        target=overflow_target(budget, situation.total, policy),
        limit=min(budget.ceiling_tokens, fixed + int(_OVERFLOW_LIMIT_SHARE * sent)),
        trigger="overflow",
        most=_most_after_overflow(situation, sent),
    )
    plan = compacted(situation, oversized(situation), goal)
    if isinstance(plan, Send):
        return refused(situation, "Nothing is left that compaction could fold.")
    return plan


def plan_for_answer(
    conversation: Conversation,
    current: Compaction | None,
    budget: Budget,
    pins: frozenset[bytes],
    policy: Policy,
    count_text: CountText,
) -> Plan:
    """What to do after the upstream refused only the sum of prompt and `max_tokens` (rule 40).

    `budget` has the ceiling of prompts that the upstream takes, and the target of `answer_target`.
    """
    situation = plan_input_of(conversation, current, budget, pins, policy, count_text)
    goal = Goal(budget.target_tokens, budget.ceiling_tokens, "overflow", budget.ceiling_tokens)
    return compacted(situation, oversized(situation), goal)


def plan_manual(
    conversation: Conversation,
    current: Compaction | None,
    budget: Budget,
    pins: frozenset[bytes],
    policy: Policy,
    count_text: CountText,
) -> Fold | Send:
    """What to do when a user requests a compaction (D25): a Fold, or Send for "nothing to do".

    The cut depends on the conversation alone, so that a second request without new messages finds nothing to
    do (F35).
    """
    situation = plan_input_of(conversation, current, budget, pins, policy, count_text)
    limits = oversized(situation)
    draft = _by_hand(situation, limits)
    # Once something is folded, a fold that frees less would only break the prefix (F12).
    least = budget.gain_tokens if situation.current else 1
    if draft is None or situation.total - expected_after(situation, draft) < least:
        return Send(situation.view)
    folded = [index for index in range(situation.since, draft.cut) if index not in draft.kept]
    if len(folded) < _MANUAL_MESSAGES or sum(limits.sizes[index] for index in folded) < _MANUAL_TOKENS:
        return Send(situation.view)
    return fold_of(situation, draft, Goal(budget.target_tokens, budget.ceiling_tokens, "manual"))


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


def _most_after_overflow(situation: PlanInput, sent: int) -> int:
    """The most tokens that keeping the newest exchanges may lead to; 0 where the true window is unknown."""
    budget = situation.budget
    if not budget.window.is_known:
        return 0
    return min(budget.most_after_tokens, budget.fixed_tokens + int(_OVERFLOW_NEWEST_SHARE * sent))


def _background(situation: PlanInput) -> Fold | None:
    """The fold to prepare: its view leaves room for what is added before the trigger."""
    budget = situation.budget
    growth = budget.trigger_tokens - situation.total
    limits = oversized(situation)
    # Room for what is added before the trigger, as far as messages keep a third of theirs.
    target = max(budget.fixed_tokens + int(_LEAST_TAIL_SHARE * situation.room), budget.target_tokens - growth)
    goal = Goal(target, budget.ceiling_tokens, "background", budget.most_after_tokens - growth)
    if by_masks(situation, limits, goal) is not None:
        return None
    draft = counted(situation, limits) or fold_to(situation, limits, goal.target)
    if draft is None or situation.total - draft.total < situation.min_gain:
        return None
    # When the fold comes into force, the view has reached the budget's target.
    kept = with_newest(situation, draft, target=goal.target, most=goal.most)
    draft = kept if situation.total - kept.total >= situation.min_gain else draft
    return fold_of(situation, draft, replace(goal, target=budget.target_tokens))


def _by_hand(situation: PlanInput, limits: ResultLimits) -> FoldDraft | None:
    """The tail that the policy counts; else the longest within its share that starts at a user message.

    Where none starts at one, the longest within its share.
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
