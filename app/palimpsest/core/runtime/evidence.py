"""Stored messages with their position and time, the exchanges they form, and excerpts of them as evidence.

Positions are sequence numbers of the store; times are shown and never compared. Every excerpt is a substring
of one text of the message it cites: nothing is normalised, joined or marked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

import msgspec

from palimpsest.core.history.message import Message
from palimpsest.core.notes.facts import Information
from palimpsest.core.notes.sentences import sentences_of
from palimpsest.core.recall.searchable_text import without_recall_output
from palimpsest.core.text.fence import sendable
from palimpsest.core.text.message_text import without_data
from palimpsest.core.text.secrets import REMOVED, without_secrets
from palimpsest.core.view.compaction import context_id

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
        return context_id(self.chain)

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


def exchange_ends(messages: Sequence[Message]) -> list[int]:
    """Where meaningful exchanges end: the index of each assistant text that answers a user's (A37).

    Both texts are non-empty. Several user messages before one answer are one exchange; further assistant
    texts without a new user message belong to the exchange before.
    """
    ends, asked = [], False
    for index, message in enumerate(messages):
        if message.role in ("user", "assistant") and any(text.strip() for text in texts_of(message)):
            if message.role == "assistant" and asked:
                ends.append(index)
            asked = message.role == "user"
    return ends


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


def evidence_of(entries: Sequence[ArchivedMessage]) -> tuple[Span, ...]:
    """At most `SPANS` spans, one a message, in order of position, each of at most `EXCERPT_CHARS` characters.

    The first user text and the newest text are always included; the others are those with the most
    information that the rest lacks. An excerpt contains no key-shaped string, no long base64 and nothing that
    cannot be sent as UTF-8. Messages without citable text have no span.
    """
    # A part of a message between what may not be shown, with the sentences at its beginning.
    parts = [
        (entry, part, sentences_of(part[:_READ_CHARS]))
        for entry in entries
        if not entry.message.is_instruction
        for text in texts_of(without_recall_output(entry.message))
        for part in _citable(text)
    ]
    worths = iter(Information([sentence for *_, sentences in parts for sentence in sentences]).worths)
    best: dict[int, tuple[float, int, str]] = {}
    for entry, part, sentences in parts:
        share = _ROLE_SHARE.get(entry.message.role, _OTHER_SHARE)
        # The beginning, where no sentence has any worth.
        offers = [(0.0, 0, part)]
        offers += [(next(worths) * share, part.find(each), part) for each in sentences]
        offer = max(offers, key=lambda offer: offer[0])
        if entry.seq not in best or offer[0] > best[entry.seq][0]:
            best[entry.seq] = offer
    found: list[tuple[float, ArchivedMessage, str]] = []
    for entry in entries:
        if entry.seq in best:
            worth, start, part = best[entry.seq]
            begin = max(0, min(start, len(part) - EXCERPT_CHARS))
            excerpt = part[begin : begin + EXCERPT_CHARS].strip()
            # An excerpt that begins inside a word may look like a secret that the whole word was not.
            if excerpt and without_secrets(excerpt) == excerpt:
                found.append((worth, entry, excerpt))
    first = next((each for each in found if each[1].message.role == "user"), None)
    ranked = sorted(found, key=lambda each: (-each[0], -each[1].seq))
    chosen = dict.fromkeys(
        each[1].seq for each in (first, found[-1] if found else None, *ranked) if each is not None
    )
    cited = set(list(chosen)[:SPANS])
    return tuple(
        Span(
            id=entry.id,
            timestamp=entry.milliseconds,
            type=sendable(entry.type),
            seq=entry.seq,
            excerpt=excerpt,
        )
        for _, entry, excerpt in sorted(found, key=lambda each: each[1].seq)
        if entry.seq in cited
    )


def span_hash(spans: Iterable[Span]) -> str:
    """The sha256 (64 hex digits) over a line "id:timestamp:type:excerpt" for each span (A37)."""
    lines = (f"{span.id}:{span.timestamp}:{span.type}:{span.excerpt}" for span in spans)
    return sha256("\n".join(lines).encode()).hexdigest()


def _citable(text: str) -> list[str]:
    """The parts of `text`, as stored, between those that may not be shown."""
    shown = sendable(without_secrets(without_data(text[:_CITED_CHARS])))
    if len(text) > _CITED_CHARS:
        shown = shown[:-_EDGE_CHARS]
    # Checked against the text: an excerpt that is not as stored would be worse than none.
    return [part for part in _TAKEN_OUT.split(shown) if part.strip() and part in text]
