"""Records of another system or archive, read as a session: from bytes to events, messages and compactions.

Payloads and messages keep the bytes of the records. An archive names messages by chains of its own namespace
(`core/history/message.py`), so that a compaction's record must be renamed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import msgspec

from palimpsest.core.history.message import INSTRUCTION_ROLES, Conversation
from palimpsest.core.history.session_sources import is_name
from palimpsest.core.runtime.restore import (
    CONTENT_KEYS,
    HISTORY_KEYS,
    LATEST,
    MESSAGE_ROLES,
    RecordedEvent,
    Restored,
    restored,
)
from palimpsest.core.runtime.snapshot import RuntimeSnapshot
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.wire.json_spans import raw_elements, raw_members, refuse_deeper
from palimpsest.core.wire.json_text import decoded, encoded, verify
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.errors import BodyTooLarge, InvalidJson, InvalidParameter, NothingToRestore

FORMAT = "palimpsest_session_v1"
_FIELDS = frozenset({"format", "name", "model", "events"})
_EVENT_FIELDS = frozenset({"id", "type", "payload", "created_at"})
_TYPE = re.compile(r"[\w.:/-]{1,100}", re.ASCII)
_ID_CHARS = 200
_MODEL_CHARS = 200


@dataclass(frozen=True, slots=True)
class ImportedRecord:
    """The content of the document; `name` is None and `model` "" where it states none."""

    name: str | None
    model: str
    events: tuple[RecordedEvent, ...]


def record_of(body: bytes, depth: int, most_events: int, now: float) -> ImportedRecord:
    """The document in `body`, nested at most `depth` levels. Events without a time get `now` (UTC seconds).

    InvalidJson for what is not JSON, or nested too deeply; InvalidParameter, naming the field, for a field
    that is unknown or of a wrong type; BodyTooLarge for too many events.
    """
    verify(body)
    if not body.lstrip(b" \t\r\n").startswith(b"{"):
        raise InvalidJson("The body must be a JSON object.")
    members = raw_members(body)
    _refuse_unknown(members, _FIELDS, "")
    for key in members.keys() - {"events"}:
        refuse_deeper(members[key], depth - 1)
    if decoded(members.get("format", b"null")) not in (None, FORMAT):
        raise InvalidParameter(f"The only format is {FORMAT}.", param="format")
    if not members.get("events", b"").startswith(b"["):
        raise InvalidParameter("The events must be a list.", param="events")
    raws = raw_elements(members["events"])
    if len(raws) > most_events:
        raise BodyTooLarge(f"More than {most_events} events at once.", param="events")
    # One by one: what runs in C for the whole document would let no other thread run meanwhile.
    for raw in raws:
        refuse_deeper(raw, depth - 2)
    name, model = decoded(members.get("name", b"null")), decoded(members.get("model", b'""'))
    if name is not None and not (isinstance(name, str) and is_name(name.strip())):
        raise InvalidParameter("A session's name must be at most 200 printable characters.", param="name")
    if not isinstance(model, str) or len(model) > _MODEL_CHARS:
        raise InvalidParameter("A model's name must be at most 200 characters.", param="model")
    return ImportedRecord(
        name=name and name.strip(),
        model=model,
        events=tuple(_event(raw, f"events[{place}]", now) for place, raw in enumerate(raws)),
    )


def written(name: str | None, model: str, events: Iterable[RecordedEvent]) -> Iterator[bytes]:
    """The document in pieces; `record_of` reads it back, each payload byte for byte."""
    head = encoded({"format": FORMAT, "name": name, "model": model})
    yield head[:-1] + b',"events":['
    between = b"\n"
    for event in events:
        fields = encoded({"id": event.id, "type": event.type, "created_at": event.at})
        yield between + fields[:-1] + b',"payload":' + event.payload + b"}"
        between = b",\n"
    yield b"]}\n"


def _event(raw: bytes, at: str, now: float) -> RecordedEvent:
    if not raw.startswith(b"{"):
        raise InvalidParameter("An event must be an object.", param=at)
    members = raw_members(raw)
    _refuse_unknown(members, _EVENT_FIELDS, f"{at}.")
    kind = decoded(members.get("type", b"null"))
    if not isinstance(kind, str) or not _TYPE.fullmatch(kind):
        raise InvalidParameter("A type must be a word of at most 100 characters.", param=f"{at}.type")
    ident: Any = decoded(members.get("id", b'""'))
    # Some systems number their events.
    ident = str(ident) if isinstance(ident, int) and not isinstance(ident, bool) else ident
    if not isinstance(ident, str) or len(ident) > _ID_CHARS:
        raise InvalidParameter("An id must be at most 200 characters.", param=f"{at}.id")
    when: Any = decoded(members.get("created_at", b"null"))
    when = now if when is None else when
    if type(when) not in (int, float) or not 0 <= when <= LATEST * 1_000:
        raise InvalidParameter("A time must be a number of seconds since 1970.", param=f"{at}.created_at")
    seconds = when / 1_000 if when > LATEST else float(when)
    return RecordedEvent(ident, kind, members.get("payload", b"null"), seconds)


def _refuse_unknown(members: Iterable[str], known: frozenset[str], at: str) -> None:
    for name in members:
        if name not in known:
            raise InvalidParameter(
                f"Unknown field; there are {', '.join(sorted(known))}.", param=at + name[:_ID_CHARS]
            )


_NAME = re.compile(r"dcm_[0-9a-f]{32}")


def exported_compaction(compaction: Compaction, talk: Conversation) -> bytes | None:
    """The record as JSON, with messages as indexes in `talk`; None when it names any other message."""
    record: dict[str, Any] = asdict(compaction)
    masks = compaction.masks
    places = {chain: talk.position(chain) for chain in (*compaction.kept, *(mask.chain for mask in masks))}
    watermark, covers = (
        talk.position(chain) if chain else -1 for chain in (compaction.watermark, compaction.covers)
    )
    if watermark is None or covers is None or None in places.values():
        return None
    record |= {
        "watermark": watermark,
        "covers": covers,
        "kept": [places[chain] for chain in compaction.kept],
        "masks": [{"message": places[mask.chain], "limit_chars": mask.limit_chars} for mask in masks],
        "state": compaction.state.decode(),
        "details": compaction.details.decode(),
    }
    return encoded(record)


# So that `convert` builds nothing: see `core/wire/json_text.py`.
msgspec.json.Decoder(Compaction)
_OBJECT = msgspec.json.Decoder(dict[str, Any])


def imported_compaction(record: bytes, talk: Conversation, names: Mapping[str, str]) -> Compaction | None:
    """The compaction in the JSON, for `talk`; None when it cannot be read.

    `names` maps the exporting system's message ids to ours: ids inside texts are replaced.
    """
    try:
        values = decoded(_NAME.sub(lambda name: names.get(name[0], name[0]), record.decode()).encode())
        masks = [
            {"chain": _chain(talk, mask["message"]), "limit_chars": mask["limit_chars"]}
            for mask in values["masks"]
        ]
        values |= {
            "watermark": b"" if values["watermark"] == -1 else _chain(talk, values["watermark"]),
            "kept": [_chain(talk, place) for place in values["kept"]],
            "masks": masks,
            "state": values["state"].encode(),
            "details": values["details"].encode(),
        }
        # Which is an object, whatever else it says.
        _OBJECT.decode(values["details"])
        made = msgspec.convert(values, Compaction, builtin_types=(bytes,))
        # Exports of earlier versions do not say it.
        covers = values.get("covers", -1)
        return made if covers == -1 else made.covering(_chain(talk, covers))
    except (InvalidJson, ValueError, TypeError, KeyError, IndexError, AttributeError):
        # Damaged, or in another form: the messages are complete without it.
        return None


def _chain(talk: Conversation, place: Any) -> bytes:
    if not isinstance(place, int) or place < 0:
        raise IndexError(place)
    return talk.chains[place]


# Where a record holds its own messages: in the state within a checkpoint, in the state itself, at the top.
_PLACES: tuple[tuple[str, ...], ...] = (("runtime", "transcript"), ("transcript",), ())
COMPACTION = "compaction_record"
"""The type of an event that holds a compaction as `exported_compaction` writes it."""
HIDDEN = "hidden_message"
"""The type of an event that is a message which the client never saw. It is not imported."""
ITEMS = "items"
"""The member of an event that holds an answer of the Responses API, which is an array of items."""
MESSAGE = "message"
"""The type of an event that is a message of a role without a type of its own."""


class ImportedMessage(NamedTuple):
    """A message as spelled in the records; `at` is UTC seconds, `name` its id there, or ""."""

    raw: bytes
    at: float
    name: str = ""


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import: its messages, instructions first; the events that are kept; the state."""

    messages: tuple[ImportedMessage, ...]
    events: tuple[RecordedEvent, ...]
    restored: Restored


