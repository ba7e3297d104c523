"""What can be found: one message, summary or large payload, and what is found of it.

Plain values. Knows nothing of how they are ranked or stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["message", "summary", "payload"]


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that may be found. `place` orders what is searched: neighbours differ by one.

    `role` is a message's; "" for the others. `at` is UTC seconds.
    """

    id: str
    kind: Kind
    role: str
    place: int
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Holdings:
    """What is searched as a whole: how many entries, their mean length, and how many hold each word.

    `mean_words` is above 0; a word that is not in `holding` is taken to be in one entry.
    """

    entries: int
    mean_words: float
    holding: Mapping[str, int]


def joined(one: Holdings, other: Holdings) -> Holdings:
    """What both hold; what is in both counts twice."""
    entries = one.entries + other.entries
    words = one.entries * one.mean_words + other.entries * other.mean_words
    holding = {
        word: one.holding.get(word, 0) + other.holding.get(word, 0) for word in {*one.holding, *other.holding}
    }
    return Holdings(entries, max(1.0, words / max(1, entries)), holding)
