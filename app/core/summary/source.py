"""What a summary is made of: plain values for the rest of this folder.

Knows nothing of how the text is made, nor of stores, models or windows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from app.core.history.message import Message

T = TypeVar("T")
CountText = Callable[[str], int]
"""Tokens of a text in the encoding the budget is in; "" counts 0."""


@dataclass(frozen=True, slots=True)
class SummarySource:
    """What the new block stands for.

    `folded`: every message the new watermark covers, oldest first, with its chain digest, except
    those that stay verbatim. `folded[:since]` stand in `previous` already (the whole text of the
    current block, "" for the first compaction). `newest_request` is the text of the newest user message of
    the conversation, folded or not. `tail` are the messages after the watermark. `instructions` and `task`
    are texts that stay in every view. `is_running`: the newest user message stands after the block, and what
    is folded was done for it. `state` is what the style of the current compaction wants to know again, in its
    own form; b"" for the first compaction or after another style. `is_anew`: `folded[since:]` are to be read
    again, and `previous` stands only for those before them.
    """

    folded: tuple[tuple[bytes, Message], ...]
    since: int = 0
    previous: str = ""
    newest_request: str = ""
    tail: tuple[Message, ...] = ()
    state: bytes = b""
    instructions: str = ""
    task: str = ""
    is_running: bool = False
    is_anew: bool = False

    @property
    def fresh(self) -> tuple[tuple[bytes, Message], ...]:
        """The messages to be read: those no summary has seen yet, unless the record is written anew."""
        return self.folded[self.since :]


def recall_id(chain: bytes) -> str:
    """The id under which the archive gives a message back: "dcm_" and 32 hex digits of its chain."""
    return "dcm_" + chain.hex()[:32]


def stored_as(kind: type[T], stored: bytes | str) -> T | None:
    """The JSON value as one of that kind; None for b"", damaged bytes and another form."""
    try:
        return msgspec.json.decode(stored, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
