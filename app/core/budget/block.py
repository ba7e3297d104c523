"""How large a summary block gets: the model's part, and what is carried over by code.

Pure numbers. Knows nothing of messages, nor of where a cut falls.
"""

from __future__ import annotations

from app.core.budget.budget import Budget

# The block takes at most this share of the room for messages: the rest is task and tail.
_BLOCK_SHARE = 0.72
# ... and of what it stands for: a fold that frees next to nothing is no use to anybody (F12).
_REPLACED_SHARE = 0.6
# A block in records of a model: what binds and what was done is told behind it.
BLOCK_FACTOR = 3
# Nothing useful is said in less (A27), tokens.
LEAST_SUMMARY_TOKENS = 200


def block_tokens_for(budget: Budget, tokens: int) -> int:
    """Tokens a block may take that stands for `tokens` folded ones.

    The model's record (A12) and twice as much of what code knows exactly, together at most 72 % of the room
    for messages and 60 % of what they replace.
    """
    wanted = BLOCK_FACTOR * budget.summary_tokens
    room = max(1, budget.carry_tokens - budget.fixed_tokens)
    most = max(budget.summary_tokens, int(_BLOCK_SHARE * room))
    return max(1, min(wanted, most, max(int(_REPLACED_SHARE * tokens), LEAST_SUMMARY_TOKENS)))
