"""What this style keeps from one compaction to the next, and how an accepted reply is handed on.

JSON with a version. What is damaged, or of a version we do not know, is empty: the
block in the view still holds the summary. Knows nothing of how either is made.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from app.core.summary.block import PREAMBLE as HANDOFF_PREAMBLE
from app.core.summary.rolling.digest import HEADING, PREAMBLE, TITLES, digest_of, rendered
from app.core.summary.rolling.state import SessionState
from app.core.summary.source import SummarySource, stored_as
from app.core.text.fence import sendable, unfenced
from app.core.text.secrets import without_secrets

VERSION = 1
_OPENING = "\n```json\n"
_CLOSING = "\n```"


@dataclass(frozen=True, slots=True)
class Kept:
    """The summary at its full length, whatever a view could show of it, and the session's state."""

    summary: str = ""
    state: SessionState = field(default_factory=SessionState)


@dataclass(frozen=True, slots=True)
class _Stored:
    """`Kept` as it is stored. `rolling` is the version, under a name that other styles do not use."""

    rolling: int
    summary: str
    state: SessionState


@dataclass(frozen=True, slots=True)
class Told:
    """An accepted reply: the summary so far, the whole state so far, and what deserves an event."""

    summary: str
    state: SessionState = field(default_factory=SessionState)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Tail:
    """What stands behind the summary in an accepted reply."""

    whole_state: SessionState
    notes: tuple[str, ...]


def encoded(kept: Kept) -> bytes:
    """The bytes that `kept_of` reads."""
    return msgspec.json.encode(_Stored(VERSION, sendable(kept.summary), kept.state))


def kept_of(data: bytes) -> Kept:
    """What `encoded` wrote; empty for anything else."""
    return _read(data) or Kept()


def record_before(source: SummarySource) -> Kept:
    """What a model wrote for the compaction in force; the block's text without a state of this style."""
    return _read(source.state) or kept_before(source)


def kept_before(source: SummarySource) -> Kept:
    """What a question continues: the record of a model, else what the block says, by whomever it was."""
    kept = kept_of(source.state)
    if kept.summary or not source.previous:
        return kept
    body = without_secrets(unfenced(source.previous))
    for frame in (f"# {HEADING}", PREAMBLE, HANDOFF_PREAMBLE):
        body = body.replace(frame, "", 1)
    digest = digest_of(body)
    return Kept(rendered(digest) if set(digest) - {TITLES[1]} else body.strip(), kept.state)


def told_text(told: Told) -> str:
    """An accepted reply as one text: the summary, then the whole state in a fenced block.

    Several calls may follow each other, and only the text of the last one reaches who writes the block.
    """
    tail = msgspec.json.encode(_Tail(told.state, told.notes)).decode()
    return f"{sendable(told.summary)}{_OPENING}{tail}{_CLOSING}"


def told_of(text: str) -> Told | None:
    """What `told_text` wrote; None for a text of another kind, such as a reply nobody has judged."""
    summary, opening, tail = text.rpartition(_OPENING)
    if not opening or not tail.endswith(_CLOSING):
        return None
    read = stored_as(_Tail, tail.removesuffix(_CLOSING))
    return Told(summary, read.whole_state, read.notes) if read else None


def _read(data: bytes) -> Kept | None:
    stored = stored_as(_Stored, data)
    return Kept(stored.summary, stored.state) if stored and stored.rolling == VERSION else None
