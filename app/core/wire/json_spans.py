"""Where the values of a JSON text stand: spans of its bytes, so that nothing need be re-encoded.

Knows nothing of chat; it works on text that `json_text.verify` has accepted and says nothing
sensible of any other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from app.core.wire.json_text import decoded
from app.errors import NestedTooDeep

Span = tuple[int, int]

# What stands between strings and gives the text its structure.
_MARKS = re.compile(rb"[\[\]{},:]")
_BLANK = b" \t\r\n"
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the outermost object; its value stands at `start` (inclusive) to `end` (exclusive).

    `elements` are the spans of the value's elements when it is an array, else empty.
    """

    key: str
    start: int
    end: int
    elements: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A key that occurs twice in one object, which stands under the outermost member `under`.

    `under` is None when it is an outermost key itself; `element` is the index of the array element
    it stands in, 0 when the member is no array.
    """

    key: str
    under: str | None
    element: int


@dataclass(frozen=True, slots=True)
class Outline:
    """The members of the outermost object in order (none when the text is no object), and repeated keys."""

    members: tuple[Member, ...]
    duplicates: tuple[Duplicate, ...]

    def last(self, key: str) -> Member | None:
        """The member `key`; of several the last, as JSON readers have it; None when there is none."""
        return next((member for member in reversed(self.members) if member.key == key), None)


def outline(body: bytes, deepest: int = 128) -> Outline:
    """The outline of a valid JSON text; NestedTooDeep when nested more than `deepest` levels.

    One pass, linear in the size; about twice what json.loads takes, two fifths of it for `_masked`
    (2026-11, interleaved runs on busy cores; benchmarks/parse.py).
    """
    walk = _Walk(body, deepest)
    end = 0
    # Without escaped quotes, what a quote ends is by turns structure and the inside of a string.
    pieces = iter(_masked(body).split(b'"'))
    for structure in pieces:
        walk.read(structure, end)
        start = end + len(structure) + 1
        end = start + len(next(pieces, b"")) + 1
        walk.string = start, end - 1
    return Outline(tuple(walk.members), tuple(walk.duplicates))


def refuse_deeper(body: bytes, deepest: int) -> None:
    """NestedTooDeep when the valid JSON text is nested more than `deepest` levels."""
    # The brackets are counted first: hardly any text has as many.
    if body.count(b"[") + body.count(b"{") > deepest and is_deeper(structure_of(body), deepest):
        raise NestedTooDeep(f"the JSON is nested more than {deepest} levels")


def structure_of(body: bytes) -> bytes:
    """What stands outside the strings of a valid JSON text, joined; quotes left out."""
    return b"".join(_masked(body).split(b'"')[::2])


def is_deeper(structure: bytes, deepest: int) -> bool:
    """Whether a JSON text with this structure is nested more than `deepest` levels."""
    if structure.count(b"[") + structure.count(b"{") <= deepest:
        return False
    brackets = structure.translate(_ONE_KIND, _NO_BRACKETS)
    for _ in range(deepest):
        # The innermost of all branches; one pass takes one level, whatever lies beside.
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _masked(body: bytes) -> bytes:
    """`body`, same length, without an escaped quote: every quote left begins or ends a string.

    Escape pairs are consumed from the left, as JSON reads them. Quicker than walking the tokens with
    a pattern that knows escapes: 28 against 48 ms for 5.4 MB (2026-11).
    """
    return body.replace(b"\\\\", b"__").replace(b'\\"', b"__")


def _without_blanks(body: bytes, start: int, end: int) -> Span:
    while start < end and body[start] in _BLANK:
        start += 1
    while end > start and body[end - 1] in _BLANK:
        end -= 1
    return start, end


class _Walk:
    """The state of one pass: the keys of every open object (None for an array), and what was found."""

    __slots__ = (
        "_body",
        "_deepest",
        "_element",
        "_elements",
        "_key",
        "_open",
        "_start",
        "duplicates",
        "members",
        "string",
    )

    def __init__(self, body: bytes, deepest: int) -> None:
        self._body = body
        self._deepest = deepest
        self._open: list[set[bytes] | None] = []
        self._key: str | None = None
        self._start = 0
        self._element = 0
        self._elements: list[Span] = []
        # Where the newest string stands, without its quotes.
        self.string = (0, 0)
        self.members: list[Member] = []
        self.duplicates: list[Duplicate] = []

    def read(self, structure: bytes, at: int) -> None:
        """What stands at `at`, between `string` and the next one, is part of the text."""
        only = structure.strip(_BLANK)
        if only == b":":
            self._keyed(at + len(structure))
        elif only == b",":
            if len(self._open) <= 2:
                self._comma(at + structure.index(b","))
        else:
            for match in _MARKS.finditer(structure):
                self._mark(match.group(), at + match.start())

    def _mark(self, mark: bytes, at: int) -> None:
        if mark in b"{[":
            self._opened(mark, at)
        elif mark in b"}]":
            self._closed(at)
        elif mark == b",":
            self._comma(at)
        else:
            self._keyed(at + 1)

    def _keyed(self, start: int) -> None:
        """`string` was a key; its value starts at `start`, or after blanks."""
        first, last = self.string
        key = self._body[first:last]
        if b"\\" in key:
            key = _unescaped(self._body[first - 1 : last + 1])
        keys = self._open[-1]
        if keys is not None:
            if key in keys:
                self._repeated(key)
            keys.add(key)
        if len(self._open) == 1:
            self._key = _text(key)
            self._start = start

    def _opened(self, mark: bytes, at: int) -> None:
        self._open.append(set() if mark == b"{" else None)
        if len(self._open) > self._deepest:
            raise NestedTooDeep(f"the JSON is nested more than {self._deepest} levels")
        if len(self._open) == 2:
            self._element = at + 1

    def _comma(self, at: int) -> None:
        if len(self._open) == 1:
            self._member_ends(at)
        elif len(self._open) == 2 and self._open[-1] is None:
            self._element_ends(at)

    def _closed(self, at: int) -> None:
        keys = self._open.pop()
        if len(self._open) == 1 and keys is None:
            self._element_ends(at)
        elif not self._open:
            self._member_ends(at)

    def _element_ends(self, at: int) -> None:
        start, end = _without_blanks(self._body, self._element, at)
        # Blank only in an empty array.
        if start < end:
            self._elements.append((start, end))
        self._element = at + 1

    def _member_ends(self, at: int) -> None:
        if self._key is not None:
            start, end = _without_blanks(self._body, self._start, at)
            self.members.append(Member(self._key, start, end, tuple(self._elements)))
        self._key = None
        self._elements = []

    def _repeated(self, key: bytes) -> None:
        under = None if len(self._open) == 1 else self._key
        self.duplicates.append(Duplicate(_text(key), under, len(self._elements)))


def _unescaped(literal: bytes) -> bytes:
    value: str = decoded(literal)
    return value.encode("utf-8", "surrogatepass")


def _text(key: bytes) -> str:
    return key.decode("utf-8", "surrogatepass")
