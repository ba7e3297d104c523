"""The input of a summary, and texts cut to a number of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from palimpsest.core.history.message import Message
from palimpsest.core.text.message_text import cut_to

T = TypeVar("T")
CountText = Callable[[str], int]
"""Tokens of a text in the encoding of the budget; "" counts 0."""
# Room in tokens below which a line is left out instead of cut.
_LEAST_CUT = 12
# Characters per token at which the search for a cut begins.
_MOST_CHARS_PER_TOKEN = 6


@dataclass(frozen=True, slots=True)
class SummarySource:
    """The messages that a new block replaces, and their surroundings.

    `folded`: every message that the new watermark covers, oldest first, with its chain digest, except those
    that stay verbatim; `places` are their indexes in the conversation. `previous`, the whole text of
    the current block ("" for the first compaction), covers `folded[:since]`. `tail`: the messages after the
    watermark; `kept`: those before it that stay verbatim. `instructions` and `task`: texts that stay in every
    view. `state`: what the style stored with the current compaction, in its own form; b"" for the first
    compaction or after another style. `room`: tokens that the new block may take. `before`: the place up to
    which messages have left the view.
    """

    folded: tuple[tuple[bytes, Message], ...]
    since: int = 0
    previous: str = ""
    tail: tuple[Message, ...] = ()
    kept: tuple[Message, ...] = ()
    state: bytes = b""
    instructions: str = ""
    task: str = ""
    room: int = 0
    places: tuple[int, ...] = ()
    before: int = 0

    @property
    def fresh(self) -> tuple[tuple[bytes, Message], ...]:
        """The messages that the current block does not cover."""
        return self.folded[self.since :]

    @property
    def messages(self) -> list[Message]:
        """All messages: the folded ones, those that stay verbatim, and those after the watermark."""
        return [*(message for _, message in self.folded), *self.kept, *self.tail]

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the folded messages in the conversation, from 1."""
        return tuple(place + 1 for place in self.places) or tuple(range(1, len(self.folded) + 1))


def stored_as(decoder: msgspec.json.Decoder[T], stored: bytes | str) -> T | None:
    """The decoded JSON value; None for b"", damaged bytes and any other value."""
    try:
        return decoder.decode(stored)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


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
