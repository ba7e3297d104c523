"""Exact spans of stored messages, with where each is from, as evidence for a structured summary (A39).

Every excerpt is a substring of one text of the message it cites: nothing is normalised, joined or
marked. Knows nothing of why evidence is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

import msgspec

from app.core.recall.echo import without_echoes
from app.core.runtime.entry import Entry, texts_of
from app.core.summary.carry.statements import Statement, order_of, sentences
from app.core.text.fence import sendable
from app.core.text.secrets import REMOVED, without_secrets
from app.core.text.wording import without_data

# Spans of one packet, and characters of an excerpt (A39).
SPANS = 12
EXCERPT_CHARS = 500
# Characters of one text that are read for the best place, and that can be cited from at all.
_READ_CHARS = 8_000
_CITED_CHARS = 100_000
# At the end of a text that was cut so many characters are not cited: a secret cut in two is not seen.
_EDGE_CHARS = 1_000
# Where something was taken out of a text: the pieces between are as stored.
_TAKEN_OUT = re.compile(re.escape(REMOVED) + r"|\[[\w./+-]+ data, \d+ characters\]|\ufffd")
# What a text is worth by who said it, beside what it says: people's own words before a tool's output.
_ROLE_WORTH = {"user": 1.0, "assistant": 0.6}


class Span(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An excerpt with its provenance; `timestamp` in milliseconds of UTC, `seq` orders messages."""

    id: str
    timestamp: int
    type: str
    seq: int
    excerpt: str


@dataclass(frozen=True, slots=True)
class _Found:
    worth: float
    entry: Entry
    excerpt: str


def evidence_of(
    entries: Sequence[Entry], spans: int = SPANS, excerpt_chars: int = EXCERPT_CHARS
) -> tuple[Span, ...]:
    """At most `spans` spans, one a message, in order of place; at most `excerpt_chars` characters each.

    The first user text and the newest text are always among them (given room for two); the others
    are those that say most. An excerpt holds no key-shaped string, no long base64 and nothing that
    cannot be sent as UTF-8. Messages without citable text have none.
    """
    found = [each for entry in entries if (each := _found(entry, excerpt_chars)) is not None]
    first = next((each for each in found if each.entry.message.role == "user"), None)
    fixed = [each for each in (first, found[-1] if found else None) if each is not None]
    ranked = sorted(found, key=lambda each: (-each.worth, -each.entry.seq))
    # Keyed by identity: a message may be equal to another one, a place never is.
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


def _found(entry: Entry, excerpt_chars: int) -> _Found | None:
    """The best excerpt of a message; None when no text of it can be cited."""
    if entry.message.is_instruction:
        return None
    role = entry.message.role
    texts = texts_of(without_echoes(entry.message))
    offers = [_best(piece, role) for text in texts for piece in _pieces(text)]
    if not offers:
        return None
    worth, start, piece = max(offers, key=lambda offer: offer[0])
    excerpt = _window(piece, start, excerpt_chars)
    # A window that begins inside a word may look like a secret that the whole word was not.
    if not excerpt or without_secrets(excerpt) != excerpt:
        return None
    return _Found(worth + _ROLE_WORTH.get(role, 0.0), entry, excerpt)


def _pieces(text: str) -> list[str]:
    """The stretches of `text`, as stored, between what may not be shown."""
    shown = sendable(without_secrets(without_data(text[:_CITED_CHARS])))
    if len(text) > _CITED_CHARS:
        shown = shown[:-_EDGE_CHARS]
    # Looked up once more, for an excerpt that is not as stored would be worse than none.
    return [piece for piece in _TAKEN_OUT.split(shown) if piece.strip() and piece in text]


def _best(piece: str, role: str) -> tuple[float, int, str]:
    """What the best sentence is worth and where it begins; the beginning when none says much."""
    worth, at = 0.0, 0
    for sentence in sentences(piece[:_READ_CHARS]):
        score = Statement(sentence, role, order_of(0, 0)).score
        if score > worth:
            worth, at = score, piece.find(sentence)
    return worth, max(0, at), piece


def _window(piece: str, start: int, excerpt_chars: int) -> str:
    """At most `excerpt_chars` characters of `piece`: all of it, else from `start` on, filled up before it."""
    begin = 0 if len(piece) <= excerpt_chars else min(start, len(piece) - excerpt_chars)
    return piece[begin : begin + excerpt_chars].strip()
