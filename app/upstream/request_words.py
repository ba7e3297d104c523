"""Which words of an error the refused request said itself: servers quote what they refuse.

Pure; knows nothing of errors nor of what their words mean. What an error repeats from the request is the
request's, so that nobody can put words into a server's mouth.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import msgspec

# So many successive words of an error that also stand in the request are the request's. Fewer are chance: a
# conversation about models says "context length" all day. Every phrase that is looked for has as many.
_RUN = 3
_WORD = re.compile(r"[a-z0-9_]+")
# What may stand between two words, however often the text was escaped on its way. Possessive: a body made
# for it would else be searched for minutes.
_BETWEEN = rb"(?:\\{1,8}+(?:[nrtbf]|u[0-9a-f]{4}|x[0-9a-f]{2})|[^a-z0-9_]){1,8}+"
# Letters, digits and signs that need no escape and have one all the same; of any number of backslashes.
_ESCAPED = re.compile(rb"\\+u00([2-7][0-9a-f])")
# A server may drop what is not ASCII before it quotes.
_FOREIGN = re.compile(rb"[\x80-\xff]+|\\+u[0-9a-f]{4}")
# A string within a string within a string: each unescaping may make another necessary.
_DEEPEST = 4
# A larger request is not searched, which took 0.4 s here at worst: whatever an error says may be its own.
_MOST_BYTES = 2 * 1024 * 1024


class RequestWords:
    """What a request said, in bytes; `parts` are read when the first question is asked.

    Of one of more than two megabytes everything is taken for said.
    """

    def __init__(self, parts: Iterable[bytes] = ()) -> None:
        self._source = parts

    @cached_property
    def _parts(self) -> tuple[bytes, ...]:
        return tuple(self._source)

    @cached_property
    def _size(self) -> int:
        return sum(map(len, self._parts))

    def hold(self, words: str) -> bool:
        """True when three successive words of `words`, or all where there are fewer, stand in the request.

        Case, punctuation and escapes do not count; nor does how a list of values is cut into pieces.
        """
        if self._size > _MOST_BYTES:
            return True
        spoken = _WORD.findall(words.lower())
        runs = (spoken[at : at + _RUN] for at in range(max(1, len(spoken) - _RUN + 1)))
        return bool(spoken) and any(self._has(run) for run in runs)

    def _has(self, run: list[str]) -> bool:
        pattern = re.compile(_BETWEEN.join(word.encode() for word in run))
        return any(pattern.search(text) for text in self._texts)

    @cached_property
    def _texts(self) -> tuple[bytes, ...]:
        said = b"\n".join((*self._parts, *map(_joined_values, self._parts))).lower()
        plain = said
        for _ in range(_DEEPEST):
            unescaped = _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), plain)
            if unescaped == plain:
                break
            plain = unescaped
        texts = [plain] if plain is said else [said, plain]
        if (bare := _FOREIGN.sub(b"", plain)) != plain:
            texts.append(bare)
        return tuple(texts)


def _joined_values(part: bytes) -> bytes:
    """The texts of a JSON document, those of one name joined: servers join a message's parts."""
    try:
        document = msgspec.json.decode(part)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return b""
    joined: dict[str, list[str]] = {}
    for name, text in _texts_in("", document):
        joined.setdefault(name, []).append(text)
    return "\n".join("".join(texts) for texts in joined.values()).encode("utf-8", "replace")


def _texts_in(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Every string by the name it stands under, in order. Not recursive: bodies may nest deeply."""
    left = [(name, value)]
    while left:
        under, one = left.pop()
        if isinstance(one, str):
            yield under, one
        elif isinstance(one, list):
            left.extend((under, item) for item in reversed(one))
        elif isinstance(one, dict):
            left.extend((key, item) for key, item in reversed(one.items()))
