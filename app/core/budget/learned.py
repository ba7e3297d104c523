"""What may be believed of a window that an upstream named in an error, or that its counts suggest.

Pure. Knows nothing of requests, storage or clocks: times come in as numbers, in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

# llama.cpp's first default; no window in use is smaller, tokens.
LEAST_TOKENS = 512
# A refused prompt is larger than the window; counted by another tokenizer it may look half as large.
_SLACK = 2.0
# Two callers have met the same window when what they learned differs by no more than this share.
_ALIKE = 0.05
# A server is started anew with other settings, or a gateway's back end changes, within days; to learn a
# window again costs one refused request.
LIFE_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class LearnedTokens:
    """A window in the model's tokens: "overflow" from a refusal, "observed" from counts of what was cut."""

    tokens: int
    source: Literal["overflow", "observed"]
    at: float

    def is_fresh(self, now: float) -> bool:
        """False once it is too old to be believed."""
        return now - self.at < LIFE_SECONDS


def is_credible(tokens: int, needed: float, answered: int) -> bool:
    """True when a prompt that needed so many tokens, its answer included, may have exceeded this window.

    `answered` is the largest prompt that the model has answered, whoever sent it: no window is below it.
    """
    return tokens >= LEAST_TOKENS and tokens > answered and tokens <= _SLACK * needed


def confirmed(learned: Iterable[LearnedTokens]) -> LearnedTokens | None:
    """The window that two or more of these agree on, each another caller's; the largest of such."""
    ordered = sorted(learned, key=lambda one: one.tokens, reverse=True)
    for one, next_one in pairwise(ordered):
        if one.tokens - next_one.tokens <= _ALIKE * one.tokens:
            return one
    return None
