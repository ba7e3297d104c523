"""The stored state of the style `rolling`, and the encoding of an accepted reply.

The state is JSON with a version. Damaged bytes and unknown versions read as empty; the block in the view
still has the summary.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from palimpsest.core.summary.record import PREAMBLE as HANDOFF_PREAMBLE
from palimpsest.core.summary.rolling.digest import HEADING, PREAMBLE, TITLES, digest_of, rendered
from palimpsest.core.summary.rolling.state import SessionState
from palimpsest.core.summary.source import SummarySource, stored_as
from palimpsest.core.text.fence import sendable, unfenced
from palimpsest.core.text.secrets import without_secrets

VERSION = 1
_OPENING = "\n```json\n"
_CLOSING = "\n```"


@dataclass(frozen=True, slots=True)
class RollingRecord:
    """The summary at full length, whatever a view shows of it, and the session's state."""

    summary: str = ""
    state: SessionState = field(default_factory=SessionState)


@dataclass(frozen=True, slots=True)
class _Stored:
    """`RollingRecord` as stored. `rolling` is the version, under a name that no other style uses."""

    rolling: int
    summary: str
    state: SessionState


@dataclass(frozen=True, slots=True)
class AcceptedReply:
    """An accepted reply: the summary so far, the whole state so far, and codes of events."""

    summary: str
    state: SessionState = field(default_factory=SessionState)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Tail:
    """The JSON after the summary in an accepted reply."""

    whole_state: SessionState
    notes: tuple[str, ...]


_TAIL, _STORED = msgspec.json.Decoder(_Tail), msgspec.json.Decoder(_Stored)


def encoded(record: RollingRecord) -> bytes:
    """The bytes that `decoded_record` reads."""
    return msgspec.json.encode(_Stored(VERSION, sendable(record.summary), record.state))


def decoded_record(data: bytes) -> RollingRecord:
    """The record that `encoded` wrote; an empty one for anything else."""
    return _read(data) or RollingRecord()


def previous_record(source: SummarySource) -> RollingRecord:
    """The record of the current compaction; without a state of this style, as `record_to_continue`."""
    return _read(source.state) or record_to_continue(source)


def record_to_continue(source: SummarySource) -> RollingRecord:
    """The record that a request continues: a model's, else the text of the current block."""
    record = decoded_record(source.state)
    if record.summary or not source.previous:
        return record
    body = without_secrets(unfenced(source.previous))
    for frame in (f"# {HEADING}", PREAMBLE, HANDOFF_PREAMBLE):
        body = body.replace(frame, "", 1)
    digest = digest_of(body)
    return RollingRecord(rendered(digest) if set(digest) - {TITLES[1]} else body.strip(), record.state)


def encoded_reply(reply: AcceptedReply) -> str:
    """An accepted reply as one text: the summary, then the whole state in a fenced block.

    Of several calls only the text of the last one reaches the writer of the block.
    """
    tail = msgspec.json.encode(_Tail(reply.state, reply.notes)).decode()
    return f"{sendable(reply.summary)}{_OPENING}{tail}{_CLOSING}"


def decoded_reply(text: str) -> AcceptedReply | None:
    """The reply that `encoded_reply` wrote; None for any other text, such as a reply not accepted yet."""
    summary, opening, tail = text.rpartition(_OPENING)
    if not opening or not tail.endswith(_CLOSING):
        return None
    read = stored_as(_TAIL, tail.removesuffix(_CLOSING))
    return AcceptedReply(summary, read.whole_state, read.notes) if read else None


def _read(data: bytes) -> RollingRecord | None:
    stored = stored_as(_STORED, data)
    return RollingRecord(stored.summary, stored.state) if stored and stored.rolling == VERSION else None
