"""How many tokens a text has, exactly as tiktoken counts, whatever the text is.

Knows nothing of messages. Special tokens in a text count as the ordinary text they are, as they do
when an API receives them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tiktoken import Encoding

# Above this many characters a text is counted in pieces. 1,000,000 spaces overflow the stack of
# tiktoken's regex engine (a PanicException, which is no Exception); 100,000 of anything do not.
PIECE_CHARS = 100_000
# Base64 in a text is counted by sample from this length on. No prose and no code has such runs, and
# counting 1 MB of them takes 0.2 s to learn what the first kilobytes tell: 0.68 tokens a character.
RUN_CHARS = 4_096
SAMPLE_CHARS = 2_048

# Searched at once, in 5 ms.
_SEARCHED_CHARS = 256 * 1024
_RUN = re.compile(rf"[A-Za-z0-9+/_=-]{{{RUN_CHARS},}}")


class TextCounter:
    """Counts texts in one encoding. Holds no state but the encoding; safe from several threads."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding

    def count(self, text: str) -> int:
        """Tokens of `text`. Exact, but for base64 runs of 4,096 characters and more (within 2 %) and
        texts that offer no place to divide them in 100,000 characters (within 2 tokens a piece).

        Lone surrogates count as the replacement character.
        """
        if len(text) < RUN_CHARS:
            return len(self._encoding.encode_ordinary(text))
        return sum(self._count_part(text[start:end], run) for start, end, run in _parts(text))

    def _count_part(self, text: str, is_run: bool) -> int:
        if is_run:
            sample = self._exact(text[:SAMPLE_CHARS])
            return sample + round((len(text) - SAMPLE_CHARS) * sample / SAMPLE_CHARS)
        return sum(self._exact(piece) for piece in pieces_of(text))

    def _exact(self, text: str) -> int:
        return len(self._encoding.encode_ordinary(text))


def pieces_of(text: str, limit: int = PIECE_CHARS) -> Iterator[str]:
    """`text` in pieces of at most `limit` characters, divided where no token can cross.

    A space after a visible character always begins a new word in both encodings' patterns; so does a
    visible character other than "/" after a line feed. Without such a place the cut is plain.
    """
    start = 0
    while len(text) - start > limit:
        # Only the last tenth is searched: a text without a safe place is not scanned again and again.
        end = _cut(text, start + limit - limit // 10, start + limit)
        yield text[start:end]
        start = end
    yield text[start:]


def _cut(text: str, lowest: int, highest: int) -> int:
    return next((at for at in range(highest, lowest, -1) if is_safe_cut(text[at - 1], text[at])), highest)


def is_safe_cut(before: str, after: str) -> bool:
    """True when no token can hold both of these neighbouring characters, nor depend on the other side."""
    if after == " ":
        return not before.isspace()
    return before == "\n" and after != "/" and not after.isspace()


def _runs(text: str) -> Iterator[re.Match[str]]:
    """The runs of the text, from the left.

    A part at a time: a thread that searches gives the interpreter to nobody else meanwhile.
    """
    at = 0
    while at < len(text):
        found = _RUN.search(text, at, at + _SEARCHED_CHARS)
        if found is None:
            # A run that begins before has enough of its characters in the part just searched.
            at += _SEARCHED_CHARS - RUN_CHARS + 1
        elif run := _RUN.match(text, found.start()):
            yield run
            at = run.end()


def _parts(text: str) -> Iterator[tuple[int, int, bool]]:
    end = 0
    for run in _runs(text):
        if run.start() > end:
            yield end, run.start(), False
        yield run.start(), run.end(), True
        end = run.end()
    if end < len(text):
        yield end, len(text), False
