"""A JSON text shortened as JSON: fewer items of long arrays, long texts cut inside, the rest as spelled.

Pure: the same text and room give the same bytes (A08). What stays is copied, never re-encoded: numbers
keep their spelling. Knows nothing of messages nor of masks.
"""

from __future__ import annotations

from app.core.view.results.marker import ends, marker, note
from app.core.view.splice import elements, encoded, members, string_at

Span = tuple[int, int]

# An array keeps at most so many of its items (A08).
_ARRAY_ITEMS = 50
# A value cut to fewer characters would be a marker and little else.
_LEAST_CHARS = 180
# Arrays and objects are entered so deep.
_LEVELS = 5
# Values that cannot be cut keep their size, and the others share what is left, so many times over.
_ROUNDS = 3
# An array whose items cannot be cut to their share is tried with half of them, so often.
_HALVINGS = 3
# Every attempt reads again what it enters: together so many times the whole text, then no more.
_READINGS = 8


def structured(text: str, limit_chars: int, reference: str) -> str | None:
    """The JSON array or object in at most `limit_chars` characters, still JSON, naming the reference.

    None when the text is neither, when something follows it, or when no array and no string in it can
    be shortened enough: objects keep all their members.
    """
    whole = text.strip()
    if whole[:1] not in ("[", "{"):
        return None
    try:
        return _Shortener(whole, reference).value((0, len(whole)), limit_chars, _LEVELS)
    except (ValueError, IndexError, RecursionError):
        # Not JSON after all, or too deep to be read.
        return None


class _Shortener:
    """One text, how much of it may still be read, and the address not yet given in what was made of it."""

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
        elif levels and self._readable >= 0:
            if opening == "[":
                shorter = self._array(span, room, levels)
            elif opening == "{":
                shorter = self._object(span, room, levels)
        if shorter is None:
            # The marker that named it is gone with the attempt.
            self._address = before
        return shorter

    def _string(self, span: Span, room: int) -> str | None:
        value = string_at(self._text, span[0]) or ""
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
            # Denser in escapes at its ends than on the whole.
            keep = min(keep - 1, int(keep * room / len(shorter)))
        return None

    def _object(self, span: Span, room: int, levels: int) -> str | None:
        places = [(start, stop) for _, start, stop in members(self._text, span[0])]
        _check_end(self._text, span, places, "}")
        texts = {place for place in places if self._text[place[0]] == '"'}
        frame = span[1] - span[0] - _size(places)
        # Long texts first; what else is long only when they are not enough.
        for open_to_cut in (texts, set(places)):
            shorter = self._fitted(places, open_to_cut, room - frame, levels)
            if shorter is not None:
                return self._spliced(span, places, shorter)
        return None

    def _array(self, span: Span, room: int, levels: int) -> str | None:
        items = list(elements(self._text, span[0]))
        _check_end(self._text, span, items, "]")
        kept = self._count(items, room, _LEAST_CHARS)
        counts = [kept >> halving for halving in range(_HALVINGS)]
        for count in (*counts, self._count(items, room, room)):
            shorter = self._fewer(items, count, room, levels) if count else None
            if shorter is not None:
                return shorter
        return None

    def _count(self, items: list[Span], room: int, least: int) -> int:
        """How many items can stay, each whole or with at least so many characters; 0 when none can."""
        for kept in range(min(len(items), _ARRAY_ITEMS), 0, -1):
            chosen = [stop - start for start, stop in _ends_of(items, kept)]
            most = _level(chosen, room - self._frame(items, kept))
            if most >= min(least, max(chosen)):
                return kept
        return 0

    def _fewer(self, items: list[Span], kept: int, room: int, levels: int) -> str | None:
        """The array with so many of its items, and a note where the others stood."""
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
        said = encoded(note(kept, len(items), self._address)) if kept < len(items) else ""
        return 2 + kept + len(said)

    def _fitted(self, spans: list[Span], open_to_cut: set[Span], room: int, levels: int) -> list[str] | None:
        """The values at `spans` in at most `room` characters together, those open to it cut alike."""
        before = self._address
        for _ in range(_ROUNDS):
            self._address = before
            sizes = [stop - start for start, stop in open_to_cut]
            most = _level(sizes, room - (_size(spans) - sum(sizes)))
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

    def _spliced(self, span: Span, spans: list[Span], values: list[str]) -> str:
        pieces, at = [], span[0]
        for (start, stop), value in zip(spans, values, strict=True):
            pieces += [self._text[at:start], value]
            at = stop
        return "".join([*pieces, self._text[at : span[1]]])


def _check_end(text: str, span: Span, values: list[Span], closing: str) -> None:
    """ValueError when what stands in `span` ends before it: it only looked like JSON."""
    last = values[-1][1] if values else span[0] + 1
    if text[last : span[1]].strip() != closing:
        raise ValueError("something follows the value")


def _head_of(kept: int) -> int:
    return max(1, ends(kept)[0])


def _ends_of(items: list[Span], kept: int) -> list[Span]:
    """So many of the items, from the start and from the end."""
    head = _head_of(kept)
    return [*items[:head], *items[len(items) - (kept - head) :]]


def _size(spans: list[Span]) -> int:
    return sum(stop - start for start, stop in spans)


def _level(sizes: list[int], room: int) -> int:
    """The largest size so that the sizes, each cut to it, sum to at most `room`; below 0 when none is."""
    left = room
    ordered = sorted(sizes)
    for place, size in enumerate(ordered):
        share = left // (len(ordered) - place)
        if size > share:
            return share
        left -= size
    return ordered[-1] if ordered and left >= 0 else min(left, 0) - 1
