"""Finds the messages that a line of a summary was written from. Pure.

No writer of summaries says where a line comes from. It is found again by its words: a source has two fifths
of their weight or more, where a word weighs the more the fewer messages have it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from palimpsest.core.text.fence import unfenced

# The most sources of a line, the share of its weight that a source has, and how much less than the best.
_MOST_SOURCES, _LEAST_SHARE, _OF_THE_BEST = 3, 0.4, 0.8
# A name with marks inside (a path, an id), a plain word, or a character of a script without spaces.
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_]+(?:[-_./:@#'’][^\W_]+)*",
)
# What a block puts before the words of a message.
_LABEL = re.compile(r"[-*]?\s*turn \d+, \w+: ")
# Letters that are compared: endings vary. Shorter words are nearly always grammar.
_LETTERS, _LEAST_LETTERS = 6, 4
_UNSPACED = 0x3000


@dataclass(frozen=True, slots=True)
class SummaryLine:
    """A line of a summary; `sources` are the places of messages, ascending."""

    text: str
    is_heading: bool
    sources: tuple[int, ...] = ()


def lines_of(summary: str, texts: Sequence[str]) -> list[SummaryLine]:
    """The summary's lines without its fence and without empty ones, each with its sources among `texts`."""
    lines = [line.strip() for line in unfenced(summary).split("\n") if line.strip()]
    wanted = [set() if line.startswith("#") else set(_words(_LABEL.sub("", line, 1))) for line in lines]
    every = set().union(*wanted)
    known = [every.intersection(_words(text)) for text in texts]
    counts = Counter(word for words in known for word in words)
    weights = {word: math.log((len(texts) + 1) / (counts[word] + 0.5)) for word in every}
    found = []
    for line, words in zip(lines, wanted, strict=True):
        scores = [sum(weights[word] for word in words & said) for said in known]
        least = max(
            _LEAST_SHARE * sum(weights[word] for word in words), _OF_THE_BEST * max(scores, default=0)
        )
        # Of equals the earliest: it was said there first.
        best = sorted((-score, place) for place, score in enumerate(scores) if 0 < least <= score)
        sources = tuple(sorted(place for _, place in best[:_MOST_SOURCES]))
        found.append(SummaryLine(line, line.startswith("#"), sources))
    return found


def _words(text: str) -> Iterator[str]:
    for found in _WORD.finditer(text.casefold()):
        word = found[0]
        if not word.isalpha() or ord(word[0]) >= _UNSPACED:
            yield word
        elif len(word) >= _LEAST_LETTERS:
            yield word[:_LETTERS]
