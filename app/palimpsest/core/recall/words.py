"""Splits text into searchable words, and describes searchable entries.

Names with dots, slashes, dashes or colons yield the whole and its parts; text without spaces between words
(Chinese, Japanese) yields pairs of characters. Pure.

Irregular forms of English words, and groups of related words, are in `tables/`. A stemmer cannot relate
irregular forms: "went" is searched as "go", "wives" as "wife", "colour" as "color", "twelfth" as "12".
Ambiguous forms are listed only where the wrong reading costs little: "left" is a form of "leave", but "rose",
"bit", "ground", "lives" and "second" are not listed. Groups serve questions that use other words than their
answers; words with very broad meanings are in no group, to keep hits relevant.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from types import MappingProxyType
from typing import Literal


@cache
def forms() -> Mapping[str, str]:
    """The base form of each listed form, in lower case. A base form is never listed as a form."""
    known: dict[str, str] = {}
    for line in _lines("spelled.txt"):
        endings, _, roots = line.partition(": ")
        british, _, american = endings.partition(" = ")
        known |= {root + end: root + american for root in roots.split() for end in british.split()}
    for line in _lines("forms.txt"):
        base, _, others = line.partition(": ")
        known |= dict.fromkeys(others.split(), base)
    return MappingProxyType(known)


def base_of(word: str) -> str:
    """The base form of `word` (in lower case); the word itself if it is not listed."""
    return forms().get(word, word)


@cache
def groups() -> tuple[tuple[str, ...], ...]:
    """Groups of related words, in their base form and in no particular order."""
    return tuple(tuple(line.split()) for line in _lines("related.txt"))


def related_of(stem_word: Callable[[str], str]) -> dict[str, frozenset[str]]:
    """For the stem of each word in a group, the other stems of all its groups; symmetric, never empty.

    Computed anew by every call.
    """
    related: dict[str, set[str]] = {}
    for group in groups():
        stems = {stem_word(word) for word in group}
        for stem in stems:
            related.setdefault(stem, set()).update(stems - {stem})
    return {stem: frozenset(others) for stem, others in related.items()}


def _lines(name: str) -> list[str]:
    """The lines of a table without comments."""
    text = files("palimpsest.core.recall").joinpath("tables", name).read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


# Runs of letters and digits, joined by characters that occur inside names.
_RUN = re.compile(r"[^\W_]+(?:[-_./:@'’+#]+[^\W_]+)*")
_PART = re.compile(r"[^\W_]+")
_POSSESSIVE = re.compile(r"['’]s$")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
# Characters. A longer run is data, which its beginning is enough to find.
_LONGEST_WORD = 64
# The most parts of one name that are searchable by themselves, counted from its end.
_MOST_PARTS = 32
# Characters that a word nearly always shares with its stem.
_BEGINNING_CHARS = 2
# No English suffix ends in these: such words are their own stems. Spares the stemmer, which takes 0.1 ms.
_NO_SUFFIX = frozenset("abfhjkopquvwxz0123456789")
# Runs and stems that are cached: about a person's vocabulary. Longer runs rarely occur twice.
_MOST_CACHED = 10_000


_STOP_TEXT = """
    a about after all also am an and any are as at be because been before being between both but by can
    could did do does doing during each few for from had has have having he her here hers him his
    how i if in into is it its just me more most my no nor not of on once only or other our out over
    own same she should so some such than that the their them then there these they this those
    through to too up us very was we were what when where which while who whom whose why will with
    would you your ain't aren't can't couldn't didn't doesn't don't hadn't hasn't haven't isn't
    let's shouldn't wasn't weren't won't wouldn't i'm i've i'll i'd you're you've we're we've
    they're that's it's there's what's who's please tell ever get got go goes going went like really
    yeah yes ok okay oh hey hi hello thanks thank
