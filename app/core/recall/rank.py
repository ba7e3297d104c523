"""Which of the entries found answers a question best (C14).

By words (BM25), by how much of the question is covered, by what stands beside an entry (an answer follows its
question and need not repeat its words), by who speaks, by kind and, of equal ones, by time. Pure: for equal
input in equal order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from app.core.recall.entry import Entry, Holdings
from app.core.recall.query import Query
from app.core.recall.talk import Speakers, is_talk, questions_in, speakers_in, tells
from app.core.recall.words import Words, plain


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each thing counts; found on four long chats (docs/recall.md). 0 leaves one out.

    `saturation` and `length` are BM25's k1 and b. `coverage`: the share of a score that depends on how much
    of the question an entry holds, and `breadth` how steeply. `related`: what another word for the same thing
    counts. `before` and `after`: the shares of the scores of the entries there, `earlier` and `further` of
    those one more away; the earlier one is mostly of the same speaker, who goes on. `answer`: what more a
    message gets of what the one before it asks. `asking`: the share that one of nothing but questions loses.
    `speaker`: what it is worth to be spoken by whom the question names, as BM25's rarity, and `others` the
    share that what others say loses. `brief`: where people talk with each other, the power of its share of
    the mean length with which a shorter message counts. `told`: what a time, number or name adds where it is
    asked for, and `phrase` what a quoted phrase adds, shares of the score.
    """

    saturation: float = 1.2
    length: float = 0.4
    coverage: float = 0.6
    breadth: float = 2.0
    related: float = 0.6
    before: float = 0.35
    after: float = 0.2
    earlier: float = 0.3
    further: float = 0.15
    answer: float = 0.5
    asking: float = 0.5
    speaker: float = 3.0
    others: float = 0.2
    brief: float = 0.3
    told: float = 0.2
    phrase: float = 1.0


FOUND = Weights()
APART = Weights(before=0.0, after=0.0, earlier=0.0, further=0.0, answer=0.0)
"""For entries of which nobody knows what stands beside what."""

# C14: with equal words, in this order, tools behind. Summaries are found where they are asked for or nothing
# else is: they stand for messages that are found themselves (docs/recall.md).
_KINDS: Mapping[str, float] = {"dialogue": 1.03, "other": 1.02, "step": 1.01, "payload": 1.0, "summary": 0.7}
_TOOL = 0.8
# A speaker's name whose words are nobody's.
_NOBODY = frozenset({""})
_STEP = "execute this step:"


@dataclass(frozen=True, slots=True)
class Scored:
    """An entry and its worth; only the order of worths means something."""

    entry: Entry
    score: float


@dataclass(frozen=True, slots=True)
class _Judged:
    """What an entry is worth by itself, what its questions are, and the share that counts of its score."""

    own: float
    asked: float = 0.0
    share: float = 1.0


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
    scale = _Scale(query, entries, holdings, words, weights)
    judged = {entry.id: scale.judged(entry) for entry in entries}
    places = {entry.place: judged[entry.id] for entry in entries if entry.kind == "message"}
    nothing = _Judged(0.0)
    scored = []
    for entry in entries:
        score = judged[entry.id].own
        if entry.kind == "message":
            # At -2, -1, 1 and 2 steps.
            sides = [places.get(entry.place + step, nothing) for step in (-2, -1, 1, 2)]
            score += weights.before * sides[1].own + weights.answer * sides[1].asked
            score += weights.after * sides[2].own
            score += weights.earlier * sides[0].own + weights.further * sides[3].own
            score *= judged[entry.id].share
        if score > 0:
            scored.append(Scored(entry, score * _worth(entry)))
    return sorted(scored, key=lambda s: (-s.score, -s.entry.at, -s.entry.place, s.entry.id))


