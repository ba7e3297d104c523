"""Ranks the entries found by how well they answer a question (C14).

By words (BM25), by how much of the question is covered, by neighbouring entries (an answer follows its
question and need not repeat its words), by speaker, by kind and, among equals, by time. Pure and
deterministic.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from palimpsest.core.recall.talk import Query, Speakers, is_talk, questions_in, speakers_in, tells
from palimpsest.core.recall.words import CorpusStatistics, SearchEntry, Words, plain


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of the ranking, tuned on four long chats (docs/recall.md). 0 switches a feature off.

    - `saturation`, `length`: BM25's k1 and b.
    - `coverage`: the share of a score that depends on how much of the question an entry covers; `breadth`:
      the exponent of that coverage.
    - `related`: the worth of a related word, as a share of the word's own.
    - `before`, `after`: the share of the neighbours' scores that an entry gets; `earlier`, `further`: that of
      those one more step away. The earlier one is mostly by the same speaker, who continues.
    - `answer`: the share that an entry gets of the score of the questions in the message before it.
    - `asking`: the share of its score that an entry of questions alone loses.
    - `speaker`: the worth of being said by the speaker whom the question names, in place of BM25's rarity.
    - `brief`: in a dialogue, the exponent of (length / mean length) by which shorter messages count less.
    - `specifics`: the share that a time, number or name adds when the question asks for one; `phrase`: that
      of a quoted phrase.
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
    brief: float = 0.3
    specifics: float = 0.2
    phrase: float = 1.0


FOUND = Weights()
APART = Weights(before=0.0, after=0.0, earlier=0.0, further=0.0, answer=0.0)
"""For entries whose neighbours are unknown."""

# C14: with equal words the kinds rank in this order, tools last. Summaries rank low because the messages that
# they summarize are found themselves (docs/recall.md).
_KINDS: Mapping[str, float] = {"dialogue": 1.03, "other": 1.02, "step": 1.01, "payload": 1.0, "summary": 0.7}
_TOOL = 0.8
# In place of the words of a speaker's name: no speaker.
_NO_SPEAKER = frozenset({""})
_STEP = "execute this step:"


@dataclass(frozen=True, slots=True)
class Scored:
    """An entry and its score; only the order of scores has a meaning."""

    entry: SearchEntry
    score: float


@dataclass(frozen=True, slots=True)
class EntryScores:
    """An entry's score by itself (`own`), that of its questions (`asked`), and a final factor (`share`)."""

    own: float
    asked: float = 0.0
    share: float = 1.0


def ranked(
    query: Query,
    entries: Sequence[SearchEntry],
    holdings: CorpusStatistics,
    words: Words,
    weights: Weights = FOUND,
) -> list[Scored]:
    """The entries that match the question, best first; among equals the newest first.

    `entries` should include the neighbours of matching entries, whose scores count towards theirs.
    """
    scale = _Scale(query, entries, holdings, words, weights)
    alone = {entry.id: scale.judged(entry) for entry in entries}
    places = {entry.place: alone[entry.id] for entry in entries if entry.kind == "message"}
    nothing = EntryScores(0.0)
    scored = []
    for entry in entries:
        score = alone[entry.id].own
        if entry.kind == "message":
            # The neighbours at -2, -1, 1 and 2 steps.
            sides = [places.get(entry.place + step, nothing) for step in (-2, -1, 1, 2)]
            score += weights.before * sides[1].own + weights.answer * sides[1].asked
            score += weights.after * sides[2].own
            score += weights.earlier * sides[0].own + weights.further * sides[3].own
            score *= alone[entry.id].share
        if score > 0:
            scored.append(Scored(entry, score * _kind_factor(entry)))
    return sorted(scored, key=lambda s: (-s.score, -s.entry.at, -s.entry.place, s.entry.id))


class _Scale:
    """Scores entries against one question."""

    def __init__(
        self,
        query: Query,
        entries: Sequence[SearchEntry],
        holdings: CorpusStatistics,
        words: Words,
        weights: Weights,
    ) -> None:
        self._query = query
        self._holdings = holdings
        self._words = words
        self._weights = weights
        self._beginnings = query.beginnings
        self._talk_speakers = speakers_in(entries) if weights.speaker else Speakers()
        self._speakers = {speaker: frozenset(words.of(speaker)) for speaker in self._talk_speakers.names}
        self._names = frozenset(name for names in self._speakers.values() for name in names)

    def judged(self, entry: SearchEntry) -> EntryScores:
        """The scores of an entry without its neighbours."""
        said = self._words.of(entry.text, self._beginnings)
        speaking = self._speakers.get(self._talk_speakers.of(entry), frozenset())
        weights = self._weights
        longer = len(said) / self._holdings.mean_words
        length = weights.saturation * (1 - weights.length + weights.length * longer)
        total, found = self._matches(Counter(said), speaking, length)
        covered = (found / self._total_worth) ** weights.breadth if self._total_worth else 0.0
        score = total * (1 - weights.coverage + weights.coverage * covered)
        if self._query.phrases:
            low = plain(entry.text)
            held = sum(phrase in low for phrase in self._query.phrases)
            score += weights.phrase * max(1.0, self._total_worth) * held
        if score and tells(entry.text, self._query.asked):
            score *= 1 + weights.specifics
        asking = self._words.of(questions_in(entry), self._beginnings)
        share = 1 - weights.asking * min(1.0, len(asking) / len(said)) if said else 1.0
        if self._speakers and is_talk(entry):
            # Short messages say little: "Wow, that's great news, Nora!"
            share *= min(1.0, (1 + len(said)) / (1 + self._holdings.mean_words)) ** weights.brief
        asked = self._matches(Counter(asking), _NO_SPEAKER, length)[0] if asking else 0.0
        return EntryScores(score, asked, share)

    @cached_property
    def _total_worth(self) -> float:
        """The worth of all the question's words together."""
        return sum(rarity for _, rarity, _ in self._wanted)

    @cached_property
    def _wanted(self) -> list[tuple[str, float, list[tuple[str, float]]]]:
        """Each word with its worth, and its related words with theirs."""
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

    def _matches(self, counts: Counter[str], speaking: frozenset[str], length: float) -> tuple[float, float]:
        """BM25's sum, and the summed worth of the words that occur (for the coverage)."""
        total = found = 0.0
        for word, rarity, others in self._wanted:
            if speaking and word in self._names:
                # A message that mentions a name is not by that speaker.
                total += rarity * (word in speaking)
                found += rarity * (word in speaking)
                continue
            # The word or its best related word, never the sum: groups differ in size.
            held = [(rarity, counts[word])] if counts[word] else []
            held += [(worth, counts[other]) for other, worth in others if counts[other]]
            if held:
                best = max(worth * count / (count + length) for worth, count in held)
                total += best * (self._weights.saturation + 1)
                found += max(worth for worth, _ in held)
        return total, found

    def _rarity(self, word: str) -> float:
        """BM25's inverse document frequency; above 0 even for a word in every entry."""
        entries, holding = self._holdings.entries, self._holdings.holding.get(word, 1)
        return math.log(1 + (entries - min(holding, entries) + 0.5) / (holding + 0.5))


def _kind_factor(entry: SearchEntry) -> float:
    if entry.role == "tool":
        return _TOOL
    if entry.kind != "message":
        return _KINDS[entry.kind]
    if entry.text[:40].lower().startswith(_STEP):
        return _KINDS["step"]
    return _KINDS["dialogue" if entry.role in ("user", "assistant") else "other"]
