"""How an upstream model's own token counts correct ours: one ratio per model, learned from its usage.

Pure: state in, state out. Knows nothing of requests, storage or which tokenizer counted.
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
# A server that cuts the prompt to its window (Ollama) reports a round number that is too small.
_CUT_MULTIPLE = 1024
_CUT_RATIO = 0.9


@dataclass(frozen=True, slots=True)
class Measure:
    """`ratio` is the model's tokens for one of ours, learned from `samples` usages; 1.0 from none."""

    ratio: float = 1.0
    samples: int = 0


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


def _is_believable(measure: Measure, usage: Usage) -> bool:
    if usage.ours < _LEAST_TOKENS or usage.theirs <= 0:
        return False
    sample = usage.theirs / usage.ours
    is_cut = usage.theirs % _CUT_MULTIPLE == 0 and sample < _CUT_RATIO * measure.ratio
    return MIN_RATIO <= sample <= MAX_RATIO and not is_cut
