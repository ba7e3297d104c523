"""How an upstream model's own token counts correct ours: a ratio for text and one for tool schemas.

Pure: state in, state out. Knows nothing of requests, storage or which tokenizer counted. Which prompts may
teach a ratio is `app.core.budget.cut`'s to say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# No known tokenizer is further from o200k than this in either direction (Llama 2 on CJK: 2.5);
# beyond it the usage is not a count of this prompt (a cached part left out, a sum over calls).
MIN_RATIO = 0.4
MAX_RATIO = 3.0
# Below this many of our tokens a model's chat template outweighs the text.
_LEAST_TOKENS = 64
# A sample never weighs less than one in so many: a model that changes its tokenizer is followed.
_MEMORY = 8
# Once this many samples agree, one that is further off moves the ratio no further than this.
_TRUSTED = 2
_STEP = math.log(1.25)
# What is left for the fixed part may come out a little below nothing.
_LEAST_FIXED = -0.1
# A server that cuts the prompt to its window (Ollama) reports a round number that is too small.
_CUT_MULTIPLE = 1024
_CUT_RATIO = 0.9
# 1,000 x 1.1 is 1,100.
_ROUNDING = 1e-6


def as_theirs(tokens: int, ratio: float) -> int:
    """Tokens of our count as the model counts them, rounded up: what is above its window stays so."""
    return math.ceil(tokens * ratio - _ROUNDING)


def percent(tokens: int, window_tokens: int) -> float:
    """The share of a window, both in the model's tokens, to a tenth; 0.0 of none."""
    return round(100 * tokens / window_tokens, 1) if window_tokens else 0.0


@dataclass(frozen=True, slots=True)
class Measure:
    """`ratio` is the model's tokens for one of ours, learned from `samples` usages; 1.0 from none."""

    ratio: float = 1.0
    samples: int = 0


@dataclass(frozen=True, slots=True)
class Measures:
    """How a model counts `text`, and what is the same in every prompt (`fixed`): mostly tool schemas.

    Servers render schemas in many ways (as JSON, as TypeScript, not at all), whatever their tokenizer is.
    """

    text: Measure = Measure()
    fixed: Measure = Measure()

    @property
    def fixed_ratio(self) -> float:
        """The model's tokens for one of ours in the fixed part; as in text while nothing is known of it."""
        return self.fixed.ratio if self.fixed.samples else self.text.ratio

    @property
    def fixed_share(self) -> float:
        """Tokens of text, in our count, that one of ours in the fixed part is worth."""
        return self.fixed_ratio / self.text.ratio


@dataclass(frozen=True, slots=True)
class Usage:
    """One prompt counted twice: `ours` (whole prompt, tools included) and `theirs`."""

    ours: int
    theirs: int


def calibrated(measure: Measure, usage: Usage) -> Measure:
    """The measure after one more usage; the same measure when the usage is not believable.

    The first sample is taken whole, later ones by a running mean of logarithms over the newest
    eight or so; an outlier is bounded to a quarter. The ratio stays within 0.4 and 3.
    """
    if not _is_believable(measure, usage):
        return measure
    distance = math.log(usage.theirs / usage.ours) - math.log(measure.ratio)
    if measure.samples >= _TRUSTED:
        distance = max(-_STEP, min(_STEP, distance))
    weight = 1 / min(measure.samples + 1, _MEMORY)
    ratio = math.exp(math.log(measure.ratio) + weight * distance)
    return Measure(ratio=max(MIN_RATIO, min(MAX_RATIO, ratio)), samples=measure.samples + 1)


def averaged(measure: Measure, usage: Usage) -> Measure:
    """As `calibrated`, for the fixed part, which some servers leave out: the ratio may be 0."""
    sample = usage.theirs / usage.ours if usage.ours >= _LEAST_TOKENS else -1.0
    if not _LEAST_FIXED <= sample <= MAX_RATIO:
        return measure
    before = measure.ratio if measure.samples else max(0.0, sample)
    weight = 1 / min(measure.samples + 1, _MEMORY)
    return Measure(max(0.0, before + weight * (sample - before)), measure.samples + 1)


def _is_believable(measure: Measure, usage: Usage) -> bool:
    if usage.ours < _LEAST_TOKENS or usage.theirs <= 0:
        return False
    sample = usage.theirs / usage.ours
    is_cut = usage.theirs % _CUT_MULTIPLE == 0 and sample < _CUT_RATIO * measure.ratio
    return MIN_RATIO <= sample <= MAX_RATIO and not is_cut
