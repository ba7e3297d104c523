"""Texts and lines cut to a number of tokens, and a transcript split into pieces of one request each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from palimpsest.core.summary.source import CountText
from palimpsest.core.text.message_text import cut_to

# Room in tokens below which a line is left out instead of cut.
_LEAST_CUT = 12
# Characters per token at which the search for a cut begins.
_MOST_CHARS_PER_TOKEN = 6


def clipped(text: str, tokens: int, count_text: CountText) -> str:
    """`text` in at most `tokens`, by head and tail (A20); "" when there is no room."""
    if count_text(text) <= tokens:
        return text
    chars = min(len(text), max(0, tokens) * _MOST_CHARS_PER_TOKEN)
    while chars > len(" ..."):
        cut = cut_to(text, chars)
        if count_text(cut) <= tokens:
            return cut
        chars = chars * 4 // 5
    return ""


def lines_within(lines: Sequence[str], tokens: int, count_text: CountText) -> list[str]:
    """The newest lines that fit into `tokens`, in order; the oldest of them may be cut."""
    kept: list[str] = []
    for line in reversed(lines):
        cost = count_text(line) + 1
        if cost > tokens:
            cut = clipped(line, tokens - 1, count_text) if tokens > _LEAST_CUT else ""
            kept += [cut] if cut else []
            break
        kept.append(line)
        tokens -= cost
    return kept[::-1]


# Between two messages; counted as two tokens, to be on the safe side.
_BETWEEN = "\n\n"
_BETWEEN_TOKENS = 2
# Characters per token at which the search for a cut begins; no text has more for long.
_CHUNK_CHARS_PER_TOKEN = 8
# The least size of a part (characters, tokens); a smaller one is worse than one more request.
_LEAST_CHARS = 300
_LEAST_TOKENS = 100
_WORD_START = re.compile(r"(?<=\s)\S")


@dataclass(frozen=True, slots=True)
class Line:
    """One message of the transcript: its number in the conversation (from 1), its role, its text.

    Number 0 stands for a text that is not a message and gets no marker.
    """

    number: int
    role: str
    text: str

    def marked(self, text: str | None = None, *, is_continued: bool = False) -> str:
        """`text`, a part of this message, after the marker; None stands for the whole message."""
        text = self.text if text is None else text
        if not self.number:
            return text
        more = ", continued" if is_continued else ""
        return f"{self.role.upper()} [{self.number}{more}]: {text}"


@dataclass(frozen=True, slots=True)
class PieceBounds:
    """The bounds of one piece; less than 300 characters or 100 tokens is raised to these.

    `chars` counts markers too, unless `counts_markers` is false (B11).
    """

    chars: int
    tokens: int
    counts_markers: bool = True


def chunks(lines: Iterable[Line], room: PieceBounds, count_text: CountText) -> Iterator[str]:
    """The pieces. A message that fits into one is not split.

    A longer one fills the current piece and continues in the next. It is split before a word where one
    begins in the second half of a part.
    """
    least = replace(room, chars=max(room.chars, _LEAST_CHARS), tokens=max(room.tokens, _LEAST_TOKENS))
    piece = _Piece(least, count_text)
    for line in lines:
        text = line.text
        is_continued = False
        while text:
            if piece.add(line, text, is_continued=is_continued):
                break
            if piece.held and (piece.is_nearly_full or piece.would_fit_alone(line, text)):
                yield piece.pop()
                continue
            cut = piece.cut_of(text, line.marked("", is_continued=is_continued))
            # The piece is full, so its tokens are not counted.
            piece.hold(line.marked(text[:cut], is_continued=is_continued), cut, 0)
            yield piece.pop()
            text, is_continued = text[cut:], True
    if piece.held:
        yield piece.pop()


@dataclass(slots=True)
class _Piece:
    """The piece being filled."""

    room: PieceBounds
    count_text: CountText
    held: list[str] = field(default_factory=list)
    chars: int = 0
    tokens: int = 0

    @property
    def is_nearly_full(self) -> bool:
        left = self.room.chars - self.chars, self.room.tokens - self.tokens
        return left[0] < _LEAST_CHARS or left[1] < _LEAST_TOKENS

    def add(self, line: Line, text: str, *, is_continued: bool) -> bool:
        """Adds the text when it fits; False when it does not."""
        # Characters first, so that a message of megabytes is not counted again for each of its parts.
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

    def would_fit_alone(self, line: Line, text: str) -> bool:
        return _Piece(self.room, self.count_text).add(line, text, is_continued=True)

    def size(self, marked: str, said: int) -> int:
        return len(marked) + len(_BETWEEN) if self.room.counts_markers else said

    def hold(self, marked: str, said: int, tokens: int) -> None:
        self.held.append(marked)
        self.chars += self.size(marked, said)
        self.tokens += tokens

    def pop(self) -> str:
        text = _BETWEEN.join(self.held)
        self.held, self.chars, self.tokens = [], 0, 0
        return text

    def cut_of(self, text: str, marker: str) -> int:
        """The characters of `text` that fit into the rest of this piece after `marker`; at least one."""
        tokens = self.room.tokens - self.tokens - _BETWEEN_TOKENS
        chars = self.room.chars - self.chars - self.size(marker, 0)
        cut = _before_word(text, max(1, min(chars, tokens * _CHUNK_CHARS_PER_TOKEN, len(text))))
        while cut > 1 and self.count_text(marker + text[:cut]) > tokens:
            cut = _before_word(text, max(1, cut * 4 // 5))
        return cut


def _before_word(text: str, at: int) -> int:
    """The last start of a word in the second half of `text[:at]`; without one `at`."""
    if at >= len(text):
        return at
    starts = [match.start() for match in _WORD_START.finditer(text, at // 2 + 1, at + 1)]
    return starts[-1] if starts else at
