"""Cuts the quotes that a search result shows: of each hit, and of messages around it, within a budget.

A quote is an exact piece of the stored text, with its offset.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from palimpsest.core.recall.talk import Query
from palimpsest.core.recall.words import SearchEntry, Words

# C16, characters of one quote.
QUOTE_CHARS = 600
# How many messages before and after a hit may be shown with it: about one sitting of two people.
_NEIGHBOURS = 12
# A neighbour is shown first if it ranks among so many; others get what is left of the budget.
_BEST_RANKS = 20
# A neighbour is shown in no fewer characters, unless it is shorter itself.
_LEAST_NEIGHBOUR_CHARS = 60
# Of a tool result whose quote begins later, its first line is shown too ("Found 565 matches").
_HEAD_CHARS = 100
_BREAK = re.compile(r"\s")
# A quote may be this many characters shorter, so that it begins and ends between words.
_SLACK = 24


@dataclass(frozen=True, slots=True)
class QuoteRoom:
    """Characters shown for each hit of the better half (`near`), and for each of the others (`far`).

    Neighbours are included; each takes `beside` characters besides its text, and ranks better than `worst`.
    The most likely hits are worth their context (docs/recall.md).
    """

    near: int
    far: int
    beside: int = 0
    worst: float = math.inf


READ_BY_PEOPLE = QuoteRoom(600, 90)
READ_BY_MODELS = QuoteRoom(450, 80, 32, 30)


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

    @property
    def head(self) -> str:
        """The first line of a tool result whose quote begins after it; else ""."""
        line = self.entry.text.lstrip().partition("\n")[0][:_HEAD_CHARS].rstrip()
        return line if self.entry.role == "tool" and self.start >= len(line) else ""


@dataclass(frozen=True, slots=True)
class Hit:
    """A found entry, and messages around it that no earlier hit shows, in order.

    Those that answer the question best are chosen, so that some in between may be missing.
    """

    quote: Quote
    sides: dict[int, Quote] = field(default_factory=dict)

    @property
    def before(self) -> list[Quote]:
        """The messages before it."""
        return [self.sides[place] for place in sorted(self.sides) if place < self.quote.entry.place]

    @property
    def after(self) -> list[Quote]:
        """The messages after it."""
        return [self.sides[place] for place in sorted(self.sides) if place > self.quote.entry.place]


def hits_of(
    ranked: Sequence[SearchEntry],
    beside: Mapping[int, SearchEntry],
    query: Query,
    words: Words,
    *,
    limit: int,
    room: QuoteRoom = READ_BY_PEOPLE,
) -> list[Hit]:
    """At most `limit` hits, best first, without entries that an earlier hit shows whole.

    `beside` are the messages by their places. Characters that a hit does not use are available to the next.
    What the better half leaves, and what all leave at the end, is spent on further neighbours: those that
    rank better first, then nearer ones; never an empty one or a tool's.
    """
    order = {entry.place: rank for rank, entry in reversed(list(enumerate(ranked)))}
    half, left = (limit + 1) // 2, 0
    hits: list[Hit] = []
    shown: set[str] = set()

    def quote(entry: SearchEntry, most: int) -> Quote:
        nonlocal left
        made = quoted(entry, query, words, most)
        left -= len(made.text)
        if made.is_whole:
            shown.add(entry.id)
        return made

    def show_neighbours(of: Sequence[Hit], worst: float) -> None:
        nonlocal left
        for hit in of:
            here = hit.quote.entry.place
            steps = (step for away in range(1, _NEIGHBOURS + 1) for step in (-away, away))
            for at in sorted((here + step for step in steps), key=lambda at: order.get(at, math.inf)):
                other = beside.get(at) if hit.quote.entry.kind == "message" else None
                if (
                    other is not None
                    and (worst == math.inf or order.get(at, worst) < worst)
                    and not (other.id in shown or at in hit.sides or other.role == "tool")
                    and left - room.beside >= min(_LEAST_NEIGHBOUR_CHARS, len(other.text))
                    and other.text.strip()
                ):
                    left -= room.beside
                    hit.sides[at] = quote(other, min(QUOTE_CHARS, left))

    for entry in ranked:
        if len(hits) == limit:
            break
        if entry.id not in shown:
            left += room.near if len(hits) < half else room.far
            hits.append(Hit(quote(entry, max(room.far, min(QUOTE_CHARS, left)))))
            show_neighbours(hits[-1:], _BEST_RANKS)
            if len(hits) == half:
                show_neighbours(hits, room.worst)
    show_neighbours(hits, room.worst)
    return hits


def quoted(entry: SearchEntry, query: Query, words: Words, limit: int) -> Quote:
    """The piece of at most `limit` characters that holds most of the query's words; the whole if it fits.

    It begins a little before the first of them, and begins and ends between words.
    """
    text = entry.text
    if len(text) <= limit:
        return Quote(entry, text, 0)
    wanted, beginnings = set(query.words), query.beginnings
    places = [
        match.start()
        for match in re.finditer(r"\S+", text)
        if wanted.intersection(words.of(match[0], beginnings))
    ]
    best = first = most = 0
    for last, place in enumerate(places):
        while place - places[first] > limit * 3 // 4:
            first += 1
        if last - first + 1 > most:
            best, most = places[first], last - first + 1
    start = max(0, min(best - limit // 8, len(text) - limit))
    end = start + limit
    if start > 0 and (gap := _BREAK.search(text, start, start + _SLACK)):
        start = gap.end()
    if end < len(text):
        end = max((gap.start() for gap in _BREAK.finditer(text, max(start, end - _SLACK), end)), default=end)
    return Quote(entry, text[start:end], start)
