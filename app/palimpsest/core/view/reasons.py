"""Why a compaction is made, for people: the figures that decided, in the model's own count (E11)."""

from __future__ import annotations

from collections.abc import Sequence

from palimpsest.core.budget.budget import Budget, count_reached
from palimpsest.core.history.message import Message
from palimpsest.core.policy import Policy
from palimpsest.core.view.compaction import Trigger


def why(total: int, unfolded: Sequence[Message], budget: Budget, policy: Policy, trigger: Trigger) -> str:
    """For example "115,340 tokens of 128,000 (0.90 asked)", or "24 messages (24 asked)" (A14).

    `total` is the whole prompt in our count; no summary covers the messages `unfolded`.
    """
    size = f"{budget.for_model(total):,} tokens of {budget.window.tokens:,}"
    if trigger == "manual":
        return f"asked for by hand at {size}"
    if trigger == "overflow":
        return f"the upstream refused {size}"
    if total < budget.trigger_tokens and (counted := count_reached(unfolded, policy)) is not None:
        return counted
    return f"{size} ({budget.asked})"
