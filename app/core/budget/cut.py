"""Whether an upstream cut a prompt without a word, as its own count tells (Ollama: a 200, less usage).

Pure: two counts of one prompt in, a verdict out. Knows nothing of requests, windows or who is told.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.core.budget.calibration import Measure

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
# Windows are multiples of this; what is counted after a cut lies below one.
_MULTIPLE = 1_024
# Two counts after cuts are of one window when they differ by no more than this share.
_ALIKE = 0.25


@dataclass(frozen=True, slots=True)
class Counted:
    """One prompt, tokens: `ours`, the upstream's `theirs`, and how many of those it had cached."""

    ours: int
    theirs: int
    cached: int = 0


def is_cut(now: Counted, before: Counted | None, most: int, measure: Measure) -> bool:
    """True when the upstream counted so much less than was sent that it cannot have read all of it.

    `before` is the conversation's last prompt that was counted, `most` the largest count of the model's,
    `measure` how it counts against us. Pictures must not be among what was sent: their price is a guess.
    """
    expected = now.ours * measure.ratio
    if min(now.ours, now.theirs) < LEAST_TOKENS or now.theirs + now.cached >= expected:
        return False
    if now.theirs < _SHARE * expected:
        return now.theirs >= _OF_MOST * most
    return before is not None and _stands_still(now, before, measure)


def window_of(now: Counted, before: Counted | None) -> int | None:
    """The window that two cut prompts in a row suggest, in the upstream's tokens; None when they disagree."""
    if before is None or abs(now.theirs - before.theirs) > _ALIKE * max(now.theirs, before.theirs):
        return None
    most = max(now.theirs, before.theirs)
    return -(-most // _MULTIPLE) * _MULTIPLE


def _stands_still(now: Counted, before: Counted, measure: Measure) -> bool:
    grown = now.ours - before.ours
    if grown < max(_GROWTH_TOKENS, _GROWTH * before.ours):
        return False
    return now.theirs - before.theirs < _FOLLOWS * grown * measure.ratio
