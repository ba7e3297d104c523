"""The words of a text as they are looked for: in one case, without accents, by their stems.

Names with dots, slashes, dashes or colons count whole and in their parts; text without spaces between
words (Chinese, Japanese) counts by pairs of characters. Knows nothing of what is searched.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cached_property

from snowballstemmer import stemmer

from app.core.recall.irregular import base_of
from app.core.recall.related import related_of

# Runs of letters and digits, joined by what joins the parts of names.
_RUN = re.compile(r"[^\W_]+(?:[-_./:@'’+#]+[^\W_]+)*")
_PART = re.compile(r"[^\W_]+")
_POSSESSIVE = re.compile(r"['’]s$")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
# Characters: a longer run is data, of which the beginning is enough to find it.
_LONGEST = 64
# Parts of one name that are looked for by themselves, the last ones.
_PARTS = 32
# Characters of a word that its stem has too, nearly always.
_BEGINNING = 2
# Letters that no English ending ends in: such words are their stems. A stemmer needs 0.1 ms to find out.
_NO_ENDING = frozenset("abfhjkopquvwxz0123456789")
# Words whose stems are remembered; a person's vocabulary, a few times over.
_REMEMBERED = 50_000


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


STOP = _words(
    """a about after all also am an and any are as at be because been before being between both but by can
    could did do does doing during each few for from had has have having he her here hers him his
    how i if in into is it its just me more most my no nor not of on once only or other our out over
    own same she should so some such than that the their them then there these they this those
    through to too up us very was we were what when where which while who whom whose why will with
    would you your ain't aren't can't couldn't didn't doesn't don't hadn't hasn't haven't isn't
    let's shouldn't wasn't weren't won't wouldn't i'm i've i'll i'd you're you've we're we've
    they're that's it's there's what's who's please tell ever get got go goes going went like really
    yeah yes ok okay oh hey hi hello thanks thank"""
)
"""English words that say nothing of what a text is about; in one case, not stemmed."""


class Words:
    """Stems words and remembers them. Several threads may use one: each step on what is shared is one."""

    def __init__(self) -> None:
        self._stems: dict[str, str] = {}

    def of(self, text: str, beginnings: frozenset[str] | None = None) -> list[str]:
        """The words in order, as they are looked for; words that say nothing are left out.

        With `beginnings` the words that begin otherwise stand as "": most of the time goes into their stems.
        """
        found: list[str] = []
        for run in _RUN.findall(plain(text)):
            self._add(run, found, beginnings)
        return found

    def forget(self) -> None:
        """Nothing of what was read is remembered (P6)."""
        self._stems = {}

    def related(self, word: str) -> frozenset[str]:
        """Other words, as they are looked for, that speak of the same thing; most words have none."""
        return self._kin.get(word, frozenset())

    @cached_property
    def _kin(self) -> dict[str, frozenset[str]]:
        # 60 ms, for the first question only: a start must not take longer for it.
        return related_of(_stem_of)

    def _add(self, run: str, found: list[str], beginnings: frozenset[str] | None) -> None:
        word = _POSSESSIVE.sub("", run)
        if run in STOP or base_of(word) in STOP:
            return
        if _UNSPACED.search(word):
            word = word[:_LONGEST]
            found += [word[i : i + 2] for i in range(max(1, len(word) - 1))]
            return
        parts = _PART.findall(word)
        if len(parts) > 1:
            found.append(word[:_LONGEST])
            # A path is cut where it is long; the names in it are looked for by themselves.
            told = [part for part in parts[-_PARTS:] if part not in STOP and len(part) > 1]
            found += [self._stem(part, beginnings) for part in told]
        else:
            found.append(self._stem(word, beginnings))

    def _stem(self, word: str, beginnings: frozenset[str] | None) -> str:
        if beginnings is not None and base_of(word)[:_BEGINNING] not in beginnings:
            return ""
        known = self._stems.get(word)
        if known is None:
            if len(self._stems) >= _REMEMBERED:
                self._stems = {}
            known = self._stems[word] = _stem_of(word[:_LONGEST])
        return known


def _stem_of(word: str) -> str:
    base = base_of(word)
    if base[-1:] in _NO_ENDING or not base.isascii():
        return base
    # A stemmer keeps the word it is at: one for each, for they cost less than a lock.
    return str(stemmer("english").stemWord(base))


def beginnings_of(words: Iterable[str]) -> frozenset[str]:
    """How words begin whose stems these are: a stemmer changes ends, but makes "dying" into "die"."""
    begun = {word[:_BEGINNING] for word in words}
    return frozenset(begun | {f"{begin[0]}y" for begin in begun if begin[1:] == "i"})


def plain(text: str) -> str:
    """`text` in one case and without accents; compatible forms of a character are one."""
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in apart if not unicodedata.combining(char))
