"""What an upstream's token counts tell: how to correct ours, silent truncation, and what a request costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from palimpsest.core.wire.chat_answers import Usage

# No known tokenizer differs more from o200k in either direction (Llama 2 on CJK: 2.5). Outside these bounds
# the usage is not a count of this prompt (a cached part left out, a sum over calls).
MIN_RATIO = 0.4
MAX_RATIO = 3.0
# Below this many of our tokens a model's chat template outweighs the text.
_LEAST_TOKENS = 64
# A sample weighs at least one in this many, so that a change of tokenizer is learned.
_MEMORY = 8
# From this many samples on, one sample moves the ratio by at most this step.
_TRUSTED = 2
_STEP = math.log(1.25)
# The remainder for the fixed part may be slightly negative.
_LEAST_FIXED = -0.1
# A server that truncates the prompt to its window (Ollama) reports a round number that is too small.
_CUT_MULTIPLE = 1024
_CUT_RATIO = 0.9
# So that 1,000 x 1.1 is 1,100.
_ROUNDING = 1e-6


def as_theirs(tokens: int, ratio: float) -> int:
    """Tokens of our count as the model counts them, rounded up: what exceeds its window still does."""
    return math.ceil(tokens * ratio - _ROUNDING)


def percent(tokens: int, window_tokens: int) -> float:
    """The share of a window in percent, both in the model's tokens, to one decimal; 0.0 without a window."""
    return round(100 * tokens / window_tokens, 1) if window_tokens else 0.0


@dataclass(frozen=True, slots=True)
class Measure:
    """`ratio` is the model's tokens for one of ours, learned from `samples` usages; 1.0 without any."""

    ratio: float = 1.0
    samples: int = 0


@dataclass(frozen=True, slots=True)
class Measures:
    """How a model counts `text`, and what is equal in every prompt (`fixed`): mostly tool schemas.

    Servers render schemas in many ways (as JSON, as TypeScript, not at all), independent of their tokenizer.
    """

    text: Measure = Measure()
    fixed: Measure = Measure()

    @property
    def fixed_ratio(self) -> float:
        """The model's tokens for one of ours in the fixed part; that of text while there is no sample."""
        return self.fixed.ratio if self.fixed.samples else self.text.ratio

    @property
    def fixed_share(self) -> float:
        """Tokens of text, in our count, that equal one token of ours in the fixed part."""
        return self.fixed_ratio / self.text.ratio


def calibrated(measure: Measure, ours: int, theirs: int) -> Measure:
    """The measure after one more prompt, counted twice; the same measure when that is not believable.

    The first sample is taken whole, later ones by a running mean of logarithms over about the newest eight.
    From the third on a sample counts as at most 25 % off the mean. The ratio stays within 0.4 and 3.
    """
    if ours < _LEAST_TOKENS or theirs <= 0:
        return measure
    sample = theirs / ours
    is_cut = theirs % _CUT_MULTIPLE == 0 and sample < _CUT_RATIO * measure.ratio
    if is_cut or not MIN_RATIO <= sample <= MAX_RATIO:
        return measure
    distance = math.log(sample) - math.log(measure.ratio)
    if measure.samples >= _TRUSTED:
        distance = max(-_STEP, min(_STEP, distance))
    weight = 1 / min(measure.samples + 1, _MEMORY)
    ratio = math.exp(math.log(measure.ratio) + weight * distance)
    return Measure(ratio=max(MIN_RATIO, min(MAX_RATIO, ratio)), samples=measure.samples + 1)


def averaged(measure: Measure, ours: int, theirs: int) -> Measure:
    """As `calibrated`, for the fixed part, which some servers leave out: the ratio may be 0."""
    sample = theirs / ours if ours >= _LEAST_TOKENS else -1.0
    if not _LEAST_FIXED <= sample <= MAX_RATIO:
        return measure
    before = measure.ratio if measure.samples else max(0.0, sample)
    weight = 1 / min(measure.samples + 1, _MEMORY)
    return Measure(max(0.0, before + weight * (sample - before)), measure.samples + 1)


# No server truncates fewer tokens: the smallest windows in use hold 2,048.
LEAST_TOKENS = 1_000
# No tokenizer in use counts below this share of o200k once the model's own ratio is applied.
_SHARE = 0.6
# A server that leaves out the cached part (older Ollama) reports a small remainder. One that truncates
# reports nearly its window: at least this share of the largest prompt that it has counted.
_OF_MOST = 0.5
# Truncation: the prompt grew by at least this share and these tokens, and the upstream's count by less than
# a fifth of that.
_GROWTH = 0.1
_GROWTH_TOKENS = 200
_FOLLOWS = 0.2
# From this many samples on, a ratio is reliable enough to judge others by it.
_KNOWN = 2
# Windows are multiples of this; the count of a truncated prompt is below one.
_MULTIPLE = 1_024
# Two counts of truncated prompts indicate one window when they differ by no more than this share.
_ALIKE = 0.25