def imported_of(record: ImportedRecord) -> Imported:
    """The session in `record`, by the table of `restore` (A40).

    The messages are those in the chosen event, followed by those of later events; or, where it has none,
    those of all events. NothingToRestore when there is no message other than instructions; InvalidParameter
    for a role that is no text. An event that is nothing but one of these messages is not kept as an event.
    """
    events = [event for event in record.events if event.type != HIDDEN]
    parsed = [_event_message(event) for event in events]

    def has_messages(snapshot: RuntimeSnapshot) -> bool:
        # A state that only names messages of its own archive is usable where the messages came along.
        return any(parsed) or bool(snapshot.transcript.conversation_history)

    found = restored(events, has_messages)
    if found is None:
        raise NothingToRestore("None of the events holds a session's state or messages.")
    carried = _carried(found.event, found.history) if found.event is not None and found.history else []
    # Ids of other systems may repeat: the event itself is looked for.
    start = next(at for at, event in enumerate(events) if event is found.event) + 1 if carried else 0
    later = [(at, *each) for at, each in enumerate(parsed) if each is not None and at >= start]
    # Some systems record a message again after the state: of `later` the history may end with some.
    ours = [decoded(message.raw) for message in carried]
    theirs = [decoded(message.raw) for _, message, _ in later]
    sizes = range(min(len(ours), len(theirs)), 0, -1)
    later = later[next((size for size in sizes if ours[-size:] == theirs[:size]), 0) :]
    messages = (*carried, *(message for _, message, _ in later))
    roles = set[str | None]()
    for number, message in enumerate(messages, 1):
        fields = as_chat(decoded(message.raw))
        role = fields.get("role") if isinstance(fields, dict) else None
        if role is not None and not isinstance(role, str):
            raise InvalidParameter(f"The role of message {number} must be a text.", param="events")
        roles.add(role)
    if INSTRUCTION_ROLES.issuperset(roles):
        raise NothingToRestore("The events hold no message other than instructions.")
    used = {at for at, _, is_all in later if is_all}
    kept = tuple(event for at, event in enumerate(events) if at not in used)
    return Imported(messages, kept, found)


