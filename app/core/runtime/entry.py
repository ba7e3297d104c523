"""Stored messages with their place and time, and the exchanges between user and assistant in them.

Knows nothing of checkpoints or snapshots. Places are sequence numbers of the store; times come in
and are only shown, never compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.core.history.message import Message
from app.core.summary.source import recall_id

# What a span, an event or a restored message of a role is called.
TYPES = {
    "user": "user_message",
    "assistant": "assistant_message",
    "tool": "tool_result",
    "system": "system_message",
    "developer": "system_message",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A message as the archive holds it: `chain` names it, `seq` orders it, `at` is UTC seconds."""

    chain: bytes
    message: Message
    seq: int
    at: float

    @property
    def id(self) -> str:
        """The id under which the archive gives it back."""
        return recall_id(self.chain)

    @property
    def type(self) -> str:
        """What it is called in spans and events; roles we do not know keep their name."""
        return TYPES.get(self.message.role, self.message.role)

    @property
    def milliseconds(self) -> int:
        """`at` in whole milliseconds: how times stand in every payload."""
        return round(self.at * 1_000)


def texts_of(message: Message) -> tuple[str, ...]:
    """The strings of the content that are text, as stored: one, or one a text part."""
    content = message.fields.get("content")
    if isinstance(content, str):
        return (content,)
    if not isinstance(content, list | tuple):
        return ()
    parts = (part.get("text") for part in content if isinstance(part, dict))
    return tuple(text for text in parts if isinstance(text, str))


def says_something(message: Message) -> bool:
    """True when it holds text that is not white space."""
    return any(text.strip() for text in texts_of(message))


def exchange_ends(entries: Sequence[Entry]) -> list[int]:
    """Where meaningful exchanges end: the index of each assistant text that answers a user's (A37).

    Both texts are non-empty. Several user messages before one answer are one exchange; what the
    assistant says without having been asked anew belongs to the exchange before.
    """
    return list(_ends([entry.message for entry in entries], 0))


def exchanges_since(messages: Sequence[Message], start: int) -> int:
    """How many meaningful exchanges end at the index `start` or later; no more is read than tells that."""
    first = start
    while first > 0:
        first -= 1
        if _speaks(messages[first]):
            break
    return sum(end >= start for end in _ends(messages, first))


def _ends(messages: Sequence[Message], first: int) -> Iterator[int]:
    asked = False
    for index in range(first, len(messages)):
        message = messages[index]
        if not _speaks(message):
            continue
        if message.role == "assistant" and asked:
            yield index
        asked = message.role == "user"


def _speaks(message: Message) -> bool:
    return message.role in ("user", "assistant") and says_something(message)
