"""Facts: how much a sentence says that the others do not, and which values a later sentence replaced.

Words are counted by cheap stems; nothing is understood. Knows nothing of messages, speakers or blocks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heapreplace
from math import log

from app.core.notes.languages import languages, languages_of, plain, words_in

# How much more than a plain word of the same rarity a stem tells.
_VALUE, _NAME = 2.0, 1.5
# Share of its worth that a question keeps, and a sentence that opens with small talk.
_QUESTION, _SMALL_TALK = 0.3, 0.15
_ANSWER = 1.5
# A sentence of one stem is a word without its context.
_SINGLE = 0.5
# Characters of a value that means the same wherever it stands: "8080" does, "3" does not.
_LEAST_VALUE = 4
# Characters that a stem keeps at least.
_SHORTEST_STEM = 4
_ENDINGS = ("ingly", "edly", "ing", "ed", "ies", "es", "s", "ly", "en", "er", "e")
_HALVES_OF_DAY = frozenset({"am", "pm", "a.m", "p.m", "uhr"})
_SPLIT = str.maketrans(dict.fromkeys(',;!?()[]{}"“”„«»*`…¿¡<>|=。，、；：！？「」『』（）', " "))
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]+")
_NAMES = re.compile(r"(?<=[a-zß-ÿ,;:] )[A-Z][\w'-]+(?: [A-Z][\w'-]+)*")
_QUOTED = re.compile(r"[\"“`«]([^\"”`»\n]{1,80})[\"”`»]")


def words_of(sentence: str) -> frozenset[str]:
    """The stems that carry information: words, numbers, names and ids, without function words.

    In lower case, a suffix cut; text without spaces between words gives pairs of characters.
    """
    low = plain(sentence)
    found = low.translate(_SPLIT).split()
    if not low.isascii() and _UNSPACED.search(low):
        found = [part for word in found for part in _pairs(word)]
    return frozenset(map(_stem, found)) - _function_words()


class Information:
    """How much each sentence of a conversation says that the others do not.

    The weight of a stem is its rarity among the sentences (log), more for numbers, dates, amounts, ids
    (whatever has a digit), names and quoted words. Questions and small talk keep a part of theirs, and
    `answers` (indexes) say half as much again. Of requests a question is what they are about, and small
    talk opens them only.
    """

    def __init__(
        self, sentences: Sequence[str], answers: Collection[int] = (), *, are_requests: bool = False
    ) -> None:
        self._stems = [words_of(sentence) for sentence in sentences]
        frequency = Counter(stem for stems in self._stems for stem in stems)
        telling = _telling(sentences)
        self._weights = {
            stem: log(1 + len(sentences) / count) * _kind(stem, telling) for stem, count in frequency.items()
        }
        self._shares = shares = [
            _share("" if are_requests else sentence, stems) * (_ANSWER if index in answers else 1.0)
            for index, (sentence, stems) in enumerate(zip(sentences, self._stems, strict=True))
        ]
        weight = self._weights.__getitem__
        self.worths = [
            sum(map(weight, stems)) * part for stems, part in zip(self._stems, shares, strict=True)
        ]

    def best(
        self, wanted: Callable[[int], bool] | None, cost: Callable[[int], int], room: int, least: float
    ) -> list[int]:
        """Indexes of sentences by information per token, best first, each stem counted once.

        `cost` gives the tokens of a sentence; those that do not fit into what is left of `room` are
        passed over. Stops when the best one left is worth less than `least` per token.
        """
        heap = []
        costs = {}
        for index, worth in enumerate(self.worths):
            if worth and (wanted is None or wanted(index)):
                costs[index] = tokens = max(1, cost(index))
                if tokens <= room and worth >= least * tokens:
                    heap.append((-worth / tokens, index))
        heapify(heap)
        told: set[str] = set()
        chosen: list[int] = []
        while heap:
            known, index = heap[0]
            tokens = costs[index]
            worth = self._worth(self._stems[index] - told, index) / tokens if tokens <= room else 0.0
            if worth < least or not worth:
                heappop(heap)
            elif worth < -known:
                # A stem of it was told since: it goes back to its new place.
                heapreplace(heap, (-worth, index))
            else:
                heappop(heap)
                chosen.append(index)
                told |= self._stems[index]
                room -= tokens
        return chosen

    def _worth(self, stems: frozenset[str], index: int) -> float:
        return sum(map(self._weights.__getitem__, stems)) * self._shares[index]


def replaced(sentences: Sequence[str]) -> Mapping[int, tuple[int, str]]:
    """Index of a sentence -> index and value of the last one with the same frame and another value.

    The same frame: the same words in the same order, exactly one value different. A value is a number,
    amount, date, version, id, path or quoted text that stands behind a word like "is", "to" or "have"
    and before no verb of being, so that "Ticket 7 is closed" and "Ticket 8 is closed" are two subjects.
    The sentences are one speaker's, in order. A value that is said again later holds.
    """
    found: dict[int, tuple[int, str]] = {}
    for said in _framed(sentences).values():
        last, value = said[-1]
        for index, earlier in said[:-1]:
            if earlier != value:
                found[index] = max((last, value), found.get(index, (0, "")))
    return found


def put_aside(sentence: str) -> frozenset[str]:
    """Values of which the sentence says that they hold no more ("instead of SQLite-41"), in lower case.

    A value has a digit, a mark or a capital inside: of plain words nobody knows what they stand for.
    """
    text = sentence.replace("*", "").replace("`", "")
    low = plain(text)
    words = words_in(low)
    if len(low) != len(text) or (low.isascii() and _putting_aside().isdisjoint(words)):
        return frozenset()
    known = languages_of(low, words) or (languages()["en"],)
    spans = {found.span(1) for each in known for found in each.instead.finditer(low)}
    named = [text[first:last].rstrip(".:") for first, last in spans]
    return frozenset(
        value.lower()
        for value in named
        if len(value) >= _LEAST_VALUE
        and (_VALUE_SHAPE.fullmatch(value.lower()) or any(map(str.isupper, value[1:])))
    )


def _framed(sentences: Sequence[str]) -> dict[tuple[str, ...], list[tuple[int, str]]]:
    """Every frame with the sentences that have it, in order, and the value of each."""
    outlined: dict[str, list[int]] = {}
    for index, sentence in enumerate(sentences):
        if outline := outline_of(sentence):
            outlined.setdefault(outline, []).append(index)
    framed: dict[tuple[str, ...], list[tuple[int, str]]] = {}
    for indexes in outlined.values():
        for index in indexes if len(indexes) > 1 else ():
            for frame, value in _frames(sentences[index]):
                framed.setdefault(frame, []).append((index, value))
    return framed


_TOKEN = re.compile(r"[\"“`«]([^\"”`»\n]{1,80})[\"”`»]|((?:[^\s,;!?=()\[\]{}\"“”`«»]|(?<=\d),(?=\d))+)|(=)")
_VALUE_SHAPE = re.compile(r"(?=.*\d)[$€£¥#]?[\w.,:/@+%€-]+|.*[/_@].*|[\w-]+\.[a-z]\w{0,4}")
_MAY_HOLD_VALUE = re.compile(r"[\d/_@=]|\.[a-z]")
_MARKS = ".,:;!?*'’\"`()[]"
# Words of a sentence beyond which it says more than one thing.
_LONGEST_FRAME = 30


def outline_of(sentence: str) -> str:
    """The words with every value left open, "" without a value: sentences of one frame have the same."""
    dates = _dates()
    low = _spaced(sentence.lower())
    if '"' in low or "`" in low or not low.isascii():
        low = _QUOTED.sub(" 0 ", low)
    words = low.split()
    if len(words) > _LONGEST_FRAME * 2 or (dates.isdisjoint(words) and not _MAY_HOLD_VALUE.search(low)):
        return ""
    open_words = [
        "" if word in dates or (not word.isalpha() and _MAY_HOLD_VALUE.search(word)) else word.strip(_MARKS)
        for word in words
    ]
    leads = _entries("leads")
    kept = [word for word in open_words if word and word not in leads]
    return " ".join(kept) if len(kept) < len(words) else ""


def _frames(sentence: str) -> list[tuple[tuple[str, ...], str]]:
    """The sentence once for each of its values, with that value's place left open, and the value."""
    if len(sentence) > _LONGEST_FRAME * 10 or sentence[-1:] in ("?", "？"):
        return []
    tokens = _tokens(sentence)
    if len(tokens) > _LONGEST_FRAME or not any(is_value for _, is_value in tokens):
        return []
    low = plain(sentence)
    known = languages_of(low, words_in(low)) or (languages()["en"],)
    binding = {word for language in known for word in language["is"]} | {"="}
    being = {word for language in known for word in language["be"]}
    words = [token for token, _ in tokens]
    while words and any(words[0] in language["leads"] for language in known):
        del words[0], tokens[0]
    bound = False
    frames = []
    for place, (token, is_value) in enumerate(tokens):
        if is_value and bound and being.isdisjoint(words[place + 1 :]):
            frames.append(((*words[:place], "\0", *words[place + 1 :]), token))
        bound = bound or token in binding or token.endswith(":")
    return frames