class _Scale:
    """One question, and all that is weighed by it."""

    def __init__(
        self, query: Query, entries: Sequence[Entry], holdings: Holdings, words: Words, weights: Weights
    ) -> None:
        self._query = query
        self._holdings = holdings
        self._words = words
        self._weights = weights
        self._beginnings = query.beginnings
        self._who = speakers_in(entries) if weights.speaker else Speakers()
        self._speakers = {speaker: frozenset(words.of(speaker)) for speaker in self._who.names}
        self._names = frozenset(name for names in self._speakers.values() for name in names)
        about = [speaker for speaker, names in self._speakers.items() if not names.isdisjoint(query.words)]
        self._about = about[0] if len(about) == 1 else ""

    def judged(self, entry: Entry) -> _Judged:
        """What an entry is worth before it borrows."""
        said = self._words.of(entry.text, self._beginnings)
        speaker = self._who.of(entry)
        length = self._flattened(len(said))
        total, found = self._held(Counter(said), self._speakers.get(speaker, frozenset()), length)
        weights = self._weights
        covered = (found / self._most) ** weights.breadth if self._most else 0.0
        score = total * (1 - weights.coverage + weights.coverage * covered)
        if self._query.phrases:
            low = plain(entry.text)
            held = sum(phrase in low for phrase in self._query.phrases)
            score += weights.phrase * max(1.0, self._most) * held
        if score and tells(entry.text, self._query.asked):
            score *= 1 + weights.told
        asking = self._words.of(questions_in(entry), self._beginnings)
        share = self._share(entry, speaker, len(said), len(asking))
        asked = self._held(Counter(asking), _NOBODY, length)[0] if asking else 0.0
        return _Judged(score, asked, share)

    def _share(self, entry: Entry, speaker: str, said: int, asking: int) -> float:
        """What counts of the score of an entry of so many words, so many of them in questions."""
        weights = self._weights
        share = 1 - weights.asking * min(1.0, asking / said) if said else 1.0
        if speaker and self._about and speaker != self._about:
            share *= 1 - weights.others
        if self._speakers and is_talk(entry):
            # Who says little tells little: "Wow, that's great news, Nora!"
            share *= min(1.0, (1 + said) / (1 + self._holdings.mean_words)) ** weights.brief
        return share

    @cached_property
    def _most(self) -> float:
        """What an entry that holds every word would have found."""
        return sum(rarity for _, rarity, _ in self._wanted)

    @cached_property
    def _wanted(self) -> list[tuple[str, float, list[tuple[str, float]]]]:
        """Each word with what it is worth, and the related ones with theirs."""
        related = self._weights.related
        return [
            (
                word,
                self._weights.speaker if word in self._names else rarity,
                [(other, related * min(rarity, self._rarity(other))) for other in others] if related else [],
            )
            for word, others in zip(self._query.words, self._query.related, strict=True)
            for rarity in (self._rarity(word),)
        ]

    def _held(self, counts: Counter[str], speaking: frozenset[str], length: float) -> tuple[float, float]:
        """BM25's sum, and the worth of the words that are there: for how much of the question is covered."""
        total = found = 0.0
        for word, rarity, others in self._wanted:
            if speaking and word in self._names:
                # Who is called by name is not the one who speaks.
                total += rarity * (word in speaking)
                found += rarity * (word in speaking)
                continue
            # A word or the best of those related to it, never both: groups of words differ in size.
            held = [(rarity, counts[word])] if counts[word] else []
            held += [(worth, counts[other]) for other, worth in others if counts[other]]
            if held:
                total += max(worth * self._saturated(count, length) for worth, count in held)
                found += max(worth for worth, _ in held)
        return total, found

    def _flattened(self, count: int) -> float:
        weights = self._weights
        return weights.saturation * (1 - weights.length + weights.length * count / self._holdings.mean_words)

    def _saturated(self, count: int, length: float) -> float:
        return count * (self._weights.saturation + 1) / (count + length)

    def _rarity(self, word: str) -> float:
        """BM25's inverse document frequency, above 0 also for a word that all hold."""
        entries, holding = self._holdings.entries, self._holdings.holding.get(word, 1)
        return math.log(1 + (entries - min(holding, entries) + 0.5) / (holding + 0.5))


def _worth(entry: Entry) -> float:
    if entry.role == "tool":
        return _TOOL
    if entry.kind != "message":
        return _KINDS[entry.kind]
    if entry.text[:40].lower().startswith(_STEP):
        return _KINDS["step"]
    return _KINDS["dialogue" if entry.role in ("user", "assistant") else "other"]
