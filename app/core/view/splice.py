"""Where the values of a JSON object stand in its text, so that one can be replaced and the rest kept.

Knows nothing of messages. Lone-surrogate escapes are read; numbers are never converted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from json.decoder import JSONDecoder

# Numbers stay text: a 5,000-digit integer must not raise, and nobody reads them here.
_DECODER = JSONDecoder(parse_int=str, parse_float=str, strict=False)
_SPACE = " \t\n\r"


def members(text: str, start: int = 0) -> Iterator[tuple[str, int, int]]:
    """Key, start and stop (characters) of every value of the object that begins at `start`, if one does."""
    at = _after_space(text, start)
    if text[at] != "{":
        return
    at = _after_space(text, at + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        at = _after_space(text, _after_space(text, at) + 1)
        stop = _value_end(text, at)
        yield key, at, stop
        at = _after_space(text, stop)
        if text[at] == ",":
            at = _after_space(text, at + 1)


def elements(text: str, start: int = 0) -> Iterator[tuple[int, int]]:
    """Start and stop (characters) of every element of the array that begins at `start`."""
    at = _after_space(text, _after_space(text, start) + 1)
    while text[at] != "]":
        stop = _value_end(text, at)
        yield at, stop
        at = _after_space(text, stop)
        if text[at] == ",":
            at = _after_space(text, at + 1)


def string_at(text: str, start: int) -> str | None:
    """The string value that begins at `start`; None when another type does."""
    if text[start] != '"':
        return None
    return str(_DECODER.raw_decode(text, start)[0])


def encoded(value: str) -> str:
    """A JSON string; lone surrogates are escaped, everything else stands as it is."""
    plain = json.dumps(value, ensure_ascii=False)
    try:
        plain.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return plain


def _value_end(text: str, start: int) -> int:
    return int(_DECODER.raw_decode(text, start)[1])


def _after_space(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at
