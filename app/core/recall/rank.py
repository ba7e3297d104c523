"""Which of the entries found answers a question best (C14).

By words (BM25), by how much of the question is covered, by what stands beside an entry (an answer follows its
question and need not repeat its words), by kind and, of equal ones, by time. Pure: equal input, equal order.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.core.recall.entry import Entry, Holdings
from app.core.recall.query import Query
from app.core.recall.words import Words, plain


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each thing counts; found on two long chats (docs/recall.md). 0 leaves one out.

    `saturation` and `length` are BM25's k1 and b. `coverage`: the share of a score that depends on how much
    of the question an entry holds. `related`: what another word for the same thing counts. `before` and
    `after`: the shares of the scores of the entries there, `further` of those one more away. `when`: what a
    time adds where one is asked for, `phrase` what a quoted phrase adds, shares of the score.
    """

    saturation: float = 1.2
    length: float = 0.4
    coverage: float = 0.5
    related: float = 0.6
    before: float = 0.35
    after: float = 0.2
    further: float = 0.1
    when: float = 0.15
    phrase: float = 1.0


FOUND = Weights()

# C14: with equal words, in this order.
_KINDS: Mapping[str, float] = {"summary": 1.04, "dialogue": 1.03, "other": 1.02, "step": 1.01, "payload": 1.0}
_TOOL = 0.8
_STEP = "execute this step:"
_TIME = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|(?:mon|tues|wednes|thurs|fri|satur|sun)day|weekend|ago"
    r"|(?:last|next|this|past|coming|few) (?:\w+ )?(?:week|month|year|night|morning|evening|spring|summer"
    r"|fall|autumn|winter)s?|january|february|march|april|may|june|july|august|september|october|november|december"
    r"|(?:19|20)\d\d|\d{1,2}(?:st|nd|rd|th)|since|birthday|anniversary)\b"
)


@dataclass(frozen=True, slots=True)
class Scored:
    """An entry and its worth; only the order of worths means something."""

    entry: Entry
    score: float


def ranked(
    query: Query,
    entries: Sequence[Entry],
    holdings: Holdings,
    words: Words,
    weights: Weights = FOUND,
) -> list[Scored]:
    """The entries that say something to the question, best first; of equals the newest.

    `entries` should hold what stands beside those that match: they lend and borrow.
    """
    own = {entry.id: _own(query, entry, holdings, words, weights) for entry in entries}
    places = {entry.place: own[entry.id] for entry in entries if entry.kind == "message"}
    scored = []
    for entry in entries:
        score = own[entry.id]
        if entry.kind == "message":
            score += weights.before * places.get(entry.place - 1, 0.0)
            score += weights.after * places.get(entry.place + 1, 0.0)
            score += weights.further * (places.get(entry.place - 2, 0.0) + places.get(entry.place + 2, 0.0))
        if score > 0:
            scored.append(Scored(entry, score * _worth(entry)))
    return sorted(scored, key=lambda s: (-s.score, -s.entry.at, -s.entry.place, s.entry.id))


def _own(query: Query, entry: Entry, holdings: Holdings, words: Words, weights: Weights) -> float:
    """What the entry's own text is worth."""
    said = words.of(entry.text)
    counts = Counter(said)
    length = weights.saturation * (1 - weights.length + weights.length * len(said) / holdings.mean_words)
    total = found = most = 0.0
    for word, others in zip(query.words, query.related, strict=True):
        rarity = _rarity(holdings, word)
        most += rarity
        # A word or the best of those related to it, never both: groups of words differ in size.
        held = [(rarity, counts[word])] if counts[word] else []
        held += [
            (weights.related * min(rarity, _rarity(holdings, other)), counts[other])
            for other in (others if weights.related else ())
            if counts[other]
        ]
        if held:
            total += max(worth * count * (weights.saturation + 1) / (count + length) for worth, count in held)
            found += max(worth for worth, _ in held)
    score = total * (1 - weights.coverage + weights.coverage * (found / most if most else 0.0))
    low = plain(entry.text) if query.phrases or query.asks_when else ""
    score += weights.phrase * max(1.0, most) * sum(phrase in low for phrase in query.phrases)
    if query.asks_when and score and _TIME.search(low):
        score *= 1 + weights.when
    return score


def _rarity(holdings: Holdings, word: str) -> float:
    """BM25's inverse document frequency, above 0 also for a word that all hold."""
    entries, holding = holdings.entries, holdings.holding.get(word, 1)
    return math.log(1 + (entries - min(holding, entries) + 0.5) / (holding + 0.5))


def _worth(entry: Entry) -> float:
    if entry.role == "tool":
        return _TOOL
    if entry.kind != "message":
        return _KINDS[entry.kind]
    if entry.text[:40].lower().startswith(_STEP):
        return _KINDS["step"]
    return _KINDS["dialogue" if entry.role in ("user", "assistant") else "other"]
