"""Facts: the information of a sentence beyond that of the others, and the newest value of several.

Words are compared by cheap stems; nothing is understood.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heapreplace
from math import fsum, inf, log

from palimpsest.core.notes.languages import entries, opening, plain

# Weights of stems, relative to a plain word of the same rarity.
_VALUE, _NAME = 2.0, 1.5
# Share of its worth that a question keeps, and that a sentence with small talk in front keeps.
_QUESTION, _SMALL_TALK = 0.3, 0.15
# Share of its worth that a sentence keeps whose stems are all known.
_KNOWN = 0.05
# Share of its worth that a sentence of one stem keeps: it is a word without context.
_SINGLE = 0.5
# Characters that a stem keeps at least.
_SHORTEST_STEM = 4
_ENDINGS = ("ingly", "edly", "ing", "ed", "ies", "es", "s", "ly", "en", "er", "e")
# What may be a value; words of halves of a day stand beside one.
_MAY_HOLD_VALUE = re.compile(r"[\d/_@=]|\.[a-z]|\A(?:[ap]m|uhr)\b")
_MARKS = ".,:;!?*'’\"`()[]"
# Words of a frame; a longer sentence says more than one thing.
_LONGEST_FRAME = 30
_SPLIT = str.maketrans(dict.fromkeys(',;!?()[]{}"“”„«»*`…¿¡<>|=。，、；：！？「」『』（）', " "))
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]+")
_NAMES = re.compile(r"(?<=[a-zß-ÿ,;:] )[A-Z][\w'-]+(?: [A-Z][\w'-]+)*")
# A name that is not only called: "Thanks, Maria!" says nothing about her.
_TOLD_NAME = re.compile(r"(?<=[a-zß-ÿ] )[A-Z][\w'-]")
_QUOTED = re.compile(r"[\"“`«]([^\"”`»\n]{1,80})[\"”`»]")


def stems_of(sentence: str) -> frozenset[str]:
    """The stems of words, numbers, names and ids in a sentence, without function words.

    Lower case, without a suffix; text without spaces between words gives pairs of characters.
    """
    low = plain(sentence)
    found = low.translate(_SPLIT).split()
    if not low.isascii() and _UNSPACED.search(low):
        unspaced = [run for word in found for run in _UNSPACED.findall(word)]
        found = [run[at : at + 2] for run in unspaced for at in range(max(1, len(run) - 1))] + [
            part for word in found for part in _UNSPACED.sub(" ", word).split()
        ]
    return frozenset(map(_stem, found)) - _function_words()


class Information:
    """The information of each sentence of a conversation beyond that of the others.

    The weight of a stem is its rarity among the sentences (log), doubled for numbers, dates, amounts and
    ids (whatever has a digit), times 1.5 for names and quoted words. `factors` multiply what each sentence is
    worth; without them questions and small talk keep a share. Of a sentence with `counted` stems others
    hardly count.
    """

    def __init__(
        self,
        sentences: Sequence[str],
        factors: Sequence[float] = (),
        counted: Sequence[frozenset[str] | None] = (),
    ) -> None:
        self._stems = [stems_of(sentence) for sentence in sentences]
        frequency = Counter(stem for stems in self._stems for stem in stems)
        text = "\n".join(sentences)
        named = stems_of(" ".join((*_NAMES.findall(text), *_QUOTED.findall(text))))
        self._weights = {
            stem: log(1 + len(sentences) / count) * _kind(stem, named) for stem, count in frequency.items()
        }
        self._shares = factors or [share_of(sentence) for sentence in sentences]
        # What is known, or counts not, has a small worth still: room may be left.
        self._rests = [_KNOWN * self._worth(stems, index) for index, stems in enumerate(self._stems)]
        for index, only in enumerate(counted):
            self._stems[index] &= self._stems[index] if only is None else only
        self.worths = [self._worth(stems, at) + self._rests[at] for at, stems in enumerate(self._stems)]

    def best(
        self,
        cost: Callable[[int], int],
        room: int,
        part: Callable[[int], Hashable] = lambda _: 0,
        least: float = 0.0,
    ) -> list[int]:
        """Indexes of sentences by information per token, best first, each stem counted once.

        `cost` gives the tokens of a sentence; sentences that do not fit into the rest of `room` tokens are
        skipped. Stops when the best remaining one is worth less than `least` per token. Of a `part` that has
        already taken its share of the room a sentence is worth less: half at one share, a third at two.
        """
        parts = [part(index) for index in range(len(self.worths))]
        share = room / len(set(parts)) if len(set(parts)) > 1 else inf
        taken = Counter[Hashable]()
        counted: set[str] = set()
        heap = [
            (-worth / max(1, cost(index)), index)
            for index, worth in enumerate(self.worths)
            if worth and cost(index) <= room
        ]
        heapify(heap)
        chosen: list[int] = []
        while heap:
            known, index = heap[0]
            tokens = max(1, cost(index))
            worth = self._worth(self._stems[index] - counted, index) + self._rests[index]
            worth = worth / tokens / (1 + taken[parts[index]] / share) if tokens <= room else 0.0
            if worth < least or not worth:
                heappop(heap)
            elif worth < -known:
                # A chosen sentence has one of its stems, or its part had a share: it goes back with less.
                heapreplace(heap, (-worth, index))
            else:
                heappop(heap)
                chosen.append(index)
                counted |= self._stems[index]
                taken[parts[index]] += tokens
                room -= tokens
        return chosen

    def _worth(self, stems: frozenset[str], index: int) -> float:
        # Exact, for any order: that of a set of texts is another one in each process.
        return fsum(map(self._weights.__getitem__, stems)) * self._shares[index]


def newest_of_frames(sentences: Sequence[str]) -> frozenset[int]:
    """Indexes of the last of several sentences that differ only in values: "The port is 80", "... is 90".

    Whether they are about one thing is not known: "Ticket 7 is closed", "Ticket 8 is closed". The sentences
    are one speaker's, in order.
    """
    said: dict[str, list[int]] = {}
    for index, sentence in enumerate(sentences):
        said.setdefault(_frame(sentence), []).append(index)
    said.pop("", None)
    return frozenset(found[-1] for found in said.values() if len({sentences[at] for at in found}) > 1)


def _frame(sentence: str) -> str:
    """The words without any value, the same for all sentences of a frame; "" for one without a value."""
    low = _UNSPACED.sub(lambda run: f" {' '.join(run[0])} ", sentence.lower())
    words = _QUOTED.sub(" 0 ", low).split()
    stripped = [word.strip(_MARKS) for word in words]
    dates = entries("dates")
    values = [
        bool(_MAY_HOLD_VALUE.search(word)) or bare in dates
        for word, bare in zip(words, stripped, strict=True)
    ]
    if len(words) > _LONGEST_FRAME or sentence[-1:] in ("?", "？") or not any(values):
        return ""
    leads = entries("leads")
    said = (bare for bare, is_value in zip(stripped, values, strict=True) if not is_value)
    return " ".join(bare for bare in said if bare and bare not in leads)


def forget_stems() -> None:
    """Clears the cache of stems, which holds words of what was read."""
    _stem.cache_clear()


@lru_cache(maxsize=10_000)
def _stem(word: str) -> str:
    word = word.strip("._:'-+~#/\\").removesuffix("'s")
    if not word.isalpha():
        return word
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            word = word[: -len(ending)]
            return word[:-1] if word[-1] == word[-2] and len(word) > _SHORTEST_STEM else word
    return word


def _kind(stem: str, named: frozenset[str]) -> float:
    if not stem.isalpha() and any(map(str.isdigit, stem)):
        return _VALUE
    return _NAME if stem in named or not stem.isalpha() else 1.0


def share_of(sentence: str) -> float:
    """The share of its worth that a sentence keeps: small talk and questions say little, a word less."""
    share = _SINGLE if len(stems_of(sentence)) == 1 else 1.0
    if sentence[-1:] in ("?", "？"):
        share *= _QUESTION
    if opening("filler").match(plain(sentence)) and not any(map(str.isdigit, sentence)):
        share *= _SMALL_TALK
    return share


def details_in(sentence: str) -> int:
    """How many kinds of detail a sentence has, at most 4: a number, a name, a quotation, a time."""
    words = {word.strip(_MARKS) for word in plain(sentence).split()}
    is_timed = any(not words.isdisjoint(entries(key)) for key in ("dates", "times"))
    found = (_TOLD_NAME.search(sentence), _QUOTED.search(sentence), is_timed, any(map(str.isdigit, sentence)))
    return sum(map(bool, found))


@lru_cache(maxsize=1)
def _function_words() -> frozenset[str]:
    """The function words of every table, their stems, and ""."""
    return frozenset({"", *map(_stem, entries("words")), *entries("words")})
