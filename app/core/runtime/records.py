"""The document that a session is moved by: a name, a model and events, read from bytes or written to them.

Payloads and messages stay as they are spelled. Knows nothing of what events mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any

from app.core.history.carriers import is_name
from app.core.wire.json_members import raw_elements, raw_members
from app.core.wire.json_spans import refuse_deeper
from app.core.wire.json_text import decoded, encoded, verify
from app.errors import BodyTooLarge, InvalidJson, InvalidParameter

FORMAT = "palimpsest_session_v1"
_FIELDS = frozenset({"format", "name", "model", "events"})
_EVENT_FIELDS = frozenset({"id", "type", "payload", "created_at"})
_TYPE = re.compile(r"[\w.:/-]{1,100}", re.ASCII)
_ID_CHARS = 200
_MODEL_CHARS = 200
# UTC seconds in the year 5138: a larger number counts milliseconds.
_LATEST = 1e11


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event of the document: `payload` is valid JSON as spelled; `at` UTC seconds; `id` may be ""."""

    id: str
    type: str
    payload: bytes
    at: float


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """Bounds of a document, inclusive: levels of nesting, events."""

    depth: int
    events: int


@dataclass(frozen=True, slots=True)
class Record:
    """What the document says; `name` is None and `model` "" where it says nothing."""

    name: str | None
    model: str
    events: tuple[RecordedEvent, ...]


def record_of(body: bytes, limits: RecordLimits, now: float) -> Record:
    """The document that `body` is. An event without a time is of `now` (UTC seconds).

    InvalidJson for what is no JSON, or nested too deeply; InvalidParameter, naming the field, for a
    field that is unknown or of a wrong kind; BodyTooLarge for too many events.
    """
    verify(body)
    refuse_deeper(body, limits.depth)
    if not body.lstrip(b" \t\r\n").startswith(b"{"):
        raise InvalidJson("The body must be a JSON object.")
    members = raw_members(body)
    _refuse_unknown(members, _FIELDS, "")
    if decoded(members.get("format", b"null")) not in (None, FORMAT):
        raise InvalidParameter(f"The only format is {FORMAT}.", param="format")
    if not members.get("events", b"").startswith(b"["):
        raise InvalidParameter("The events are a list.", param="events")
    raws = raw_elements(members["events"])
    if len(raws) > limits.events:
        raise BodyTooLarge(f"More than {limits.events} events at once.", param="events")
    return Record(
        name=_name(members.get("name", b"null")),
        model=_model(members.get("model", b'""')),
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
        raise InvalidParameter("An event is an object.", param=at)
    members = raw_members(raw)
    _refuse_unknown(members, _EVENT_FIELDS, f"{at}.")
    kind = decoded(members.get("type", b"null"))
    if not isinstance(kind, str) or not _TYPE.fullmatch(kind):
        raise InvalidParameter("A type is a word of at most 100 characters.", param=f"{at}.type")
    return RecordedEvent(
        id=_id(members.get("id", b'""'), f"{at}.id"),
        type=kind,
        payload=members.get("payload", b"null"),
        at=_time(members.get("created_at", b"null"), f"{at}.created_at", now),
    )


def _refuse_unknown(members: Iterable[str], known: frozenset[str], at: str) -> None:
    for name in members:
        if name not in known:
            raise InvalidParameter("There is no such field.", param=at + name[:_ID_CHARS])


def _name(raw: bytes) -> str | None:
    value = decoded(raw)
    if value is None:
        return None
    if not isinstance(value, str) or not is_name(value.strip()):
        raise InvalidParameter("A session's name is at most 200 printable characters.", param="name")
    return value.strip()


def _model(raw: bytes) -> str:
    value = decoded(raw)
    if not isinstance(value, str) or len(value) > _MODEL_CHARS:
        raise InvalidParameter("A model's name is at most 200 characters.", param="model")
    return value


def _id(raw: bytes, at: str) -> str:
    value = decoded(raw)
    # Some count their events.
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or len(text) > _ID_CHARS:
        raise InvalidParameter("An id is at most 200 characters.", param=at)
    return text


def _time(raw: bytes, at: str, now: float) -> float:
    value: Any = decoded(raw)
    if value is None:
        return now
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
        raise InvalidParameter("A time is a number of seconds since 1970.", param=at)
    seconds = float(value)
    return seconds / 1_000 if seconds > _LATEST else seconds