def _tokens(sentence: str) -> list[tuple[str, bool]]:
    """The words in lower case, each with whether it is a value; "May 3" and "3 pm" are one value."""
    months, weekdays = _entries("months"), _entries("weekdays")
    found: list[tuple[str, bool]] = []
    for quoted, run, sign in _TOKEN.findall(_spaced(sentence.lower())):
        token = (quoted or run.strip("*'’_").rstrip(".") or sign).strip()
        is_value = bool(quoted) or token in weekdays or _VALUE_SHAPE.fullmatch(token) is not None
        before, was_value = found[-1] if found else ("", False)
        dated = before in months or (was_value and not months.isdisjoint(before.split()))
        ends_value = was_value and (token in months or token in _HALVES_OF_DAY)
        if ends_value or (dated and is_value and not quoted):
            found[-1] = (f"{before} {token}", True)
        elif token:
            found.append((token, is_value and token[-1] != ":"))
    return found


def _spaced(low: str) -> str:
    """Text without spaces between words, a character a word."""
    return low if low.isascii() else _UNSPACED.sub(lambda run: f" {' '.join(run[0])} ", low)


@lru_cache(maxsize=50_000)
def _stem(word: str) -> str:
    word = word.strip("._:'-+~#/\\").removesuffix("'s")
    if not word.isalpha():
        return word
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            word = word[: -len(ending)]
            return word[:-1] if word[-1] == word[-2] and len(word) > _SHORTEST_STEM else word
    return word


