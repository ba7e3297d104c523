"""Stored messages with their position and time, the exchanges they form, and excerpts of them as evidence.

Positions are sequence numbers of the store; times are shown and never compared. Every excerpt is a substring
of one text of the message it cites: nothing is normalised, joined or marked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

import msgspec

from palimpsest.core.history.message import Message
from palimpsest.core.notes.facts import Information
from palimpsest.core.notes.sentences import sentences_of
from palimpsest.core.recall.searchable_text import without_recall_output
from palimpsest.core.summary.source import recall_id
from palimpsest.core.text.fence import sendable
from palimpsest.core.text.message_text import without_data
from palimpsest.core.text.secrets import REMOVED, without_secrets

# Types of spans and events by the message's role.
TYPES = {
    "user": "user_message",
    "assistant": "assistant_message",
    "tool": "tool_result",
    "system": "system_message",
    "developer": "system_message",
}


@dataclass(frozen=True, slots=True)
class ArchivedMessage:
    """A message of the archive: `chain` names it, `seq` orders it, `at` is UTC seconds."""

    chain: bytes
    message: Message
    seq: int
    at: float

    @property
    def id(self) -> str:
        """The id under which the archive returns it."""
        return recall_id(self.chain)

    @property
    def type(self) -> str:
        """Its type in spans and events; unknown roles keep their name."""
        return TYPES.get(self.message.role, self.message.role)

    @property
    def milliseconds(self) -> int:
        """`at` in whole milliseconds, as in every payload."""
        return round(self.at * 1_000)


def texts_of(message: Message) -> tuple[str, ...]:
    """The text strings of the content, as stored: one, or one for each text part."""
    content = message.fields.get("content")
    if isinstance(content, str):
        return (content,)
    if not isinstance(content, list | tuple):
        return ()
    parts = (part.get("text") for part in content if isinstance(part, dict))
    return tuple(text for text in parts if isinstance(text, str))


def says_something(message: Message) -> bool:
    """True when it has text other than white space."""
    return any(text.strip() for text in texts_of(message))


def exchange_ends(entries: Sequence[ArchivedMessage]) -> list[int]:
    """Where meaningful exchanges end: the index of each assistant text that answers a user's (A37).

    Both texts are non-empty. Several user messages before one answer are one exchange; further assistant
    texts without a new user message belong to the exchange before.
    """
    return list(_ends([entry.message for entry in entries], 0))


def exchanges_since(messages: Sequence[Message], start: int) -> int:
    """How many meaningful exchanges end at the index `start` or later, reading only as far back as needed."""
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


# Spans of one packet, and characters of an excerpt (A39).
SPANS = 12
EXCERPT_CHARS = 500
# Characters of one text that are searched for the best sentence, and that can be cited.
_READ_CHARS = 8_000
_CITED_CHARS = 100_000
# Characters at the end of a cut text that are not cited: a secret that is cut in two is not recognised.
_EDGE_CHARS = 1_000
# Marks where something was removed from a text: the pieces between them are as stored.
_TAKEN_OUT = re.compile(re.escape(REMOVED) + r"|\[[\w./+-]+ data, \d+ characters\]|\ufffd")
# Weight of a sentence by its author: users' words before a tool's output.
_ROLE_SHARE = {"user": 1.0, "assistant": 0.6}
_OTHER_SHARE = 0.3


class Span(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An excerpt with its origin; `timestamp` in milliseconds of UTC, `seq` orders messages."""

    id: str
    timestamp: int
    type: str
    seq: int
    excerpt: str


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a message, and the sentences at its beginning."""

    entry: ArchivedMessage
    text: str
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Found:
    worth: float
    entry: ArchivedMessage
    excerpt: str


def evidence_of(
    entries: Sequence[ArchivedMessage], spans: int = SPANS, excerpt_chars: int = EXCERPT_CHARS
) -> tuple[Span, ...]:
    """At most `spans` spans, one a message, in order of position; at most `excerpt_chars` characters each.

    The first user text and the newest text are always included (given room for two); the others are those
    with the most information that the rest lacks. An excerpt contains no key-shaped string, no long base64
    and nothing that cannot be sent as UTF-8. Messages without citable text have no span.
    """
    found = _found([piece for entry in entries for piece in _pieces_of(entry)], excerpt_chars)
    first = next((each for each in found if each.entry.message.role == "user"), None)
    fixed = [each for each in (first, found[-1] if found else None) if each is not None]
    ranked = sorted(found, key=lambda each: (-each.worth, -each.entry.seq))
    # Keyed by identity: two messages may be equal.
    chosen = list({id(each): each for each in (*fixed, *ranked)}.values())[: max(0, spans)]
    return tuple(_span(each) for each in sorted(chosen, key=lambda each: each.entry.seq))


def span_hash(spans: Iterable[Span]) -> str:
    """The sha256 (64 hex digits) over a line "id:timestamp:type:excerpt" for each span (A37)."""
    lines = (f"{span.id}:{span.timestamp}:{span.type}:{span.excerpt}" for span in spans)
    return sha256("\n".join(lines).encode()).hexdigest()


def _span(found: _Found) -> Span:
    entry = found.entry
    return Span(
        id=entry.id,
        timestamp=entry.milliseconds,
        type=sendable(entry.type),
        seq=entry.seq,
        excerpt=found.excerpt,
    )


def _pieces_of(entry: ArchivedMessage) -> list[_Piece]:
    """The parts of a message that can be cited."""
    if entry.message.is_instruction:
        return []
    texts = texts_of(without_recall_output(entry.message))
    pieces = (piece for text in texts for piece in _pieces(text))
    return [_Piece(entry, piece, sentences_of(piece[:_READ_CHARS])) for piece in pieces]


def _found(pieces: Sequence[_Piece], excerpt_chars: int) -> list[_Found]:
    """The best excerpt of each message, in order; none for a message without citable text."""
    worths = iter(Information([sentence for piece in pieces for sentence in piece.sentences]).worths)
    best: dict[int, tuple[float, int, _Piece]] = {}
    for piece in pieces:
        share = _ROLE_SHARE.get(piece.entry.message.role, _OTHER_SHARE)
        # The beginning, where no sentence has any worth.
        offers = [(0.0, 0, piece)]
        offers += [(next(worths) * share, piece.text.find(each), piece) for each in piece.sentences]
        offer = max(offers, key=lambda offer: offer[0])
        # Keyed by identity: two messages may be equal.
        if id(piece.entry) not in best or offer[0] > best[id(piece.entry)][0]:
            best[id(piece.entry)] = offer
    found = []
    for worth, start, piece in best.values():
        excerpt = _window(piece.text, max(0, start), excerpt_chars)
        # A window that begins inside a word may look like a secret that the whole word was not.
        if excerpt and without_secrets(excerpt) == excerpt:
            found.append(_Found(worth, piece.entry, excerpt))
    return found


def _pieces(text: str) -> list[str]:
    """The parts of `text`, as stored, between those that may not be shown."""
    shown = sendable(without_secrets(without_data(text[:_CITED_CHARS])))
    if len(text) > _CITED_CHARS:
        shown = shown[:-_EDGE_CHARS]
    # Checked against the text: an excerpt that is not as stored would be worse than none.
    return [piece for piece in _TAKEN_OUT.split(shown) if piece.strip() and piece in text]


def _window(piece: str, start: int, excerpt_chars: int) -> str:
    """At most `excerpt_chars` characters of `piece`: all of it, else from `start`, or earlier to fill up."""
    begin = 0 if len(piece) <= excerpt_chars else min(start, len(piece) - excerpt_chars)
    return piece[begin : begin + excerpt_chars].strip()
