"""What can be done for a while without a summary: tool results shortened, and nothing folded (F04).

Pure. Knows nothing of why no summary is wanted.
"""

from __future__ import annotations

from app.core.budget.budget import Budget
from app.core.history.conversation import Conversation
from app.core.view.compaction import Compaction, Trigger
from app.core.view.outcomes import MaskOnly, Send
from app.core.view.planning.limits import older, oversized
from app.core.view.planning.situation import masks_of, situation_of
from app.core.view.planning.steps import reason_of
from app.core.view.policy import Policy
from app.core.view.view import CountText


def plan_masks(
    conversation: Conversation,
    current: Compaction | None,
    budget: Budget,
    pins: frozenset[bytes],
    policy: Policy,
    count_text: CountText,
) -> MaskOnly | Send:
    """Masks that bring the prompt below the trigger by the least gain; Send where they cannot.

    As many as come to the target, so that the next ones are not due at once.
    """
    situation = situation_of(conversation, current, budget, pins, policy, count_text)
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
