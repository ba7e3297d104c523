"""The byte offsets of values in a JSON text, so that a body can be edited without re-encoding it.

`members_of` is a quick pass. Where it is not certain it returns None, and `json_text.verify` and `outline`
decide; otherwise it returns exactly what they would have. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from palimpsest.core.wire.json_text import check_utf8, decoded, encoded
from palimpsest.errors import NestedTooDeep

Span = tuple[int, int]

# The structural characters of JSON.
_MARKS = re.compile(rb"[\[\]{},:]")
_BLANK = b" \t\r\n"
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the outermost object; its value is at `start` (inclusive) to `end` (exclusive).

    `elements` are the spans of the value's elements when it is an array, else empty.
    """

    key: str
    start: int
    end: int
    elements: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A key that occurs twice in one object, inside the outermost member `under`.

    `under` is None when the key is itself outermost; `element` is the index of the array element
    that contains it, 0 when the member is not an array.
    """

    key: str
    under: str | None
    element: int


@dataclass(frozen=True, slots=True)
class ObjectOutline:
    """The members of the outermost object in order (none if the text is no object), and duplicate keys."""

    members: tuple[Member, ...]
    duplicates: tuple[Duplicate, ...]

    def last(self, key: str) -> Member | None:
        """The member `key`; of duplicates the last, as most JSON readers take it; None when there is none."""
        return next((member for member in reversed(self.members) if member.key == key), None)


def outline(body: bytes) -> ObjectOutline:
    """The outline of a valid JSON text, however deeply nested.

    One pass, linear in the size; about twice what json.loads takes, two fifths of it for `_masked`
    (2026-11, interleaved runs on busy cores; benchmarks/parse.py).
    """
    members: list[Member] = []
    duplicates: list[Duplicate] = []
    elements: list[Span] = []
    # The keys of every open object; None for an array.
    opened: list[set[bytes] | None] = []
    key: str | None = None
    start = element = 0
    for mark, at, first, last in _marks(body):
        if mark in b"{[":
            opened.append(set() if mark == b"{" else None)
            if len(opened) == 2:
                element = at + 1
            continue
        depth, keys = len(opened), opened[-1]
        if keys is not None and mark == b":":
            name = body[first:last]
            if b"\\" in name:
                name = decoded(body[first - 1 : last + 1]).encode("utf-8", "surrogatepass")
            text = name.decode("utf-8", "surrogatepass")
            if name in keys:
                duplicates.append(Duplicate(text, None if depth == 1 else key, len(elements)))
            keys.add(name)
            if depth == 1:
                key, start = text, at + 1
            continue
        if mark in b"}]":
            opened.pop()
        if depth == 2 and keys is None:
            span = _without_blanks(body, element, at)
            # A blank element occurs only in an empty array.
            elements += [span] if span[0] < span[1] else ()
            element = at + 1
        elif depth == 1 and key is not None:
            members.append(Member(key, *_without_blanks(body, start, at), tuple(elements)))
            key, elements = None, []
    return ObjectOutline(tuple(members), tuple(duplicates))


def _marks(body: bytes) -> Iterator[tuple[bytes, int, int, int]]:
    """Every structural character, its place, and the span of the string before it, without its quotes."""
    end = first = last = 0
    # Without escaped quotes, the pieces between quotes are alternately structure and string contents.
    pieces = iter(_masked(body).split(b'"'))
    for structure in pieces:
        if (only := structure.strip(_BLANK)) in (b":", b","):
            yield only, end + structure.index(only), first, last
        else:
            for match in _MARKS.finditer(structure):
                yield match[0], end + match.start(), first, last
        first = end + len(structure) + 1
        last = first + len(next(pieces, b""))
        end = last + 1


def replaced(text: bytes, path: Sequence[str | int], value: bytes | None) -> bytes:
    """`text` with `value` at `path` (keys and positions, from the outermost value).

    A `value` of None removes the member; only its object is then re-encoded. Without such a path `text` is
    returned unchanged.
    """
    key = path[0]
    if isinstance(key, int):
        spans = _element_spans(text)
        span = spans[key] if key < len(spans) else None
    else:
        member = outline(text).last(key)
        span = (member.start, member.end) if member else None
    if span is None:
        return text
    start, end = span
    if len(path) == 1 and value is None:
        kept = [encoded(name) + b":" + raw for name, raw in raw_members(text).items() if name != key]
        return b"{" + b",".join(kept) + b"}"
    inner = value if len(path) == 1 else replaced(text[start:end], path[1:], value)
    return text[:start] + (inner or b"") + text[end:]


def refuse_deeper(body: bytes, deepest: int) -> None:
    """Raises NestedTooDeep when the valid JSON text is nested more than `deepest` levels."""
    # Counting brackets first is cheap, and hardly any text has that many.
    if body.count(b"[") + body.count(b"{") <= deepest:
        return
    # The text without its strings and their quotes.
    brackets = b"".join(_masked(body).split(b'"')[::2]).translate(_ONE_KIND, _NO_BRACKETS)
    if len(brackets) <= 2 * deepest:
        return
    for _ in range(deepest):
        # Each pass removes the innermost level of every branch.
        brackets = brackets.replace(b"[]", b"")
    if brackets:
        raise NestedTooDeep(f"the JSON is nested more than {deepest} levels")


def _masked(body: bytes) -> bytes:
    """`body` with escaped quotes overwritten, same length: every quote left begins or ends a string.

    Escape pairs are consumed from the left, as JSON reads them. Faster than matching tokens with a pattern
    that handles escapes: 28 against 48 ms for 5.4 MB (2026-11).
    """
    return body.replace(b"\\\\", b"__").replace(b'\\"', b"__")


def _without_blanks(body: bytes, start: int, end: int) -> Span:
    while start < end and body[start] in _BLANK:
        start += 1
    while end > start and body[end - 1] in _BLANK:
        end -= 1
    return start, end


_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
# From the end of one value to the start of the next; the key is spelled without escapes.
_KEY = re.compile(rb'[ \t\r\n]*[{,][ \t\r\n]*"([^"\\]*)"[ \t\r\n]*:[ \t\r\n]*')
_END = re.compile(rb"[ \t\r\n]*\}")
_BETWEEN = b" \t\r\n,"
_OPENINGS = (b"{", b"[")


# Messages and their tool calls are not nested deeper. Each level is decoded again for every level above it.
_QUICK_LEVELS = 5


def members_of(body: bytes) -> tuple[Member, ...] | None:
    """The members of the object `body`, as `outline` gives them; `verify` accepts such a body.

    None when that is not certain: no valid object, an outermost key repeated or spelled with an
    escape, a lone surrogate anywhere. Two passes in C: 12 ms where `verify` and `outline` take 69
    (4.5 MB, 2,000 messages; 2026-11).
    """
    try:
        values = _OBJECT.decode(body)
        check_utf8(body)
        places = _places(body, values)
        if not places:
            return None
        return tuple([Member(key, *place, _elements(body, place[0], values[key])) for key, place in places])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def raw_members(text: bytes) -> dict[str, bytes]:
    """The raw members of a valid JSON text, of duplicates the last; none when it is not an object."""
    try:
        return {key: bytes(raw) for key, raw in _OBJECT.decode(text).items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {member.key: text[member.start : member.end] for member in outline(text).members}


def raw_elements(text: bytes) -> list[bytes]:
    """The raw elements of a valid JSON text; none when it is not an array."""
    try:
        return [bytes(raw) for raw in _ARRAY.decode(text)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [text[start:end] for start, end in _element_spans(text)]


def _element_spans(text: bytes) -> list[Span]:
    wrapped = outline(b'{"e":' + text + b"}").members[0]
    return [(start - wrapped.start, end - wrapped.start) for start, end in wrapped.elements]


def is_plain(text: bytes, deepest: int) -> bool:
    """Whether no object in the valid JSON text repeats a key or is nested beyond `deepest` levels."""
    if _is_surely_plain(text, min(deepest, _QUICK_LEVELS)):
        return True
    try:
        refuse_deeper(text, deepest)
    except NestedTooDeep:
        return False
    return not outline(text).duplicates


def _is_surely_plain(text: bytes, levels: int) -> bool:
    """Whether a quick check finds it plain within so many levels; False only means "not certain"."""
    first = text.lstrip(b" \t\r\n")[:1]
    if first not in _OPENINGS:
        return True
    if not levels:
        return False
    try:
        inner: Iterable[msgspec.Raw]
        if first == b"[":
            inner = _ARRAY.decode(text)
        elif _places(text, values := _OBJECT.decode(text)) is None:
            # A key may be repeated.
            return False
        else:
            inner = values.values()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    # Only containers are copied: a string may be an image of many megabytes.
    containers = (value for value in inner if memoryview(value)[:1] in _OPENINGS)
    return all(_is_surely_plain(bytes(value), levels - 1) for value in containers)


def _places(body: bytes, values: dict[str, msgspec.Raw]) -> list[tuple[str, Span]] | None:
    """The spans of the values, in order; None when the members are not, or may not be, exactly these."""
    if not values:
        return []
    places: list[tuple[str, Span]] = []
    at = 0
    for key, raw in values.items():
        before = _KEY.match(body, at)
        # With a repeated key, an earlier value is found where the last one is expected.
        if before is None or before[1] != key.encode() or not body.startswith(raw, before.end()):
            return None
        start, at = before.end(), before.end() + len(raw)
        places.append((key, (start, at)))
    return places if _END.match(body, at) else None


def _elements(body: bytes, start: int, value: msgspec.Raw) -> tuple[Span, ...]:
    """The spans of the elements of the array at `start`; none when it is not an array."""
    if not body.startswith(b"[", start):
        return ()
    spans: list[Span] = []
    at = start + 1
    for element in _ARRAY.decode(value):
        while body[at] in _BETWEEN:
            at += 1
        end = at + len(element)
        spans.append((at, end))
        at = end
    return tuple(spans)
