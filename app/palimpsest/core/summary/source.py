"""The input of a summary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from palimpsest.core.history.message import Message

T = TypeVar("T")
CountText = Callable[[str], int]
"""Tokens of a text in the encoding of the budget; "" counts 0."""


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
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the folded messages in the conversation, from 1."""
        return tuple(place + 1 for place in self.places) or tuple(range(1, len(self.folded) + 1))


def stored_as(decoder: msgspec.json.Decoder[T], stored: bytes | str) -> T | None:
    """The decoded JSON value; None for b"", damaged bytes and any other value."""
    try:
        return decoder.decode(stored)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