def _carried(event: RecordedEvent, history: Sequence[dict[str, Any]]) -> list[ImportedMessage]:
    """The history in the event that was restored from, as spelled there."""
    for place in _PLACES:
        members = raw_members(event.payload)
        for key in place:
            members = raw_members(members.get(key, b"{}"))
        for key in HISTORY_KEYS:
            raws = raw_elements(members[key]) if members.get(key, b"").startswith(b"[") else []
            if len(raws) == len(history):
                return [ImportedMessage(raw, event.at) for raw in raws]
    return [ImportedMessage(encoded(message), event.at) for message in history]


def _event_message(event: RecordedEvent) -> tuple[ImportedMessage, bool] | None:
    """The message in an event, and whether the event contains nothing else; None without one."""
    if event.type not in MESSAGE_ROLES and event.type != MESSAGE:
        return None
    members = raw_members(event.payload)
    if len(members) == 1:
        items, raw = members.get(ITEMS, b""), members.get("message", b"")
        if items.startswith(b"[") and isinstance(as_chat(decoded(items)), dict):
            raw = items
        if raw.startswith((b"[", b"{")):
            return ImportedMessage(raw, event.at, event.id), True
    message = event.as_message()
    if message is None:
        return None
    key = next((key for key in CONTENT_KEYS if key in members), "")
    raw = members[key] if members.get(key, b"").startswith(b"{") else encoded(message)
    return ImportedMessage(raw, event.at), False
