"""Whether two texts are one in other words: instructions with another date, a question put again.

Pure. Knows nothing of where the texts are from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

# Equal beginnings or ends of so many characters: a template that something was put into.
_TEMPLATE_CHARS = 40
# Shares of the words of both that both have.
_SAME_INSTRUCTIONS = 0.5
_SAME_QUESTION = 1 / 3
_WORD = re.compile(r"\w+")
# Characters that are looked at; two prompts that agree so far are one.
_MOST_CHARS = 20_000


def are_same_instructions(told: Mapping[bytes, str], one: bytes, other: bytes) -> bool:
    """True for instructions that differ in details; unknown ones count as the same, none as others.

    They share their beginning or their end, as a template does, or half of their words.
    """
    a, b = told.get(one), told.get(other)
    if a is None or b is None:
        return True
    if not a or not b:
        return a == b
    least = min(_TEMPLATE_CHARS, len(a), len(b))
    return a[:least] == b[:least] or a[-least:] == b[-least:] or _shared(a, b) >= _SAME_INSTRUCTIONS


def are_alike(words: Mapping[bytes, str], one: bytes, other: bytes) -> bool:
    """True for two questions that share a third of their words; unknown ones are not alike."""
    a, b = words.get(one), words.get(other)
    return a is not None and b is not None and _shared(a, b) >= _SAME_QUESTION


def words_of(bodies: Iterable[bytes]) -> str:
    """What messages say, of their raw JSON: the texts of their contents, one after the other."""
    said: list[str] = []
    for body in bodies:
        try:
            said += _texts(json.loads(body, parse_int=str, parse_float=str))
        except (ValueError, RecursionError):
            # An upstream's object of any shape: its bytes are all that is known of it.
            said.append(body.decode("utf-8", "replace"))
    return "\n".join(said)[:_MOST_CHARS]


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        content = value.get("content", value.get("text"))
        return [content] if isinstance(content, str) else _texts(content)
    return [text for item in value for text in _texts(item)] if isinstance(value, list) else []


def _shared(a: str, b: str) -> float:
    one, other = set(_WORD.findall(a.lower())), set(_WORD.findall(b.lower()))
    return len(one & other) / max(1, len(one | other))
