"""Texts and lines in as many tokens as there are.

Knows nothing of what they say.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.core.summary.source import CountText
from app.core.text.wording import cut_to

# A line is not cut to less than this (tokens).
_LEAST_CUT = 12
# Where a search for a cut begins.
_MOST_CHARS_PER_TOKEN = 6


def clipped(text: str, tokens: int, count_text: CountText) -> str:
    """`text` in at most `tokens`, head and tail of it (A20); "" when there is no room."""
    if count_text(text) <= tokens:
        return text
    chars = min(len(text), max(0, tokens) * _MOST_CHARS_PER_TOKEN)
    while chars > len(" ..."):
        cut = cut_to(text, chars)
        if count_text(cut) <= tokens:
            return cut
        chars = chars * 4 // 5
    return ""


def lines_within(lines: Sequence[str], tokens: int, count_text: CountText) -> list[str]:
    """The newest lines that `tokens` pay for, in order; the one at the edge is cut when enough remains."""
    kept: list[str] = []
    for line in reversed(lines):
        cost = count_text(line) + 1
        if cost > tokens:
            cut = clipped(line, tokens - 1, count_text) if tokens > _LEAST_CUT else ""
            kept += [cut] if cut else []
            break
        kept.append(line)
        tokens -= cost
    return kept[::-1]
