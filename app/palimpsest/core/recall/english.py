"""Irregular forms of English words, and groups of related words, from the tables in `tables/`.

A stemmer cannot relate irregular forms: "went" is searched as "go", "wives" as "wife", "colour" as "color",
"twelfth" as "12". Ambiguous forms are listed only where the wrong reading costs little: "left" is a form of
"leave", but "rose", "bit", "ground", "lives" and "second" are not listed. Groups serve questions that use
other words than their answers; words with very broad meanings are in no group, to keep hits relevant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType


@cache
def forms() -> Mapping[str, str]:
    """The base form of each listed form, in lower case. A base form is never listed as a form."""
    return MappingProxyType(dict(_spelled()) | dict(_listed()))


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


def _listed() -> Iterator[tuple[str, str]]:
    for line in _lines("forms.txt"):
        base, _, others = line.partition(": ")
        yield from ((form, base) for form in others.split())


def _spelled() -> Iterator[tuple[str, str]]:
    for line in _lines("spelled.txt"):
        endings, _, roots = line.partition(": ")
        british, _, american = endings.partition(" = ")
        yield from ((root + end, root + american) for root in roots.split() for end in british.split())


def _lines(name: str) -> list[str]:
    """The lines of a table without comments."""
    text = files("palimpsest.core.recall").joinpath("tables", name).read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]
