"""A transcript in pieces for one request each: in order, nothing skipped, none over its bounds (B11).

Knows nothing of what is asked about a piece.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from app.core.summary.source import CountText

# Between two messages; counted as two tokens, which it hardly ever is.
_BETWEEN = "\n\n"
_BETWEEN_TOKENS = 2
# No text has more characters a token than this for long; where a search for a cut begins.
_MOST_CHARS_PER_TOKEN = 8
# A part smaller than this is worse than a request more, and never made smaller (characters, tokens).
_LEAST_CHARS = 300
_LEAST_TOKENS = 100
_WORD_START = re.compile(r"(?<=\s)\S")


@dataclass(frozen=True, slots=True)
class Line:
    """One message of the transcript: its number in the conversation from 1, its role, what it says.

    Number 0 is a text that is no message and has no marker.
    """

    number: int
    role: str
    text: str

    def marked(self, text: str | None = None, *, is_continued: bool = False) -> str:
        """`text`, the whole or a part of this message, behind its marker; None for the whole."""
        text = self.text if text is None else text
        if not self.number:
            return text
        more = ", continued" if is_continued else ""
        return f"{self.role.upper()} [{self.number}{more}]: {text}"


@dataclass(frozen=True, slots=True)
class Room:
    """The bounds of one piece. Less than 300 characters or 100 tokens is taken for that.

    `chars` are everything's, or of what was said alone where `counts_markers` is false (B11).
    """

    chars: int
    tokens: int
    counts_markers: bool = True


def chunks(lines: Iterable[Line], room: Room, count_text: CountText) -> Iterator[str]:
    """The pieces. A message that fits one is in one; a longer one fills what is left and goes on.

    It is divided before a word where there is one in the second half of a part.
    """
    least = replace(room, chars=max(room.chars, _LEAST_CHARS), tokens=max(room.tokens, _LEAST_TOKENS))
    piece = _Piece(least, count_text)
    for line in lines:
        text = line.text
        is_continued = False
        while text:
            if piece.takes(line, text, is_continued=is_continued):
                break
            if piece.held and (piece.is_nearly_full or piece.would_take_alone(line, text)):
                yield piece.emptied()
                continue
            cut = piece.cut_of(text, line.marked("", is_continued=is_continued))
            # Full, whatever it counts: it is given away at once.
            piece.hold(line.marked(text[:cut], is_continued=is_continued), cut, 0)
            yield piece.emptied()
            text, is_continued = text[cut:], True
    if piece.held:
        yield piece.emptied()


@dataclass(slots=True)
class _Piece:
    """The piece being filled."""

    room: Room
    count_text: CountText
    held: list[str] = field(default_factory=list)
    chars: int = 0
    tokens: int = 0

    @property
    def is_nearly_full(self) -> bool:
        left = self.room.chars - self.chars, self.room.tokens - self.tokens
        return left[0] < _LEAST_CHARS or left[1] < _LEAST_TOKENS

    def takes(self, line: Line, text: str, *, is_continued: bool) -> bool:
        """True when it fitted, and then it is held."""
        # Characters first: a message of megabytes is not counted again for every part of it.
        if self.chars + len(text) > self.room.chars:
            return False
        marked = line.marked(text, is_continued=is_continued)
        if self.chars + self.size(marked, len(text)) > self.room.chars:
            return False
        tokens = self.count_text(marked) + _BETWEEN_TOKENS
        if self.tokens + tokens > self.room.tokens:
            return False
        self.hold(marked, len(text), tokens)
        return True

    def would_take_alone(self, line: Line, text: str) -> bool:
        return _Piece(self.room, self.count_text).takes(line, text, is_continued=True)

    def size(self, marked: str, said: int) -> int:
        return len(marked) + len(_BETWEEN) if self.room.counts_markers else said

    def hold(self, marked: str, said: int, tokens: int) -> None:
        self.held.append(marked)
        self.chars += self.size(marked, said)
        self.tokens += tokens

    def emptied(self) -> str:
        text = _BETWEEN.join(self.held)
        self.held, self.chars, self.tokens = [], 0, 0
        return text

    def cut_of(self, text: str, marker: str) -> int:
        """How many characters of `text` the rest of this piece holds behind `marker`; at least one."""
        tokens = self.room.tokens - self.tokens - _BETWEEN_TOKENS
        chars = self.room.chars - self.chars - self.size(marker, 0)
        cut = _before_word(text, max(1, min(chars, tokens * _MOST_CHARS_PER_TOKEN, len(text))))
        while cut > 1 and self.count_text(marker + text[:cut]) > tokens:
            cut = _before_word(text, max(1, cut * 4 // 5))
        return cut


def _before_word(text: str, at: int) -> int:
    """The last start of a word in `text` at or before `at`, in its second half; else `at`."""
    if at >= len(text):
        return at
    starts = [match.start() for match in _WORD_START.finditer(text, at // 2 + 1, at + 1)]
    return starts[-1] if starts else at
