"""What is shown of an entry that was found: an exact quote, and what stands beside it, within a budget.

A quote is a piece of the stored text, never a rewording; where it begins is told. Knows nothing of ranks.
"""

from __future__ import annotations

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
NEAR_CHARS = 480
FAR_CHARS = 150
# The entry that was found is not cut shorter than this where it can be helped.
LEAST_QUOTE_CHARS = 220
# How far away a message is shown beside the one that was found: of a talk about one thing, mostly all.
_NEIGHBOURS = 6
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

    `beside` are the messages by their places. What one hit leaves of its characters the next may use.
    """
    hits: list[Hit] = []
    page = _Page(beside, query, words, {found.entry.place: found.score for found in scored})
    for found in scored:
        if len(hits) == limit:
            break
        if found.entry.id not in page.shown:
            page.room += NEAR_CHARS if len(hits) < (limit + 1) // 2 else FAR_CHARS
            hits.append(page.hit(found))
    return hits


@dataclass(slots=True)
class _Page:
    """What the hits so far show: whole entries by id, and the characters left. `worth`: scores by place."""

    beside: Mapping[int, Entry]
    query: Query
    words: Words
    worth: Mapping[int, float]
    room: int = 0
    shown: set[str] = field(default_factory=set)

    def hit(self, found: Scored) -> Hit:
        quote = self.quote(found.entry, max(LEAST_QUOTE_CHARS, min(QUOTE_CHARS, self.room)))
        sides = self.sides(found.entry.place) if found.entry.kind == "message" else {}
        places = sorted(sides)
        before = tuple(sides[place] for place in places if place < found.entry.place)
        after = tuple(sides[place] for place in places if place > found.entry.place)
        return Hit(quote, before, after, found.score)

    def sides(self, place: int) -> dict[int, Quote]:
        """What is worth showing around a place: who answers the question best, then who is nearest."""
        steps = (step for away in range(1, _NEIGHBOURS + 1) for step in (-away, away))
        around = sorted((place + step for step in steps), key=lambda at: -self.worth.get(at, 0.0))
        return {at: quote for at in around for quote in self.side(at)}

    def side(self, place: int) -> list[Quote]:
        """The message at a place, if it is worth showing."""
        other = self.beside.get(place)
        if other is None or other.id in self.shown or other.role == "tool" or not other.text.strip():
            return []
        if self.room < min(_LEAST_CHARS, len(other.text)):
            return []
        return [self.quote(other, min(QUOTE_CHARS, self.room))]

    def quote(self, entry: Entry, limit: int) -> Quote:
        quote = quoted(entry, self.query, self.words, limit)
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
