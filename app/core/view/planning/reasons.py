"""Why a compaction is made, for a person: the numbers that decided, all of them the model's own (E11).

Pure. Knows nothing of what is folded.
"""

from __future__ import annotations

from app.core.budget.budget import Budget
from app.core.view.compaction import Trigger
from app.core.view.policy import Policy


def why(total: int, unfolded: int, budget: Budget, policy: Policy, trigger: Trigger) -> str:
    """Such as "115,340 tokens of 128,000 (0.90 asked)", or "24 messages (24 asked)" (A14).

    `total` is the whole prompt in our count, `unfolded` how many messages no summary stands for.
    """
    size = f"{budget.for_model(total):,} tokens of {budget.window.tokens:,}"
    if trigger == "manual":
        return f"asked for by hand at {size}"
    if trigger == "overflow":
        return f"the upstream refused {size}"
    most = policy.trigger_messages
    if 0 < most <= unfolded and total < budget.trigger_tokens:
        return f"{unfolded} messages ({most} asked)"
    if budget.idle_seconds:
        return f"{size}, cache cold for {budget.idle_seconds:,} s"
    return f"{size} ({budget.asked})"


def what_it_saves(before: int, after: int) -> str:
    """What a fold saves at a moment at which the whole prompt is read anew, in the model's tokens."""
    return f": folding now saves reading {before - after:,} of them anew"
