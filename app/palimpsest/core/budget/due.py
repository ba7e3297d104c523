"""When a conversation is compacted. Nothing else decides this.

To add another kind of mark, add a number to `core/policy.py` and a line to `count_reached`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from palimpsest.core.budget.budget import Budget
from palimpsest.core.history.message import Message
from palimpsest.core.policy import Policy

Due: TypeAlias = Literal["later", "soon", "now"]


def due(tokens: int, unfolded: Sequence[Message], budget: Budget, policy: Policy) -> Due:
    """When a prompt of `tokens` is compacted; no summary covers the messages `unfolded`.

    "now": at the trigger, of tokens (A02) or of a count (A14), but with fewer messages than the policy's
    least only at the ceiling (D13). "soon": at the mark where a summary is prepared in the background (B03).
    "later": neither; nothing further needs to be checked. All counts are ours.
    """
    is_long = tokens >= budget.trigger_tokens or count_reached(unfolded, policy) is not None
    if is_long and (len(unfolded) >= policy.min_messages or tokens >= budget.ceiling_tokens):
        return "now"
    return "soon" if tokens >= budget.precompute_tokens else "later"


def count_reached(unfolded: Sequence[Message], policy: Policy) -> str | None:
    """The count that triggers a compaction whatever the tokens (A14), as text for people, or None.

    For example "24 messages (24 asked)". The counts are those of `Policy.folds_by_count`.
    """
    if 0 < policy.trigger_messages <= len(unfolded):
        return f"{len(unfolded)} messages ({policy.trigger_messages} asked)"
    return None
