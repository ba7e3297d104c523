"""Facts: the information of a sentence beyond that of the others, and the newest value of several.

Words are compared by cheap stems; nothing is understood.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heapreplace
from math import fsum, log

from palimpsest.core.notes.languages import entries, languages, languages_of, plain, words_in

# Weights of stems, relative to a plain word of the same rarity.
_VALUE, _NAME = 2.0, 1.5
# Share of its worth that a question keeps, and that a sentence with small talk in front keeps.
_QUESTION, _SMALL_TALK = 0.3, 0.15
_ANSWER = 1.5
# Share of its worth that a sentence of one stem keeps: it is a word without context.
_SINGLE = 0.5
# Characters that a stem keeps at least.
_SHORTEST_STEM = 4
_ENDINGS = ("ingly", "edly", "ing", "ed", "ies", "es", "s", "ly", "en", "er", "e")
_HALVES_OF_DAY = frozenset({"am", "pm", "a.m", "p.m", "uhr"})
_SPLIT = str.maketrans(dict.fromkeys(',;!?()[]{}"“”„«»*`…¿¡<>|=。，、；：！？「」『』（）', " "))
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]+")
_NAMES = re.compile(r"(?<=[a-zß-ÿ,;:] )[A-Z][\w'-]+(?: [A-Z][\w'-]+)*")
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
    ids (whatever has a digit), times 1.5 for names and quoted words. Questions and small talk keep a share
    of their worth; the sentences `answers` (indexes) count 1.5 times. With `are_requests` neither loses
    anything: a request is a question, and small talk only opens it.
    """

    def __init__(
        self, sentences: Sequence[str], answers: Collection[int] = (), *, are_requests: bool = False
    ) -> None:
        self._stems = [stems_of(sentence) for sentence in sentences]
        frequency = Counter(stem for stems in self._stems for stem in stems)
        named = _names_and_quotes(sentences)
        self._weights = {
            stem: log(1 + len(sentences) / count) * _kind(stem, named) for stem, count in frequency.items()
        }
        self._shares = shares = [
            _share("" if are_requests else sentence, stems) * (_ANSWER if index in answers else 1.0)
            for index, (sentence, stems) in enumerate(zip(sentences, self._stems, strict=True))
        ]
        weight = self._weights.__getitem__
        self.worths = [
            fsum(map(weight, stems)) * part for stems, part in zip(self._stems, shares, strict=True)
        ]

    def best(
        self, wanted: Callable[[int], bool] | None, cost: Callable[[int], int], room: int, least: float
    ) -> list[int]:
        """Indexes of sentences by information per token, best first, each stem counted once.

        `cost` gives the tokens of a sentence; sentences that do not fit into the rest of `room` tokens are
        skipped. Stops when the best remaining one is worth less than `least` per token.
        """
        heap = []
        costs = {}
        for index, worth in enumerate(self.worths):
            if worth and (wanted is None or wanted(index)):
                costs[index] = tokens = max(1, cost(index))
                if tokens <= room and worth >= least * tokens:
                    heap.append((-worth / tokens, index))
        heapify(heap)
        counted: set[str] = set()
        chosen: list[int] = []
        while heap:
            known, index = heap[0]
            tokens = costs[index]
            worth = self._worth(self._stems[index] - counted, index) / tokens if tokens <= room else 0.0
            if worth < least or not worth:
                heappop(heap)
            elif worth < -known:
                # A chosen sentence has one of its stems: it goes back with its lower worth.
                heapreplace(heap, (-worth, index))
            else:
                heappop(heap)
                chosen.append(index)
                counted |= self._stems[index]
                room -= tokens
        return chosen

    def _worth(self, stems: frozenset[str], index: int) -> float:
        # Exact, for any order: that of a set of texts is another one in each process.
        return fsum(map(self._weights.__getitem__, stems)) * self._shares[index]


