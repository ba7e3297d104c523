"""Cuts the quotes that a search result shows: of each hit, and of messages around it, within a budget.

A quote is an exact piece of the stored text, with its offset.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from palimpsest.core.recall.rank import Scored
from palimpsest.core.recall.talk import Query
from palimpsest.core.recall.words import SearchEntry, Words

# C16, characters of one quote.
QUOTE_CHARS = 600
# Characters shown for each hit of the better half, and for each of the others, neighbours included: ten hits
# take about a thousand tokens. The most likely ones are worth their context (docs/recall.md).
NEAR_CHARS = 500
FAR_CHARS = 190
# How many messages before and after a hit may be shown with it: about one sitting of two people.
_NEIGHBOURS = 12
# A neighbour is shown first if it ranks among so many; others get what is left of the budget.
_BEST_RANKS = 20
# A neighbour is shown in no fewer characters, unless it is shorter itself.
_LEAST_NEIGHBOUR_CHARS = 60
_BREAK = re.compile(r"\s")
# A quote may be this many characters shorter, so that it begins and ends between words.
_SLACK = 24


@dataclass(frozen=True, slots=True)
class Quote:
    """`text` begins at `start` (characters) of the entry's text."""

    entry: SearchEntry
    text: str
    start: int

    @property
    def is_whole(self) -> bool:
        """True when nothing of the entry's text is left out."""
        return len(self.text) == len(self.entry.text)


@dataclass(frozen=True, slots=True)
class Hit:
    """A found entry, and messages around it that no earlier hit shows, in order.

    Those that answer the question best are chosen, so that some in between may be missing.
    """

    quote: Quote
    before: tuple[Quote, ...]
    after: tuple[Quote, ...]
    score: float


def hits_of(
    scored: Sequence[Scored],
    beside: Mapping[int, SearchEntry],
    query: Query,
    words: Words,
    *,
    limit: int,
) -> list[Hit]:
    """At most `limit` hits, best first, without entries that an earlier hit shows whole.

    `beside` are the messages by their places. Characters that a hit does not use are available to the next.
    What the better half leaves, and what all leave at the end, is spent on further neighbours.
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
class _OpenHit:
    """A hit under construction, with its neighbours by place in `sides`."""

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
    """The hits so far, the ids of entries shown whole, and the characters left (`room`).

    `ranked` are places, best first.
    """

    def __init__(
        self, beside: Mapping[int, SearchEntry], query: Query, words: Words, ranked: Sequence[int]
    ) -> None:
        self._beside = beside
        self._query = query
        self._words = words
        self._order = {place: order for order, place in reversed(list(enumerate(ranked)))}
        self.room = 0
        self.shown: set[str] = set()
        self.hits: list[_OpenHit] = []

    def add(self, found: Scored) -> None:
        """Adds a hit with the best of its neighbours."""
        hit = _OpenHit(self._quote(found.entry, max(FAR_CHARS, min(QUOTE_CHARS, self.room))), found.score)
        self.hits.append(hit)
        self._show(hit, _BEST_RANKS)

    def fill(self) -> None:
        """Spends the characters left on further neighbours: better ranked first, then nearer."""
        for hit in self.hits:
            self._show(hit, None)

    def _show(self, hit: _OpenHit, best: int | None) -> None:
        """Shows neighbours of a hit that rank among the `best` (None: any), as long as there is room."""
        if hit.quote.entry.kind != "message":
            return
        here = hit.quote.entry.place
        steps = (step for away in range(1, _NEIGHBOURS + 1) for step in (-away, away))
        around = sorted((here + step for step in steps), key=lambda at: self._order.get(at, math.inf))
        for at in around:
            if best is None or self._order.get(at, math.inf) < best:
                self._show_one(hit, at)

    def _show_one(self, hit: _OpenHit, place: int) -> None:
        """Shows the message at a place, unless it is shown already, empty, a tool's or too long."""
        other = self._beside.get(place)
        if other is None or other.id in self.shown or other.role == "tool" or not other.text.strip():
            return
        if place not in hit.sides and self.room >= min(_LEAST_NEIGHBOUR_CHARS, len(other.text)):
            hit.sides[place] = self._quote(other, min(QUOTE_CHARS, self.room))

    def _quote(self, entry: SearchEntry, limit: int) -> Quote:
        quote = quoted(entry, self._query, self._words, limit)
        self.room -= len(quote.text)
        if quote.is_whole:
            self.shown.add(entry.id)
        return quote


def quoted(entry: SearchEntry, query: Query, words: Words, limit: int) -> Quote:
    """The piece of at most `limit` characters that holds most of the query's words; the whole if it fits."""
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
    """The start of the stretch that holds most of the places, a little before the first of them."""
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
