"""Room for what a model may look up: where it can, a prompt is compacted while there is some left.

Pure. Knows nothing of tools, nor of what they find.
"""

from __future__ import annotations

from dataclasses import replace

from app.core.budget.budget import Budget
from app.core.budget.estimate import judged_by

# A quote or two in the smallest windows in use; the rest is the conversation.
_SHARE = 0.15


def with_room(budget: Budget, wanted_tokens: int) -> Budget:
    """`budget` with its marks so low that a prompt below the trigger leaves `wanted_tokens` to the ceiling.

    Of what the fixed part leaves of the window at most 15 % is kept free so; the marks are lowered in
    proportion.
    """
    wanted = min(wanted_tokens, int(_SHARE * (budget.window_tokens - budget.fixed_tokens)))
    most = budget.ceiling_tokens - wanted
    return judged_by(budget, most, budget.trigger_tokens) if most < budget.trigger_tokens else budget


def planned_with(budget: Budget, tools_tokens: int) -> Budget:
    """`budget` for prompts without tools of ours, whose fixed part holds them as the next view will.

    Its marks are higher by their tokens, as far as the ceiling allows: the first compaction comes neither
    earlier nor later for them, and what it leaves has room for them.
    """
    most = budget.ceiling_tokens
    return replace(
        budget,
        trigger_tokens=min(most, budget.trigger_tokens + tools_tokens),
        precompute_tokens=min(most, budget.precompute_tokens + tools_tokens),
    )
