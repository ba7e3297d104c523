"""What a request costs: the prices of its model, and the one function that applies them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from palimpsest.core.wire.chat_answers import Usage

# What tokens cost with most services (2026), where an uncached prompt token costs 1.
USUAL: Mapping[str, Any] = {"input": 1.0, "cached": 0.1, "written": 1.0, "output": 4.0}


@dataclass(frozen=True, slots=True)
class Prices:
    """What a million tokens cost, in dollars or the currency of the settings. All finite and at least 0.

    `input` is a prompt token not in a cache, `cached` one served from the cache, `written` one that is read
    and put into the cache, `output` one that the model writes, `reasoning` one that it only thinks, None: as
    much. `request` is the price of one request. `steps`: a request with a prompt of more tokens than one of
    these numbers, ascending, costs those prices instead, for all of its tokens.
    """

    input: float
    cached: float
    written: float
    output: float
    reasoning: float | None = None
    request: float = 0.0
    steps: tuple[tuple[int, Prices], ...] = ()

    def at(self, prompt_tokens: int) -> Prices:
        """The prices of a request with a prompt of this size, cached tokens included."""
        found = self
        for above, prices in self.steps:
            if prompt_tokens > above:
                found = prices
        return found


def price(usage: Usage, prices: Prices) -> float | None:
    """What a request costs that used so much; None where the upstream did not state it.

    Of a prompt no more is cached, or put into the cache, than it has.
    """
    prompt, answer = usage.prompt_tokens, usage.completion_tokens
    if prompt is None or answer is None:
        return None
    of = prices.at(prompt)
    cached = min(usage.cached_tokens or 0, prompt)
    written = min(usage.written_tokens or 0, prompt - cached)
    thought = 0 if of.reasoning is None else min(usage.reasoning_tokens or 0, answer)
    return (
        (prompt - cached - written) * of.input
        + cached * of.cached
        + written * of.written
        + (answer - thought) * of.output
        + thought * (of.reasoning or 0.0)
    ) / 1e6 + of.request
