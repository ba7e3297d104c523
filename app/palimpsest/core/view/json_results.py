"""Results that are JSON, shortened as JSON; and results that are documents, which may take more (A08).

What stays is copied, never re-encoded: numbers keep their spelling. The first marker says how the rest can be
read, where the model can read it (E10). Lone-surrogate escapes are accepted. Documents are recognised by a
path in the call, by the tool's name, or by the marks that converters leave in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from json.decoder import JSONDecoder

from palimpsest.core.text.message_text import ToolCall
from palimpsest.core.wire import json_text

# Numbers stay text: a 5,000-digit integer must not raise, and their values are not used here.
_DECODER = JSONDecoder(parse_int=str, parse_float=str, strict=False)
_SPACE = " \t\n\r"
_CLOSING = {"[": "]", "{": "}"}
Span = tuple[int, int]


def _values(text: str, start: int) -> Iterator[Span]:
    """Start and stop (characters) of every value of the object or array that begins at `start`."""
    closing = _CLOSING[text[start]]
    at = _after_space(text, start + 1)
    while text[at] != closing:
        if closing == "}":
            at = _after_space(text, _after_space(text, _value_end(text, at)) + 1)
        stop = _value_end(text, at)
        yield at, stop
        at = _after_space(text, stop)
        if text[at] == ",":
            at = _after_space(text, at + 1)


def encoded(value: str) -> str:
    """A JSON string; lone surrogates are escaped, other characters are not."""
    return json_text.encoded(value).decode()


def _value_end(text: str, start: int) -> int:
    return int(_DECODER.raw_decode(text, start)[1])


def _after_space(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at


# Share of the kept characters that is taken from the start (A20).
_HEAD_SHARE = 0.7


def cut(text: str, limit_chars: int, reference: str) -> str:
    """The text's head, a marker, its tail, together at most `limit_chars` characters.

    Below the marker's own length the marker stands alone, even for a shorter text: it may still have fewer
    tokens (a Chinese character takes as many as four English ones).
    """
    if len(text) <= limit_chars:
        return text
    head, tail = ends(max(0, limit_chars - len(marker(len(text), len(text), reference))))
    left_out = len(text) - head - tail
    return text[:head] + marker(left_out, len(text), reference) + text[len(text) - tail :]


def ends(limit: int) -> tuple[int, int]:
    """How much of `limit` is head, and how much is tail."""
    head = int(limit * _HEAD_SHARE)
    return head, limit - head


def marker(left_out: int, whole: int, reference: str) -> str:
    """States how many characters are missing and, unless `reference` is empty, where they are."""
    return f"\n[... {left_out:,} of {whole:,} characters left out{_where(reference)} ...]\n"


def note(kept: int, whole: int, reference: str) -> str:
    """States "n of m items" and, unless `reference` is empty, where the others are."""
    return f"[... {kept:,} of {whole:,} items shown{_where(reference)} ...]"


def _where(reference: str) -> str:
    # Only once per result: 32 hex digits cost some 20 tokens in every marker.
    return f"; the whole result: {reference}" if reference else ""


# Items that an array keeps at most (A08).
_ARRAY_ITEMS = 50
# A value cut to fewer characters would be a marker and little else.
_LEAST_CHARS = 180
# Levels to which arrays and objects are entered.
_LEVELS = 5
# Attempts in which values that cannot be cut keep their size and the others share the remaining room.
_ROUNDS = 3
# Attempts with half as many items where an array's items cannot be cut to their share.
_HALVINGS = 3
# Every attempt reads what it enters again: at most this many times the whole text in total.
_READINGS = 8


def structured(text: str, limit_chars: int, reference: str) -> str | None:
    """The JSON array or object in at most `limit_chars` characters, still JSON, naming the reference.

    None when the text is neither, when something follows it, or when no array or string in it can be
    shortened enough: objects keep all their members.
    """
    whole = text.strip()
    if whole[:1] not in ("[", "{"):
        return None
    try:
        return _Shortener(whole, reference).value((0, len(whole)), limit_chars, _LEVELS)
    except (ValueError, IndexError, RecursionError):
        # Not JSON, or nested too deeply to be parsed.
        return None


class _Shortener:
    """One text, how much of it may still be read, and the reference until a marker has named it."""

    __slots__ = ("_address", "_readable", "_text")

    def __init__(self, text: str, reference: str) -> None:
        self._text = text
        self._address = reference
        self._readable = _READINGS * len(text)

    def value(self, span: Span, room: int, levels: int) -> str | None:
        """The value at `span` in at most `room` characters; None when it cannot be that short."""
        start, stop = span
        if stop - start <= room:
            return self._text[start:stop]
        opening, before = self._text[start], self._address
        self._readable -= stop - start
        shorter = None
        if opening == '"':
            shorter = self._string(span, room)
        elif opening in _CLOSING and levels and self._readable >= 0:
            places = list(_values(self._text, start))
            last = places[-1][1] if places else start + 1
            if self._text[last:stop].strip() != _CLOSING[opening]:
                # The text only looked like JSON.
                raise ValueError("something follows the value")
            if opening == "[":
                shorter = self._array(places, room, levels)
            else:
                shorter = self._object(span, places, room, levels)
        if shorter is None:
            # The marker that named it is discarded with the attempt.
            self._address = before
        return shorter

    def _string(self, span: Span, room: int) -> str | None:
        value = str(_DECODER.raw_decode(self._text, span[0])[0])
        frame = len(encoded(marker(len(value), len(value), self._address)))
        # Escapes of the kept text need room too.
        keep = int((room - frame) * min(1.0, len(value) / (span[1] - span[0])))
        while keep >= 0:
            head, tail = ends(keep)
            left_out = marker(len(value) - keep, len(value), self._address)
            shorter = encoded(value[:head] + left_out + value[len(value) - tail :])
            if len(shorter) <= room:
                self._address = ""
                return shorter
            # The kept ends have more escapes than the average.
            keep = min(keep - 1, int(keep * room / len(shorter)))
        return None

    def _object(self, span: Span, places: list[Span], room: int, levels: int) -> str | None:
        texts = {place for place in places if self._text[place[0]] == '"'}
        frame = span[1] - span[0] - _size(places)
        # Long texts first; other values only when that is not enough.
        for open_to_cut in (texts, set(places)):
            shorter = self._fitted(places, open_to_cut, room - frame, levels)
            if shorter is not None:
                pieces, at = [], span[0]
                for (start, stop), value in zip(places, shorter, strict=True):
                    pieces += [self._text[at:start], value]
                    at = stop
                return "".join([*pieces, self._text[at : span[1]]])
        return None

    def _array(self, items: list[Span], room: int, levels: int) -> str | None:
        kept = self._count(items, room, _LEAST_CHARS)
        counts = [kept >> halving for halving in range(_HALVINGS)]
        for count in (*counts, self._count(items, room, room)):
            shorter = self._fewer(items, count, room, levels) if count else None
            if shorter is not None:
                return shorter
        return None

    def _count(self, items: list[Span], room: int, least: int) -> int:
        """How many items can stay, each whole or with at least `least` characters; 0 when none can."""
        for kept in range(min(len(items), _ARRAY_ITEMS), 0, -1):
            chosen = [stop - start for start, stop in _ends_of(items, kept)]
            most = level(chosen, room - self._frame(items, kept))
            if most >= min(least, max(chosen)):
                return kept
        return 0

    def _fewer(self, items: list[Span], kept: int, room: int, levels: int) -> str | None:
        """The array with `kept` of its items, and a note in place of the others."""
        before = self._address
        chosen, notes = _ends_of(items, kept), []
        space = room - self._frame(items, kept)
        if kept < len(items):
            notes.append(encoded(note(kept, len(items), self._address)))
            self._address = ""
        shorter = self._fitted(chosen, set(chosen), space, levels)
        if shorter is None:
            self._address = before
            return None
        head = _head_of(kept)
        return "[" + ",".join([*shorter[:head], *notes, *shorter[head:]]) + "]"

    def _frame(self, items: list[Span], kept: int) -> int:
        """Characters of brackets, commas and note, at most."""
        omitted = encoded(note(kept, len(items), self._address)) if kept < len(items) else ""
        return 2 + kept + len(omitted)

    def _fitted(self, spans: list[Span], open_to_cut: set[Span], room: int, levels: int) -> list[str] | None:
        """The values at `spans` in at most `room` characters together; those in `open_to_cut` cut alike."""
        before = self._address
        for _ in range(_ROUNDS):
            self._address = before
            sizes = [stop - start for start, stop in open_to_cut]
            most = level(sizes, room - (_size(spans) - sum(sizes)))
            if most < min(_LEAST_CHARS, max(sizes, default=0)):
                break
            shorter = {
                span: self.value(span, most if span in open_to_cut else span[1] - span[0], levels - 1)
                for span in spans
            }
            stuck = {span for span, value in shorter.items() if value is None}
            if not stuck:
                return [value for value in shorter.values() if value is not None]
            open_to_cut = open_to_cut - stuck
        self._address = before
        return None


def _head_of(kept: int) -> int:
    return max(1, ends(kept)[0])


def _ends_of(items: list[Span], kept: int) -> list[Span]:
    """`kept` of the items, from the start and from the end."""
    head = _head_of(kept)
    return [*items[:head], *items[len(items) - (kept - head) :]]


def _size(spans: list[Span]) -> int:
    return sum(stop - start for start, stop in spans)


def level(sizes: list[int], room: int) -> int:
    """The largest size such that the sizes, each cut to it, sum to at most `room`; negative if none."""
    for place, size in enumerate(sorted(sizes)):
        share = room // (len(sizes) - place)
        if size > share:
            return share
        room -= size
    return max(sizes, default=min(room, 0) - 1)


# A name before the suffix, so that a pattern such as "*.pdf" does not match.
_PATH = re.compile(r"[^\s\"'*?\\/(\[{,;=]\.(?:docx|pdf|pptx)(?![A-Za-z0-9_])", re.IGNORECASE)
_KINDS = frozenset({"pdf", "docx", "pptx", "markitdown", "pdftotext"})
_DOCUMENTS = frozenset({"document", "doc"})
_READING = frozenset({"read", "reader", "extract", "parse", "open", "load", "convert", "view", "fetch"})
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")

# Marks stand near the beginning: characters searched for the first mark, and for the following ones.
_OPENING_CHARS = 4_000
_LATER_CHARS = 100_000
_MEDIA = re.compile(
    r"application/(?:pdf|vnd\.openxmlformats-officedocument\.(?:wordprocessingml|presentationml))"
)
# A line that numbers a page or a slide: "--- Page 2 ---", "[Page 2 of 9]", "<!-- Slide number: 2 -->".
_PAGE = re.compile(
    r"^[\W_]{0,12}(?:page|slide)(?: number:)?\s{0,2}(\d{1,4})(?:\s{0,2}(?:/|of)\s{0,2}\d{1,4})?[\W_]{0,12}$",
    re.IGNORECASE | re.MULTILINE,
)
# pdftotext ends pages with form feeds.
_FORM_FEED = "\f"


def is_document(call: ToolCall, text: str) -> bool:
    """True when a tool result with this text, answering this call, is an expanded docx, pdf or pptx."""
    words = {word.lower() for word in _WORDS.findall(call.name)}
    if _PATH.search(call.arguments) or words & _KINDS or (words & _DOCUMENTS and words & _READING):
        return True
    opening = text[:_OPENING_CHARS]
    if opening.lstrip().startswith("%PDF-") or _MEDIA.search(opening):
        return True
    # Pages are long: the second may begin far after the opening.
    first = _PAGE.search(text, 0, _OPENING_CHARS)
    following = _PAGE.finditer(text, first.end(), _LATER_CHARS) if first else ()
    is_paged = any(first and int(mark[1]) != int(first[1]) for mark in following)
    # A single mark may occur in any text.
    return is_paged or text.count(_FORM_FEED) > 1
