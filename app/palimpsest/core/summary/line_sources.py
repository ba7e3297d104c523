"""Finds the messages that a line of a summary was written from. Pure.

No writer of summaries says where a line comes from. It is found again by its words: a source has two fifths
of their weight or more, where a word weighs the more the fewer messages have it.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
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
    every = set().union(*wanted) if wanted else set()
    known = [every.intersection(_words(text)) for text in texts]
    counts = Counter(word for words in known for word in words)
    weights = {word: math.log((len(texts) + 1) / (counts[word] + 0.5)) for word in every}
    having: dict[str, list[int]] = {word: [] for word in every}
    for place, words in enumerate(known):
        for word in words:
            having[word].append(place)
    return [
        SummaryLine(line, line.startswith("#"), _sources(words, weights, having))
        for line, words in zip(lines, wanted, strict=True)
    ]


def _sources(words: set[str], weights: dict[str, float], having: dict[str, list[int]]) -> tuple[int, ...]:
    scores: defaultdict[int, float] = defaultdict(float)
    for word in words:
        for place in having[word]:
            scores[place] += weights[word]
    whole = sum(weights[word] for word in words)
    if not scores or whole <= 0:
        return ()
    best = max(scores.values())
    least = max(_LEAST_SHARE * whole, _OF_THE_BEST * best)
    # Of equals the earliest: it was said there first.
    found = sorted(
        (place for place, score in scores.items() if score >= least), key=lambda at: (-scores[at], at)
    )
    return tuple(sorted(found[:_MOST_SOURCES]))


def _words(text: str) -> Iterator[str]:
    for found in _WORD.finditer(text.casefold()):
        word = found[0]
        if not word.isalpha() or ord(word[0]) >= _UNSPACED:
            yield word
        elif len(word) >= _LEAST_LETTERS:
            yield word[:_LETTERS]
