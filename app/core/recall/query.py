"""A question in anybody's words, as it is looked for. Any text is one; none is an error.

Knows nothing of indexes: a store translates the words into its own query language.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from app.core.recall.talk import Asked, asked_for
from app.core.recall.words import Words, beginnings_of, plain

# C15: more words of a query are not looked for.
MOST_WORDS = 12
# Words looked for together, related ones included.
MOST_LOOKED_FOR = 96
# Characters of a query that are read.
_READ_CHARS = 2_000
_QUOTED = re.compile(r"[\"“”]([^\"“”\n]{2,200})[\"“”]")


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for: at most twelve `words`, each once; `phrases` stood in quotation marks, in one case.

    `related` are other words for each of them, worth less. `asked`: what an answer should tell.
    """

    text: str
    words: tuple[str, ...]
    related: tuple[frozenset[str], ...]
    phrases: tuple[str, ...]
    asked: frozenset[Asked]

    @property
    def every(self) -> tuple[str, ...]:
        """Its words, then the related ones: at most `MOST_LOOKED_FOR`, each once."""
        kin = (other for others in self.related for other in sorted(others))
        return tuple(dict.fromkeys((*self.words, *kin)))[:MOST_LOOKED_FOR]

    @property
    def beginnings(self) -> frozenset[str]:
        """How all its words begin, for `Words.of`: what begins otherwise is none of them."""
        return beginnings_of((*self.words, *(other for others in self.related for other in others)))


def query_of(text: str, words: Words) -> Query:
    """The query of a text; one of nothing but small words has no words, and is found by its letters only."""
    read = text[:_READ_CHARS]
    found = tuple(dict.fromkeys(words.of(read)))
    # The longer a word the more it tells, where not all can be looked for.
    chosen = found if len(found) <= MOST_WORDS else _telling(found)
    low = plain(read)
    return Query(
        text=read.strip(),
        words=chosen,
        related=tuple(words.related(word) - set(chosen) for word in chosen),
        phrases=tuple(phrase.strip() for phrase in _QUOTED.findall(low) if phrase.strip()),
        asked=asked_for(low),
    )


def _telling(words: tuple[str, ...]) -> tuple[str, ...]:
    chosen = set(sorted(words, key=lambda word: (-len(word), words.index(word)))[:MOST_WORDS])
    return tuple(word for word in words if word in chosen)
