"""What the pages of search and state show: hits with the words found marked, and a state as lines of text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from palimpsest.core.utc import moment
from palimpsest.proxy.recall.searching import SearchAnswer

_WORD = re.compile(r"\w+")
# Of a word with more letters any form of it is marked, as the index finds it.
_STEM_LETTERS = 5


@dataclass(frozen=True, slots=True)
class FoundText:
    """A hit: `pieces` are its text in order, each with whether it is one of the words asked for."""

    id: str
    role: str
    at: datetime
    session: str
    pieces: Sequence[tuple[str, bool]]


def hits_of(answer: SearchAnswer, asked: str) -> list[FoundText]:
    """The hits, best first."""
    return [
        FoundText(
            hit.quote.entry.id,
            hit.quote.entry.role or hit.quote.entry.kind,
            moment(hit.quote.entry.at),
            answer.rows[hit.quote.entry.id].session,
            marked(hit.quote.text, asked),
        )
        for hit in answer.hits
    ]


def marked(text: str, asked: str) -> list[tuple[str, bool]]:
    """The text in pieces; words that begin like one asked for are marked."""
    stems = tuple({word[:_STEM_LETTERS].casefold() for word in _WORD.findall(asked)})
    pieces, end = [], 0
    for found in _WORD.finditer(text):
        if stems and found[0].casefold().startswith(stems):
            pieces += [(text[end : found.start()], False), (found[0], True)]
            end = found.end()
    return [piece for piece in (*pieces, (text[end:], False)) if piece[0]]


def lines_of(state: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Each filled field of a state with its value as text; a list has a line for each element."""
    return [(name.replace("_", " "), _text(value)) for name, value in state.items() if value]


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return "\n".join(f"- {_text(each)}" for each in value)
    return json.dumps(value, ensure_ascii=False, default=str)