def newest_of_frames(sentences: Sequence[str]) -> frozenset[int]:
    """Indexes of the last sentences with a frame where an earlier one has another value in it.

    Two sentences have the same frame when they have the same words in the same order except for one value:
    a number, amount, date, version, id, path or quoted text after a word like "is", "to" or "have" and
    before no verb of being, so that "Ticket 7 is closed" and "Ticket 8 is closed" are two subjects. The
    sentences are one speaker's, in order.
    """
    outlined: dict[str, list[int]] = {}
    for index, sentence in enumerate(sentences):
        if outline := frame_outline(sentence):
            outlined.setdefault(outline, []).append(index)
    framed: dict[tuple[str, ...], list[tuple[int, str]]] = {}
    for indexes in outlined.values():
        for index in indexes if len(indexes) > 1 else ():
            for frame, value in _frames(sentences[index]):
                framed.setdefault(frame, []).append((index, value))
    said = framed.values()
    return frozenset(each[-1][0] for each in said if any(value != each[-1][1] for _, value in each))


_TOKEN = re.compile(r"[\"“`«]([^\"”`»\n]{1,80})[\"”`»]|((?:[^\s,;!?=()\[\]{}\"“”`«»]|(?<=\d),(?=\d))+)|(=)")
_VALUE_SHAPE = re.compile(r"(?=.*\d)[$€£¥#]?[\w.,:/@+%€-]+|.*[/_@].*|[\w-]+\.[a-z]\w{0,4}")
_MAY_HOLD_VALUE = re.compile(r"[\d/_@=]|\.[a-z]")
_MARKS = ".,:;!?*'’\"`()[]"
# Words of a frame; a longer sentence says more than one thing.
_LONGEST_FRAME = 30


def frame_outline(sentence: str) -> str:
    """The words without any value, the same for all sentences of a frame; "" for one without a value."""
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
    leads = entries("leads")
    kept = [word for word in open_words if word and word not in leads]
    return " ".join(kept) if len(kept) < len(words) else ""


def _frames(sentence: str) -> list[tuple[tuple[str, ...], str]]:
    """(frame, value) for each value of the sentence: the frame has a gap in its place."""
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
    """(word in lower case, whether it is a value); "May 3" and "3 pm" are one value."""
    months, weekdays = entries("months"), entries("weekdays")
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
    """The text with spaces between the characters of scripts that have none between words."""
    return low if low.isascii() else _UNSPACED.sub(lambda run: f" {' '.join(run[0])} ", low)


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


def _names_and_quotes(sentences: Sequence[str]) -> frozenset[str]:
    """Stems of names (a capital inside a sentence) and of quoted words."""
    text = "\n".join(sentences)
    return frozenset(
        _stem(word)
        for part in (*_NAMES.findall(text), *_QUOTED.findall(text))
        for word in plain(part).translate(_SPLIT).split()
    )


def _kind(stem: str, named: frozenset[str]) -> float:
    if not stem.isalpha() and any(map(str.isdigit, stem)):
        return _VALUE
    return _NAME if stem in named or not stem.isalpha() else 1.0


def _share(sentence: str, stems: frozenset[str]) -> float:
    share = _SINGLE if len(stems) == 1 else 1.0
    if sentence[-1:] in ("?", "？"):
        share *= _QUESTION
    if _small_talk().match(sentence.lower()) and not any(map(str.isdigit, sentence)):
        share *= _SMALL_TALK
    return share


@lru_cache(maxsize=1)
def _dates() -> frozenset[str]:
    days = entries("months") | entries("weekdays") | _HALVES_OF_DAY
    return days | {f"{day}{mark}" for day in days for mark in ".,!"}


@lru_cache(maxsize=1)
def _function_words() -> frozenset[str]:
    """The function words of every table, their stems, and ""."""
    return frozenset({"", *map(_stem, entries("words")), *entries("words")})


@lru_cache(maxsize=1)
def _small_talk() -> re.Pattern[str]:
    openings = sorted(entries("filler"), key=len, reverse=True)
    return re.compile(rf"\W*(?:{'|'.join(map(re.escape, openings))})(?![^\W\d_a-z]*[a-z])")
