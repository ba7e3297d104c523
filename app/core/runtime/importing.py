"""Another system's records, read as a session: what it is restored from, and which messages come with it.

Messages keep the bytes they have in the records. Pure: knows nothing of stores, of whose records these
are, nor of how many there may be at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from app.core.runtime.foreign import CONTENT_KEYS, MESSAGE_ROLES, Stored
from app.core.runtime.records import Record, RecordedEvent
from app.core.runtime.restore import HISTORY_KEYS, Restored, restored
from app.core.runtime.snapshot import RuntimeSnapshot
from app.core.wire.json_members import raw_elements, raw_members
from app.core.wire.json_text import decoded, encoded
from app.core.wire.responses.items import as_chat
from app.errors import NothingToRestore

# Where a record's own messages stand: in the state within a checkpoint, in the state itself, at the top.
_PLACES: tuple[tuple[str, ...], ...] = (("runtime", "transcript"), ("transcript",), ())
_INSTRUCTIONS = frozenset({"system", "developer"})
COMPACTION = "compaction_record"
"""The type of an event that is a compaction as `moved` writes it."""
HIDDEN = "hidden_message"
"""The type of an event that is a message its client was never shown. An imported session does without."""
ITEMS = "items"
"""Where an answer of the Responses API stands in its event: it is an array, as content of chat is."""
MESSAGE = "message"
"""The type of an event that is a message of a role without a type of its own."""


@dataclass(frozen=True, slots=True)
class ImportedMessage:
    """A message as it is spelled in the records; `at` is UTC seconds, `name` what they call it, or ""."""

    raw: bytes
    at: float
    name: str = ""


@dataclass(frozen=True, slots=True)
class Imported:
    """What is made of a record: its messages, instructions first; the events that are kept; the state.

    `source` is the id of the event that the state is from, "" when it is from many.
    """

    messages: tuple[ImportedMessage, ...]
    events: tuple[RecordedEvent, ...]
    restored: Restored
    source: str


@dataclass(frozen=True, slots=True)
class _Told:
    """The message that an event tells of. `is_all`: the event is nothing but this message."""

    message: ImportedMessage
    is_all: bool


def imported_of(record: Record) -> Imported:
    """The session that `record` tells of, by the table of `restore` (A40).

    The messages are those that the chosen event carries, and behind them what later events tell; or,
    where it carries none, what all events tell. NothingToRestore when there is no message that is not
    an instruction. An event that is nothing but one of these messages is not kept besides.
    """
    record = replace(record, events=tuple([event for event in record.events if event.type != HIDDEN]))
    values = [decoded(event.payload) for event in record.events]
    # Named by place: ids of other systems may repeat.
    stored = [
        Stored(event.type, value, event.at, str(place))
        for place, (event, value) in enumerate(zip(record.events, values, strict=True))
    ]
    told = [_told(event, given) for event, given in zip(record.events, stored, strict=True)]
    tells = any(told)

    def has_messages(snapshot: RuntimeSnapshot) -> bool:
        # A state that only names messages of its own archive is of use where they came along.
        return tells or bool(snapshot.transcript.conversation_history)

    found = restored(stored, has_messages)
    if found is None:
        raise NothingToRestore("No event of these can be read as a session's state or messages.")
    place = int(found.event_id) if found.event_id else None
    carried = _carried(record.events[place], found) if place is not None and found.history else []
    start = place + 1 if carried and place is not None else 0
    later = {at: each for at, each in enumerate(told) if each is not None and at >= start}
    overlap = _overlap(carried, [each.message for each in later.values()])
    used = dict(list(later.items())[overlap:])
    messages = (*carried, *(each.message for each in used.values()))
    if all(_is_instruction(message) for message in messages):
        raise NothingToRestore("The events tell of no message but instructions.")
    return Imported(
        messages=messages,
        events=tuple(
            event for at, event in enumerate(record.events) if at not in used or not used[at].is_all
        ),
        restored=found,
        source=record.events[place].id if place is not None else "",
    )


def _carried(event: RecordedEvent, found: Restored) -> list[ImportedMessage]:
    """The history of the event that was restored from, as it is spelled there."""
    for place in _PLACES:
        members = raw_members(event.payload)
        for key in place:
            members = raw_members(members.get(key, b"{}"))
        for key in HISTORY_KEYS:
            raws = raw_elements(members[key]) if members.get(key, b"").startswith(b"[") else []
            if len(raws) == len(found.history):
                return [ImportedMessage(raw, event.at) for raw in raws]
    return [ImportedMessage(encoded(message), event.at) for message in found.history]


def _told(event: RecordedEvent, stored: Stored) -> _Told | None:
    if event.type not in MESSAGE_ROLES and event.type != MESSAGE:
        return None
    members = raw_members(event.payload)
    raw = _whole(members)
    if raw:
        return _Told(ImportedMessage(raw, event.at, event.id), is_all=True)
    message = stored.as_message()
    if message is None:
        return None
    key = next((key for key in CONTENT_KEYS if key in members), "")
    raw = members[key] if members.get(key, b"").startswith(b"{") else encoded(message)
    return _Told(ImportedMessage(raw, event.at), is_all=False)


def _whole(members: Mapping[str, bytes]) -> bytes:
    """The message, where an event is nothing else; else nothing."""
    raw = members.get(ITEMS, b"")
    if len(members) == 1 and raw.startswith(b"["):
        return raw if isinstance(as_chat(decoded(raw)), dict) else b""
    raw = members.get("message", b"")
    return raw if len(members) == 1 and raw.startswith(b"{") else b""


def _overlap(carried: Sequence[ImportedMessage], later: Sequence[ImportedMessage]) -> int:
    """How many of `later` the history ends with: some systems tell of a message after they recorded it."""
    ours = [decoded(message.raw) for message in carried]
    theirs = [decoded(message.raw) for message in later]
    sizes = range(min(len(ours), len(theirs)), 0, -1)
    return next((size for size in sizes if ours[-size:] == theirs[:size]), 0)


def _is_instruction(message: ImportedMessage) -> bool:
    fields = as_chat(decoded(message.raw))
    return isinstance(fields, dict) and fields.get("role") in _INSTRUCTIONS
