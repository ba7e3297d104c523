"""Whether an upstream cut a prompt without a word, as its own count tells (Ollama: a 200, less usage); and
what the count of a prompt that was not cut teaches of how the model counts.

Pure: two counts of one prompt in, a verdict out. Knows nothing of requests, windows or who is told.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.core.budget.calibration import (
    MAX_RATIO,
    Measure,
    Measures,
    Usage,
    averaged,
    calibrated,
)

# Below this many tokens no server cuts: the smallest windows in use hold 2,048.
LEAST_TOKENS = 1_000
# No tokenizer in use counts below this share of o200k, with what the model's own ratio says applied.
_SHARE = 0.6
# A server that leaves the cached part out of its count (older Ollama) reports a small rest; one that cuts
# reports nearly its window: at least this share of the largest prompt that it was seen to count.
_OF_MOST = 0.5
# The prompt grew by so much, in share and in tokens, and the upstream's count by less than a fifth of it.
_GROWTH = 0.1
_GROWTH_TOKENS = 200
_FOLLOWS = 0.2
# So many samples make a ratio that others can be held against.
_KNOWN = 2
# Windows are multiples of this; what is counted after a cut lies below one.
_MULTIPLE = 1_024
# Two counts after cuts are of one window when they differ by no more than this share.
_ALIKE = 0.25


@dataclass(frozen=True, slots=True)
class Counted:
    """One prompt, tokens: `ours` of its text, the upstream's `theirs`, and how many of those it had cached.

    `fixed` are ours of what is no text, before any calibration: tool schemas above all.
    """

    ours: int
    theirs: int
    cached: int = 0
    fixed: int = 0

    def goes_on_from(self, before: Counted) -> bool:
        """True when it is the other prompt and so much more that their counts can be compared."""
        least = max(_GROWTH_TOKENS, _GROWTH * before.ours)
        return self.fixed == before.fixed and self.ours - before.ours >= least

    def replaces(self, before: Counted) -> bool:
        """False for a prompt that has grown too little: the next is compared with `before` again.

        Else a conversation that grows slowly past a window would never be seen to stand still.
        """
        return self.ours < before.ours or self.fixed != before.fixed or self.goes_on_from(before)


@dataclass(frozen=True, slots=True)
class Growth:
    """A conversation's last prompt that others are compared with, and the one that it was compared with."""

    last: Counted
    before: Counted | None = None

    def after(self, now: Counted) -> Growth:
        """What the next prompt is compared with."""
        if not now.replaces(self.last):
            return self
        return Growth(now, self.last if now.goes_on_from(self.last) else None)


def is_cut(now: Counted, before: Counted | None, most: int, measures: Measures) -> bool:
    """True when the upstream counted so much less than was sent that it cannot have read all of it.

    `before` is the conversation's last prompt that was counted, `most` the largest count of the model's,
    `measures` how it counts against us. Pictures must not be among what was sent: their price is a guess.
    Of the fixed part only what is known to be rendered counts: some models have no place for tools.
    """
    fixed = now.fixed * measures.fixed.ratio if measures.fixed.samples else 0.0
    expected = now.ours * measures.text.ratio + fixed
    if min(now.ours + now.fixed, now.theirs) < LEAST_TOKENS or now.theirs + now.cached >= expected:
        return False
    if now.theirs < _SHARE * expected:
        return now.theirs >= _OF_MOST * most
    return before is not None and _stands_still(now, before, measures.text)


def window_of(now: Counted, before: Counted | None) -> int | None:
    """The window that two cut prompts in a row suggest, in the upstream's tokens; None when they disagree."""
    if before is None or abs(now.theirs - before.theirs) > _ALIKE * max(now.theirs, before.theirs):
        return None
    most = max(now.theirs, before.theirs)
    return -(-most // _MULTIPLE) * _MULTIPLE


def taught(measures: Measures, now: Counted, growth: Growth | None) -> Measures:
    """The measures after one more prompt of a conversation that was answered and does not look cut.

    A prompt teaches only what a cut cannot have made: a prompt too small for any window; how much the count
    grew with the conversation, once it has gone on growing so; and a count above what was expected. The count
    of a whole prompt teaches the larger of its two parts, text and fixed, less the other's share.
    """
    if max(now.ours + now.fixed, now.theirs + now.cached) < LEAST_TOKENS:
        return _taught_by_all(measures, now)
    if growth is not None and now.goes_on_from(growth.last):
        last, before = growth.last, growth.before
        if before is None or not _follows(_grown(before, last), measures.text):
            return measures
        if not _follows(_grown(last, now), measures.text):
            # It has reached a window, perhaps in the middle of the growth before.
            return measures
        after = Measures(calibrated(measures.text, _grown(before, last)), measures.fixed)
        return _taught_by_all(after, last) if last.fixed >= last.ours else after
    is_first = growth is None or now.replaces(growth.last)
    expected = now.ours * measures.text.ratio + now.fixed * measures.fixed_ratio
    return _taught_by_all(measures, now) if is_first and now.theirs >= expected else measures


def _taught_by_all(measures: Measures, now: Counted) -> Measures:
    if now.fixed > now.ours:
        rest = round(now.theirs - now.ours * measures.text.ratio)
        return Measures(measures.text, averaged(measures.fixed, Usage(now.fixed, rest)))
    if not measures.fixed.samples:
        return Measures(calibrated(measures.text, Usage(now.ours + now.fixed, now.theirs)), measures.fixed)
    rest = round(now.theirs - now.fixed * measures.fixed.ratio)
    return Measures(calibrated(measures.text, Usage(now.ours, rest)), measures.fixed)


def _grown(before: Counted, now: Counted) -> Usage:
    return Usage(now.ours - before.ours, now.theirs - before.theirs)


def _follows(grown: Usage, measure: Measure) -> bool:
    """True when the upstream's count grew as a tokenizer's would that reads all of it."""
    sample = grown.theirs / grown.ours
    return _SHARE * measure.ratio <= sample <= measure.ratio / _SHARE or (
        measure.samples < _KNOWN and _SHARE <= sample <= MAX_RATIO
    )


def _stands_still(now: Counted, before: Counted, measure: Measure) -> bool:
    if not now.goes_on_from(before):
        return False
    return now.theirs - before.theirs < _FOLLOWS * (now.ours - before.ours) * measure.ratio
