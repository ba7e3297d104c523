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

from app.core.notes.facts import Information
from app.core.notes.sentences import sentences_of
from app.core.recall.echo import without_echoes
from app.core.runtime.entry import Entry, texts_of
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
# What a sentence says counts so much by who said it: people's own words before a tool's output.
_ROLE_SHARE = {"user": 1.0, "assistant": 0.6}
_OTHER_SHARE = 0.3


class Span(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An excerpt with its provenance; `timestamp` in milliseconds of UTC, `seq` orders messages."""

    id: str
    timestamp: int
    type: str
    seq: int
    excerpt: str


@dataclass(frozen=True, slots=True)
class _Piece:
    """A stretch of a message, and the sentences in its beginning."""

    entry: Entry
    text: str
    sentences: tuple[str, ...]


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
    are those that say most that the others do not. An excerpt holds no key-shaped string, no long base64
    and nothing that cannot be sent as UTF-8. Messages without citable text have none.
    """
    found = _found([piece for entry in entries for piece in _pieces_of(entry)], excerpt_chars)
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


def _pieces_of(entry: Entry) -> list[_Piece]:
    """The stretches of a message that can be cited."""
    if entry.message.is_instruction:
        return []
    texts = texts_of(without_echoes(entry.message))
    pieces = (piece for text in texts for piece in _pieces(text))
    return [_Piece(entry, piece, sentences_of(piece[:_READ_CHARS])) for piece in pieces]


def _found(pieces: Sequence[_Piece], excerpt_chars: int) -> list[_Found]:
    """The best excerpt of each message, in order; none of one without citable text."""
    worths = iter(Information([sentence for piece in pieces for sentence in piece.sentences]).worths)
    best: dict[int, tuple[float, int, _Piece]] = {}
    for piece in pieces:
        share = _ROLE_SHARE.get(piece.entry.message.role, _OTHER_SHARE)
        # The beginning where no sentence says much.
        offers = [(0.0, 0, piece)]
        offers += [(next(worths) * share, piece.text.find(each), piece) for each in piece.sentences]
        offer = max(offers, key=lambda offer: offer[0])
        # Keyed by identity: a message may be equal to another one, a place never is.
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
    """The stretches of `text`, as stored, between what may not be shown."""
    shown = sendable(without_secrets(without_data(text[:_CITED_CHARS])))
    if len(text) > _CITED_CHARS:
        shown = shown[:-_EDGE_CHARS]
    # Looked up once more, for an excerpt that is not as stored would be worse than none.
    return [piece for piece in _TAKEN_OUT.split(shown) if piece.strip() and piece in text]


def _window(piece: str, start: int, excerpt_chars: int) -> str:
    """At most `excerpt_chars` characters of `piece`: all of it, else from `start` on, filled up before it."""
    begin = 0 if len(piece) <= excerpt_chars else min(start, len(piece) - excerpt_chars)
    return piece[begin : begin + excerpt_chars].strip()