"""
STOP = frozenset(_STOP_TEXT.split())
"""English stop words; in lower case, not stemmed."""


class Words:
    """Splits text into words and stems them, with caches. Thread-safe: accesses to the caches are atomic."""

    def __init__(self) -> None:
        # The words of a run: nearly every run of a text was seen before.
        self._runs: dict[str, tuple[str, ...]] = {}
        self._stems: dict[str, str] = {}

    def of(self, text: str, beginnings: frozenset[str] | None = None) -> list[str]:
        """The stemmed words in order, without stop words.

        With `beginnings`, words that begin otherwise become "", which spares most of the time: stemming.
        """
        found: list[str] = []
        runs = _RUN.findall(plain(text))
        if beginnings is not None:
            for run in runs:
                found += self._words_in(run, beginnings)
            return found
        known = self._runs
        for run in runs:
            words = known.get(run)
            if words is None:
                words = self._words_in(run, None)
                if len(run) <= _LONGEST_WORD:
                    if len(known) >= _MOST_CACHED:
                        known = self._runs = {}
                    known[run] = words
            found += words
        return found

    def forget(self) -> None:
        """Clears the caches, which hold words of what was read (P6)."""
        self._runs, self._stems = {}, {}

    def related(self, word: str) -> frozenset[str]:
        """The stems of related words; most words have none."""
        return self._related_stems.get(word, frozenset())

    @cached_property
    def _related_stems(self) -> dict[str, frozenset[str]]:
        # Takes 60 ms, so it is computed for the first query and not at start.
        return related_of(_stem_of)

    def _words_in(self, run: str, beginnings: frozenset[str] | None) -> tuple[str, ...]:
        word = _POSSESSIVE.sub("", run)
        if run in STOP or base_of(word) in STOP:
            return ()
        if _UNSPACED.search(word):
            word = word[:_LONGEST_WORD]
            return tuple(word[i : i + 2] for i in range(max(1, len(word) - 1)))
        parts = _PART.findall(word)
        if len(parts) == 1:
            return (self._stem(word, beginnings),)
        # A long path is cut; the names in it are searchable by themselves.
        names = [part for part in parts[-_MOST_PARTS:] if part not in STOP and len(part) > 1]
        return (word[:_LONGEST_WORD], *(self._stem(part, beginnings) for part in names))

    def _stem(self, word: str, beginnings: frozenset[str] | None) -> str:
        if beginnings is not None and base_of(word)[:_BEGINNING_CHARS] not in beginnings:
            return ""
        known = self._stems.get(word)
        if known is None:
            if len(self._stems) >= _MOST_CACHED:
                self._stems = {}
            known = self._stems[word] = _stem_of(word[:_LONGEST_WORD])
        return known


def _stem_of(word: str) -> str:
    base = base_of(word)
    if base[-1:] in _NO_SUFFIX or not base.isascii():
        return base
    # The import loads the stemmers of thirty languages (3 MB, 10 ms), so it waits for the first word.
    from snowballstemmer import stemmer

    # A stemmer holds the current word as state. A new one for each word costs less than a lock.
    return str(stemmer("english").stemWord(base))


def beginnings_of(words: Iterable[str]) -> frozenset[str]:
    """The beginnings of words with these stems. Stemming keeps them, except that "dying" becomes "die"."""
    begun = {word[:_BEGINNING_CHARS] for word in words}
    return frozenset(begun | {f"{begin[0]}y" for begin in begun if begin[1:] == "i"})


def plain(text: str) -> str:
    """`text` in lower case and without accents, with compatible forms of a character unified."""
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in apart if not unicodedata.combining(char))


Kind = Literal["message", "summary", "payload"]


@dataclass(frozen=True, slots=True)
class SearchEntry:
    """A searchable message, summary or payload. `place` is its position: neighbours differ by one.

    `role` is "" except for messages. `at` is UTC seconds. `turn` counts the user's messages up to it; 0 where
    the path is unknown, and `place` then is no number of a message. `name`: whom the message itself names.
    """

    id: str
    kind: Kind
    role: str
    place: int
    at: float
    text: str
    turn: int = 0
    name: str = ""
    tokens: int = 0
    session: str = ""


@dataclass(frozen=True, slots=True)
class CorpusStatistics:
    """Statistics of the searched corpus: number of entries, mean length, and entries that hold each word.

    `mean_words` is above 0; a word that is not in `holding` is taken to be in one entry.
    """

    entries: int
    mean_words: float
    holding: Mapping[str, int]


def joined(one: CorpusStatistics, other: CorpusStatistics) -> CorpusStatistics:
    """The statistics of two corpora together; an entry in both counts twice."""
    entries = one.entries + other.entries
    words = one.entries * one.mean_words + other.entries * other.mean_words
    holding = {
        word: one.holding.get(word, 0) + other.holding.get(word, 0) for word in {*one.holding, *other.holding}
    }
    return CorpusStatistics(entries, max(1.0, words / max(1, entries)), holding)