def _pairs(word: str) -> list[str]:
    parts: list[str] = []
    for run in _UNSPACED.findall(word):
        parts += [run[at : at + 2] for at in range(max(1, len(run) - 1))]
    return [*parts, *_UNSPACED.sub(" ", word).split()]


def _telling(sentences: Sequence[str]) -> frozenset[str]:
    """Stems of names (a capital inside a sentence) and of quoted words."""
    text = "\n".join(sentences)
    return frozenset(
        _stem(word)
        for part in (*_NAMES.findall(text), *_QUOTED.findall(text))
        for word in plain(part).translate(_SPLIT).split()
    )


def _kind(stem: str, telling: frozenset[str]) -> float:
    if not stem.isalpha() and any(map(str.isdigit, stem)):
        return _VALUE
    return _NAME if stem in telling or not stem.isalpha() else 1.0


def _share(sentence: str, stems: frozenset[str]) -> float:
    share = _SINGLE if len(stems) == 1 else 1.0
    if sentence[-1:] in ("?", "？"):
        share *= _QUESTION
    if _small_talk().match(sentence.lower()) and not any(map(str.isdigit, sentence)):
        share *= _SMALL_TALK
    return share


@lru_cache(maxsize=32)
def _entries(key: str) -> frozenset[str]:
    return frozenset(entry for language in languages().values() for entry in language[key])


@lru_cache(maxsize=1)
def _putting_aside() -> frozenset[str]:
    """The longest word of each phrase: a sentence without one of them puts nothing aside."""
    return frozenset(max(phrase.split(), key=len) for phrase in _entries("instead"))


@lru_cache(maxsize=1)
def _dates() -> frozenset[str]:
    days = _entries("months") | _entries("weekdays") | _HALVES_OF_DAY
    return days | {f"{day}{mark}" for day in days for mark in ".,!"}


@lru_cache(maxsize=1)
def _function_words() -> frozenset[str]:
    """Stems of the function words of every table, and nothing at all."""
    return frozenset({"", *map(_stem, _entries("words")), *_entries("words")})


@lru_cache(maxsize=1)
def _small_talk() -> re.Pattern[str]:
    openings = sorted(_entries("filler"), key=len, reverse=True)
    return re.compile(rf"\W*(?:{'|'.join(map(re.escape, openings))})(?![^\W\d_a-z]*[a-z])")
