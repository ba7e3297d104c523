"""What is shown of an entry that was found: an exact quote, and what stands beside it, within a budget.

A quote is a piece of the stored text, never a rewording; where it begins is told. Knows nothing of ranks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.core.recall.entry import Entry
from app.core.recall.query import Query
from app.core.recall.rank import Scored
from app.core.recall.words import Words

# C16, characters of one quote.
QUOTE_CHARS = 600
# What the better half of the hits may show each, and what the others, neighbours included: ten of them are
# read for a thousand tokens. Who is likely right is worth reading in its context (docs/recall.md).
NEAR_CHARS = 500
FAR_CHARS = 190
# How far away a message is shown beside the one that was found: what two people say in one sitting.
_NEIGHBOURS = 12
# Shown beside a hit are those of the best so many entries that stand there; others only with what is left.
_BEST = 20
# A neighbour is not worth showing in fewer characters, unless that is all of it.
_LEAST_CHARS = 60
_BREAK = re.compile(r"\s")
# Characters that a piece may be shorter so that it begins and ends between words.
_SLACK = 24


@dataclass(frozen=True, slots=True)
class Quote:
    """`text` stands at `start` (characters) in the entry's text, which has `whole` characters."""

    entry: Entry
    text: str
    start: int

    @property
    def is_whole(self) -> bool:
        """True when nothing of the entry's text is left out."""
        return len(self.text) == len(self.entry.text)


@dataclass(frozen=True, slots=True)
class Hit:
    """An entry that was found, and what no earlier hit shows of the messages around it, in order.

    Those of them are shown that answer the question best, so that some between them may be left out.
    """

    quote: Quote
    before: tuple[Quote, ...]
    after: tuple[Quote, ...]
    score: float


def hits_of(
    scored: Sequence[Scored],
    beside: Mapping[int, Entry],
    query: Query,
    words: Words,
    *,
    limit: int,
) -> list[Hit]:
    """At most `limit` hits, best first; an entry that one shows whole already is not found again.

    `beside` are the messages by their places. What one hit leaves of its characters the next may use; what
    the better half and what all leave goes to what else stands beside them.
    """
    page = _Page(beside, query, words, [found.entry.place for found in scored])
    half = (limit + 1) // 2
    for found in scored:
        if len(page.hits) == limit:
            break
        if found.entry.id not in page.shown:
            page.room += NEAR_CHARS if len(page.hits) < half else FAR_CHARS
            page.add(found)
            if len(page.hits) == half:
                page.fill()
    page.fill()
    return [each.hit() for each in page.hits]


@dataclass(frozen=True, slots=True)
class _Found:
    """A hit that may still get more neighbours: `sides` by place."""

    quote: Quote
    score: float
    sides: dict[int, Quote] = field(default_factory=dict)

    def hit(self) -> Hit:
        places, here = sorted(self.sides), self.quote.entry.place
        before = tuple(self.sides[place] for place in places if place < here)
        return Hit(
            self.quote, before, tuple(self.sides[place] for place in places if place > here), self.score
        )


class _Page:
    """What the hits so far show: whole entries by id, and the characters left.

    `ranked` are places, best first.
    """

    def __init__(
        self, beside: Mapping[int, Entry], query: Query, words: Words, ranked: Sequence[int]
    ) -> None:
        self._beside = beside
        self._query = query
        self._words = words
        self._order = {place: order for order, place in reversed(list(enumerate(ranked)))}
        self.room = 0
        self.shown: set[str] = set()
        self.hits: list[_Found] = []

    def add(self, found: Scored) -> None:
        """One more hit, and the best of what stands beside it."""
        hit = _Found(self._quote(found.entry, max(FAR_CHARS, min(QUOTE_CHARS, self.room))), found.score)
        self.hits.append(hit)
        self._show(hit, _BEST)

    def fill(self) -> None:
        """What is left is for whatever stands beside the hits, who answers best before who is nearest."""
        for hit in self.hits:
            self._show(hit, None)

    def _show(self, hit: _Found, best: int | None) -> None:
        """Neighbours of a hit that are among the `best`, or any, as long as there is room."""
        if hit.quote.entry.kind != "message":
            return
        here = hit.quote.entry.place
        steps = (step for away in range(1, _NEIGHBOURS + 1) for step in (-away, away))
        around = sorted((here + step for step in steps), key=lambda at: self._order.get(at, math.inf))
        for at in around:
            if best is None or self._order.get(at, math.inf) < best:
                self._show_one(hit, at)

    def _show_one(self, hit: _Found, place: int) -> None:
        """The message at a place, if it is worth showing."""
        other = self._beside.get(place)
        if other is None or other.id in self.shown or other.role == "tool" or not other.text.strip():
            return
        if place not in hit.sides and self.room >= min(_LEAST_CHARS, len(other.text)):
            hit.sides[place] = self._quote(other, min(QUOTE_CHARS, self.room))

    def _quote(self, entry: Entry, limit: int) -> Quote:
        quote = quoted(entry, self._query, self._words, limit)
        self.room -= len(quote.text)
        if quote.is_whole:
            self.shown.add(entry.id)
        return quote


def quoted(entry: Entry, query: Query, words: Words, limit: int) -> Quote:
    """The piece of at most `limit` characters that holds most of what is looked for; the whole if it fits."""
    text = entry.text
    if len(text) <= limit:
        return Quote(entry, text, 0)
    wanted, beginnings = set(query.words), query.beginnings
    places = [
        match.start()
        for match in re.finditer(r"\S+", text)
        if wanted.intersection(words.of(match[0], beginnings))
    ]
    start = _densest(places, limit, len(text))
    begin, end = _between_words(text, start, start + limit)
    return Quote(entry, text[begin:end], begin)


def _densest(places: Sequence[int], limit: int, length: int) -> int:
    """Where the stretch with most of the places begins, a little before the first of them."""
    best = first = most = 0
    for last, place in enumerate(places):
        while place - places[first] > limit * 3 // 4:
            first += 1
        if last - first + 1 > most:
            best, most = places[first], last - first + 1
    return max(0, min(best - limit // 8, length - limit))


def _between_words(text: str, start: int, end: int) -> tuple[int, int]:
    if start > 0:
        gap = _BREAK.search(text, start, start + _SLACK)
        start = gap.end() if gap else start
    if end < len(text):
        gaps = [match.start() for match in _BREAK.finditer(text, max(start, end - _SLACK), end)]
        end = gaps[-1] if gaps else end
    return start, end
