"""Texts and lines cut to a number of tokens."""

from __future__ import annotations

from collections.abc import Sequence

from palimpsest.core.summary.source import CountText
from palimpsest.core.text.message_text import cut_to

# Room in tokens below which a line is left out instead of cut.
_LEAST_CUT = 12
# Characters per token at which the search for a cut begins.
_MOST_CHARS_PER_TOKEN = 6


def clipped(text: str, tokens: int, count_text: CountText) -> str:
    """`text` in at most `tokens`, by head and tail (A20); "" when there is no room."""
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
    """The newest lines that fit into `tokens`, in order; the oldest of them may be cut."""
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
