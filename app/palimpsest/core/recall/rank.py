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

from palimpsest.core.recall.talk import Query, is_talk, questions_in, speakers_in, tells
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
_KINDS: Mapping[str, float] = {
    "dialogue": 1.03,
    "other": 1.02,
    "step": 1.01,
    "payload": 1.0,
    "tool": 0.8,
    "summary": 0.7,
}
# In place of the words of a speaker's name: no speaker.
_NO_SPEAKER = frozenset({""})
# Of a neighbour that there is none of.
_NOTHING = (0.0, 0.0, 1.0)
_STEP = "execute this step:"


def ranked(
    query: Query,
    entries: Sequence[SearchEntry],
    holdings: CorpusStatistics,
    words: Words,
    weights: Weights = FOUND,
) -> list[SearchEntry]:
    """The entries that match the question, best first; among equals the newest first.

    `entries` should include the neighbours of matching entries, whose scores count towards theirs.
    """
    alone = _scores_alone(query, entries, holdings, words, weights)
    places = {entry.place: alone[entry.id] for entry in entries if entry.kind == "message"}
    scores: dict[str, float] = {}
    for entry in entries:
        score, _, share = alone[entry.id]
        if entry.kind == "message":
            earlier, before, after, further = (
                places.get(entry.place + step, _NOTHING) for step in (-2, -1, 1, 2)
            )
            score += weights.before * before[0] + weights.answer * before[1]
            score += weights.after * after[0]
            score += weights.earlier * earlier[0] + weights.further * further[0]
            score *= share
        kind: str = "tool" if entry.role == "tool" else entry.kind
        if kind == "message":
            kind = "dialogue" if entry.role in ("user", "assistant") else "other"
            kind = "step" if entry.text[:40].lower().startswith(_STEP) else kind
        scores[entry.id] = score * _KINDS[kind]
    found = (entry for entry in entries if scores[entry.id] > 0)
    return sorted(found, key=lambda entry: (-scores[entry.id], -entry.at, -entry.place, entry.id))


def _scores_alone(
    query: Query,
    entries: Sequence[SearchEntry],
    holdings: CorpusStatistics,
    words: Words,
    weights: Weights,
) -> dict[str, tuple[float, float, float]]:
    """By entry id, without neighbours: an entry's score, that of its questions, and a final factor."""
    beginnings = query.beginnings
    speakers = speakers_in(entries) if weights.speaker else {}
    names_of = {speaker: frozenset(words.of(speaker)) for speaker in speakers.values()}
    names = frozenset[str]().union(*names_of.values())

    def rarity(word: str) -> float:
        """BM25's inverse document frequency; above 0 even for a word in every entry."""
        holding = holdings.holding.get(word, 1)
        return math.log(1 + (holdings.entries - min(holding, holdings.entries) + 0.5) / (holding + 0.5))

    # Each word with its worth, and its related words with theirs.
    wanted = [
        (
            word,
            weights.speaker if word in names else rarity(word),
            [(other, weights.related * min(rarity(word), rarity(other))) for other in others],
        )
        for word, others in zip(query.words, query.related, strict=True)
    ]
    total_worth = sum(worth for _, worth, _ in wanted)

    def matches(counts: Counter[str], speaking: frozenset[str], length: float) -> tuple[float, float]:
        """BM25's sum, and the summed worth of the words that occur (for the coverage)."""
        total = found = 0.0
        for word, worth, others in wanted:
            if speaking and word in names:
                # A message that mentions a name is not by that speaker.
                total += worth * (word in speaking)
                found += worth * (word in speaking)
                continue
            # The word or its best related word, never the sum: groups differ in size.
            held = [(each, counts[other]) for other, each in ((word, worth), *others) if counts[other]]
            if held:
                best = max(each * count / (count + length) for each, count in held)
                total += best * (weights.saturation + 1)
                found += max(each for each, _ in held)
        return total, found

    alone = {}
    for entry in entries:
        said = words.of(entry.text, beginnings)
        longer = len(said) / holdings.mean_words
        length = weights.saturation * (1 - weights.length + weights.length * longer)
        speaking = names_of.get(speakers.get(entry.id, ""), frozenset())
        score, found = matches(Counter(said), speaking, length)
        covered = (found / total_worth) ** weights.breadth if total_worth else 0.0
        score *= 1 - weights.coverage + weights.coverage * covered
        if query.phrases:
            low = plain(entry.text)
            held = sum(phrase in low for phrase in query.phrases)
            score += weights.phrase * max(1.0, total_worth) * held
        if score and tells(entry.text, query.asked):
            score *= 1 + weights.specifics
        asking = words.of(questions_in(entry), beginnings)
        share = 1 - weights.asking * min(1.0, len(asking) / len(said)) if said else 1.0
        if speakers and is_talk(entry):
            # Short messages say little: "Wow, that's great news, Nora!"
            share *= min(1.0, (1 + len(said)) / (1 + holdings.mean_words)) ** weights.brief
        alone[entry.id] = score, matches(Counter(asking), _NO_SPEAKER, length)[0], share
    return alone