@dataclass(frozen=True, slots=True)
class Counted:
    """One prompt in tokens: `ours` of its text, the upstream's count `theirs`, of which `cached` were cached.

    `fixed` are ours of what is not text, before any calibration: mainly tool schemas.
    """

    ours: int
    theirs: int
    cached: int = 0
    fixed: int = 0

    def continues(self, before: Counted) -> bool:
        """True when it continues the other prompt and is enough longer for their counts to be compared."""
        least = max(_GROWTH_TOKENS, _GROWTH * before.ours)
        return self.fixed == before.fixed and self.ours - before.ours >= least

    def replaces(self, before: Counted) -> bool:
        """False for a prompt that has grown too little: the next one is compared with `before` again.

        Otherwise a conversation that grows slowly past a window would never be seen to stop growing.
        """
        return self.ours < before.ours or self.fixed != before.fixed or self.continues(before)


@dataclass(frozen=True, slots=True)
class PromptGrowth:
    """A conversation's last prompt, which the next is compared with, and the one it was compared with."""

    last: Counted
    before: Counted | None = None

    def after(self, now: Counted) -> PromptGrowth:
        """What the next prompt is compared with."""
        if not now.replaces(self.last):
            return self
        return PromptGrowth(now, self.last if now.continues(self.last) else None)


def is_cut(now: Counted, before: Counted | None, most: int, measures: Measures) -> bool:
    """True when the upstream counted so much less than was sent that it cannot have read all of it.

    `before` is the conversation's last counted prompt, `most` the model's largest count, `measures` how the
    model counts relative to us. The prompt must contain no images: their tokens are an estimate. The fixed
    part counts only as far as it is known to be rendered: some models ignore tools.
    """
    fixed = now.fixed * measures.fixed.ratio if measures.fixed.samples else 0.0
    expected = now.ours * measures.text.ratio + fixed
    if min(now.ours + now.fixed, now.theirs) < LEAST_TOKENS or now.theirs + now.cached >= expected:
        return False
    if now.theirs < _SHARE * expected:
        return now.theirs >= _OF_MOST * most
    if before is None or not now.continues(before):
        return False
    # It stands still.
    return now.theirs - before.theirs < _FOLLOWS * (now.ours - before.ours) * measures.text.ratio


def window_of(now: Counted, before: Counted | None) -> int | None:
    """The window in the upstream's tokens that two truncated prompts suggest; None when they disagree."""
    if before is None or abs(now.theirs - before.theirs) > _ALIKE * max(now.theirs, before.theirs):
        return None
    most = max(now.theirs, before.theirs)
    return -(-most // _MULTIPLE) * _MULTIPLE


def taught(measures: Measures, now: Counted, growth: PromptGrowth | None) -> Measures:
    """The measures after one more answered prompt of a conversation that does not look truncated.

    Only what truncation cannot cause is learned from: a prompt too small for any window; how much the count
    grew with the conversation, once it has continued to grow so; and a count above what was expected. The
    count of a whole prompt corrects the larger of its two parts, text and fixed, less the other's share.
    """
    if max(now.ours + now.fixed, now.theirs + now.cached) < LEAST_TOKENS:
        return _taught_by_all(measures, now)
    if growth is not None and now.continues(growth.last):
        last, before = growth.last, growth.before
        # Otherwise it has reached a window, perhaps already during the previous growth.
        if before is None:
            return measures
        for earlier, later in ((before, last), (last, now)):
            # As that of a tokenizer that reads the whole prompt.
            ratio, sample = measures.text.ratio, (later.theirs - earlier.theirs) / (later.ours - earlier.ours)
            is_new = measures.text.samples < _KNOWN and _SHARE <= sample <= MAX_RATIO
            if not (_SHARE * ratio <= sample <= ratio / _SHARE or is_new):
                return measures
        grown = last.ours - before.ours, last.theirs - before.theirs
        after = Measures(calibrated(measures.text, *grown), measures.fixed)
        return _taught_by_all(after, last) if last.fixed >= last.ours else after
    is_first = growth is None or now.replaces(growth.last)
    expected = now.ours * measures.text.ratio + now.fixed * measures.fixed_ratio
    return _taught_by_all(measures, now) if is_first and now.theirs >= expected else measures


def _taught_by_all(measures: Measures, now: Counted) -> Measures:
    text, fixed = measures.text, measures.fixed
    if now.fixed > now.ours:
        return Measures(text, averaged(fixed, now.fixed, round(now.theirs - now.ours * text.ratio)))
    if not fixed.samples:
        return Measures(calibrated(text, now.ours + now.fixed, now.theirs), fixed)
    return Measures(calibrated(text, now.ours, round(now.theirs - now.fixed * fixed.ratio)), fixed)


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
