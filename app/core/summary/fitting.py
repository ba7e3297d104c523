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


def lines_within(lines: Sequence[str], tokens: int, count_text: CountText, head_share: float) -> list[str]:
    """The lines that `tokens` pay for: first ones up to `head_share` of them, then the newest, in order.

    The line at the edge is cut when enough of it would remain.
    """
    if sum(count_text(line) + 1 for line in lines) <= tokens:
        return list(lines)
    head, used = _taken(lines, int(tokens * head_share), count_text) if head_share else ([], 0)
    tail, _ = _taken(lines[len(head) :][::-1], tokens - used, count_text)
    return [line for line in (*head, *tail[::-1]) if line]


def _taken(lines: Sequence[str], tokens: int, count_text: CountText) -> tuple[list[str], int]:
    """Leading lines within `tokens`, the last one cut, and what they cost."""
    taken: list[str] = []
    used = 0
    for line in lines:
        cost = count_text(line) + 1
        if used + cost > tokens:
            left = tokens - used - 1
            cut = clipped(line, left, count_text) if left >= _LEAST_CUT else ""
            return ([*taken, cut], used + count_text(cut) + 1) if cut else (taken, used)
        taken.append(line)
        used += cost
    return taken, used
