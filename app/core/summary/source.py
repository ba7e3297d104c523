"""What a summary is made of and how big it may be: plain values for the rest of this folder.

Knows nothing of how the text is made, nor of stores, models or windows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.core.budget.budget import Budget
from app.core.history.message import Message
from app.core.view.policy import Policy

# Of a block, at most.
_WORDING_SHARE = 0.62

CountText = Callable[[str], int]
"""Tokens of a text in the encoding the budget is in; "" counts 0."""


@dataclass(frozen=True, slots=True)
class SummarySource:
    """What the new block stands for.

    `folded`: every message the new watermark covers, oldest first, with its chain digest, except
    those that stay verbatim. `folded[:since]` stand in `previous` already (the whole text of the
    current block, "" for the first compaction). `newest_request` is the text of the newest user message of
    the conversation, folded or not. `tail` are the messages after the watermark. `instructions` and `task`
    are texts that stay in every view. `is_running`: the newest user message stands after the block, and what
    is folded was done for it. `state` is what the style of the current compaction wants to know again, in its
    own form; b"" for the first compaction or after another style. `search_tool` is the tool with which the
    block's reader finds what is folded; "" where it has none. `is_anew`: `folded[since:]` are to be read
    again, and `previous` stands only for those before them.
    """

    folded: tuple[tuple[bytes, Message], ...]
    since: int = 0
    previous: str = ""
    newest_request: str = ""
    tail: tuple[Message, ...] = ()
    state: bytes = b""
    instructions: str = ""
    task: str = ""
    is_running: bool = False
    search_tool: str = ""
    is_anew: bool = False

    @property
    def fresh(self) -> tuple[tuple[bytes, Message], ...]:
        """The messages to be read: those no summary has seen yet, unless the record is written anew."""
        return self.folded[self.since :]


@dataclass(frozen=True, slots=True)
class SummaryBudget:
    """Bounds in tokens: the whole block, and within it user wording and identifiers."""

    tokens: int
    user_tokens: int
    identifier_tokens: int


def summary_budget(policy: Policy, block_tokens: int, budget: Budget) -> SummaryBudget:
    """The budget of a block of at most `block_tokens`: the user's words (A16), identifiers (idea 7).

    The shares never take more than the block can hold: 62 % of it for wording, a third for
    identifiers; what one leaves unused the other parts get.
    """
    user = min(budget.wording_tokens, int(_WORDING_SHARE * block_tokens))
    identifiers = min(int(policy.identifier_share * budget.carry_tokens), block_tokens // 3)
    return SummaryBudget(block_tokens, max(0, user), max(0, identifiers))


def recall_id(chain: bytes) -> str:
    """The id under which the archive gives a message back: "dcm_" and 32 hex digits of its chain."""
    return "dcm_" + chain.hex()[:32]
