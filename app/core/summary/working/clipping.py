"""Texts cut to size without cutting a word: a path or an id is there whole or not at all.

Knows nothing of what the texts are.
"""

from __future__ import annotations

import re

_MARK = " ..."
_HEAD_SHARE = 0.7
# White space is looked for in this share of a cut; text without any (Chinese, data) is cut hard.
_SEARCHED_SHARE = 0.5
_BLANK = re.compile(r"\s")


def clipped(text: str, limit_chars: int) -> str:
    """The beginning of `text`, marked when it is not all, in at most `limit_chars` characters."""
    if len(text) <= limit_chars:
        return text
    if limit_chars <= len(_MARK):
        return ""
    return _head(text, limit_chars - len(_MARK)) + _MARK


def clipped_middle(text: str, limit_chars: int) -> str:
    """`text` in at most `limit_chars` characters: 70 % head, a marker, 30 % tail (A20)."""
    if len(text) <= limit_chars:
        return text
    marker = f"\n[... {len(text) - limit_chars} or more characters left out ...]\n"
    room = limit_chars - len(marker)
    if room < limit_chars // 2:
        return clipped(text, limit_chars)
    head = int(room * _HEAD_SHARE)
    return _head(text, head) + marker + _tail(text, room - head)


def clipped_line(text: str, limit_chars: int) -> str:
    """As `clipped`, with every run of white space made one space."""
    return clipped(" ".join(text.split()), limit_chars)


def _head(text: str, chars: int) -> str:
    if chars >= len(text) or text[chars].isspace():
        return text[:chars].rstrip()
    least = int(chars * (1 - _SEARCHED_SHARE))
    for place in range(chars - 1, least, -1):
        if text[place].isspace():
            return text[:place].rstrip()
    return text[:chars]


def _tail(text: str, chars: int) -> str:
    start = len(text) - chars
    if text[start - 1].isspace():
        return text[start:].lstrip()
    blank = _BLANK.search(text, start, start + int(chars * _SEARCHED_SHARE))
    return text[blank.end() if blank else start :].lstrip()
