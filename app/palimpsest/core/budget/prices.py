"""What a token costs, and what a prompt costs by the upstream's counts. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import msgspec

# Prompt tokens served from a cache cost this share of uncached ones with most services (2026).
CACHED_SHARE = 0.1
# Output tokens cost four to five times as much as prompt tokens.
OUTPUT_SHARE = 4.0
# The bounds hold where prices are read from a document.
_Price = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


@dataclass(frozen=True, slots=True)
class Prices:
    """What one token costs, in any unit: only the ratios matter. All finite and at least 0.

    `input` is a prompt token not in a cache, `cached` one served from the cache, `written` one that is read
    and put into the cache (the price of `input` where that costs no more), `output` one that the model
    writes. A prompt of more than `step_tokens` costs more for each of its tokens; 0: of no size.
    """

    input: _Price = 1.0
    cached: _Price = CACHED_SHARE
    written: _Price = 1.0
    output: _Price = OUTPUT_SHARE
    step_tokens: Annotated[int, msgspec.Meta(ge=0, le=10**12)] = 0


def prices_of(
    input_price: float,
    output_price: float,
    cached: float | None = None,
    written: float | None = None,
    step_tokens: int = 0,
) -> Prices:
    """Prices of a model from what is known of it.

    Unknown is None: a tenth of the input price for `cached`, the input price for `written`. A model without a
    price (a local one) gets the default ratios: its work is its cost. Raises ValueError for a negative or
    infinite price.
    """
    every = (input_price, output_price, cached or 0.0, written or 0.0)
    if not all(math.isfinite(price) and price >= 0 for price in every):
        raise ValueError("a price is a finite number of at least 0")
    if input_price == 0:
        return Prices()
    return Prices(
        input=input_price,
        cached=CACHED_SHARE * input_price if cached is None else cached,
        written=input_price if written is None else written,
        output=output_price,
        step_tokens=step_tokens,
    )


def prompt_cost(prompt: int, cached: int, written: int, prices: Prices) -> float:
    """What a prompt costs, of which an upstream says that so much came from its cache, or was put into it.

    No more of either counts than the prompt has.
    """
    cached = min(cached, prompt)
    written = min(written, prompt - cached)
    plain = prompt - cached - written
    return plain * prices.input + cached * prices.cached + written * prices.written


def dollars_of(prompt: int, cached: int, written: int, completion: int, prices: Prices) -> float:
    """What so many tokens cost in dollars; of a prompt's as `prompt_cost` counts them."""
    return (prompt_cost(prompt, cached, written, prices) + completion * prices.output) / 1e6
