"""Endpoints that export and import sessions (A40, A41).

The exports for people and for scripts (Markdown, one HTML page, an event a line) are made from the events of
the exported document, so that they hold the same messages. The document itself is the exact one, and the one
that can be imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypedDict

from fastapi import Query
from starlette.responses import StreamingResponse

from palimpsest.api.body import read_body
from palimpsest.api.callers import Admitted, AskedSession, Branch, api_router, require_json
from palimpsest.api.replies import PRIVATE, Reply, described, reply, shape_of, utc_time
from palimpsest.api.ui.turns import calls_in
from palimpsest.core.history.session_sources import NAME_CHARS
from palimpsest.core.runtime.restore import RecordedEvent
from palimpsest.core.runtime.session_import import COMPACTION, HIDDEN, ITEMS, written
from palimpsest.core.utc import moment
from palimpsest.core.view.masking import text_of
from palimpsest.core.wire.json_text import decoded, encoded
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.proxy.incoming import Incoming, plain_body
from palimpsest.proxy.session_journal import with_hidden

Form: TypeAlias = Literal["json", "jsonl", "markdown", "html"]
MEDIA_TYPES: Mapping[Form, str] = {
    "json": "application/json",
    "jsonl": "application/jsonl",
    "markdown": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
}
# The state for an import, which says nothing that the messages do not.
_CHECKPOINT = "checkpoint"
# What a person or a model wrote is Markdown already; all else is shown as it is.
_WRITTEN_ROLES = frozenset({"user", "assistant"})
_FENCES = re.compile(r"`{3,}")


class ExportedEvent(TypedDict):
    """An event of an exported session; `created_at` is in UTC seconds, and the payload as it was stored."""

    id: str
    type: str
    created_at: float
    payload: Any


class ExportedSession(TypedDict):
    """The document that an import reads."""

    format: Literal["palimpsest_session_v1"]
    name: str | None
    model: str
    events: list[ExportedEvent]


class ImportEvent(TypedDict):
    """An event of a document; `created_at` is in UTC seconds or milliseconds."""

    type: str
    id: NotRequired[str | int | None]
    payload: NotRequired[Any]
    created_at: NotRequired[float | None]


class ImportDocument(TypedDict):
    """A session for import: an exported one, or another system's events, oldest first."""

    format: NotRequired[Literal["palimpsest_session_v1"] | None]
    name: NotRequired[str | None]
    model: NotRequired[str | None]
    events: list[ImportEvent]


# Of a branch's digest, in a name.
_BRANCH_CHARS = 12


class ImportedSessionFields(TypedDict):
    """The new session, and the record from which its state was restored."""

    session: str
    name: str | None
    form: Annotated[str, described("The form of that record.")]
    event: Annotated[str | None, described("The event that it was in; null: made from several.")]
    is_upgraded: Annotated[bool, described("It was of an older form.")]
    messages: int
    events: int


class _Document(StreamingResponse, Reply[ExportedSession]):
    """A document in pieces."""


api = api_router()


@api.post("/sessions/import", status_code=201)
async def import_session(caller: Admitted) -> Reply[ImportedSessionFields]:
    """Import a session.

    The body is an exported document, or another system's events.
    """
    request, limits = caller.request, caller.parts.settings.limits
    require_json(request)
    body = await read_body(request.scope, request.receive, limits.body_bytes, limits.body_idle_seconds)
    packed = Incoming("POST", "", request.scope["headers"], body, None)
    document = await plain_body(packed, limits.body_bytes)
    made = await caller.parts.imports.imported(caller.namespace, document)
    form, event, is_upgraded = made.restored.form, made.restored.source or None, made.restored.is_upgraded
    fields = shape_of(ImportedSessionFields, made, form=form, event=event, is_upgraded=is_upgraded)
    return reply(fields, 201)


@api.get("/sessions/{name:path}/export")
async def export_session(
    session: AskedSession,
    branch: Branch = None,
    hidden: Annotated[bool, Query(description="Also what the client has not seen.")] = False,
    form: Annotated[
        Form, Query(alias="format", description="`json` for an import; the others are for reading.")
    ] = "json",
) -> Reply[ExportedSession]:
    """Export a session as a document.

    `json` for an import, one event per line; `jsonl`, `markdown`, `html`.
    `hidden`: with hidden messages, which an import leaves out.
    With `branch`, another one than the newest has a name of its own: NAME (branch DIGITS).
    """
    place, parts = await session.place(branch), session.parts
    subject = await session.branch(place)
    events: Sequence[RecordedEvent] = await parts.states.exported(subject)
    if hidden:
        names = subject.conversation.names
        rounds = await parts.archive.hidden(subject.namespace, subject.session, names)
        events = with_hidden(events, rounds)
    name = place.row.external_id
    if name is not None and not place.is_default:
        # Beside the newest branch it is imported under a name of its own.
        apart = f" (branch {place.chain.hex()[:_BRANCH_CHARS]})"
        name = name[: NAME_CHARS - len(apart)] + apart
    exported = Exported(place.row.id, name, subject.model, events)
    match form:
        case "json":
            document = written(exported.name, exported.model, exported.events)
        case "jsonl":
            document = _lines(exported)
        case "markdown":
            document = _markdown(exported)
        case "html":
            facts = {"session": exported, "entries": list(entries_of(exported.events))}
            document = parts.paper.standalone("export.html", facts)
    return _Document(document, headers=PRIVATE, media_type=MEDIA_TYPES[form])


@dataclass(frozen=True, slots=True)
class Exported:
    """A session to export: its id, its name, the model, and its events, oldest first."""

    id: str
    name: str | None
    model: str
    events: Sequence[RecordedEvent]


@dataclass(frozen=True, slots=True)
class ExportedMessage:
    """A message, whole. `number` counts from 1 without instructions and hidden messages, which have None.

    `folds`: the compactions that fold up to here and no further.
    """

    number: int | None
    id: str
    role: str
    label: str
    text: str
    calls: Sequence[tuple[str, str]]
    at: datetime
    folds: Sequence[Mapping[str, Any]]

    @property
    def is_markdown(self) -> bool:
        """Written by a person or a model."""
        return self.role in _WRITTEN_ROLES


def entries_of(events: Sequence[RecordedEvent]) -> Iterator[ExportedMessage]:
    """The messages in order."""
    folds: dict[int, list[Mapping[str, Any]]] = {}
    for event in events:
        if event.type == COMPACTION:
            record = decoded(event.payload)
            folds.setdefault(record["watermark"] + 1, []).append(record)
    number = 0
    for event in events:
        if event.type in (COMPACTION, _CHECKPOINT):
            continue
        is_spoken = bool(event.id) and event.type != HIDDEN
        number += is_spoken
        payload = decoded(event.payload)
        found = as_chat(payload[ITEMS] if ITEMS in payload else payload["message"])
        fields: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
        yield ExportedMessage(
            number if is_spoken else None,
            event.id,
            str(fields.get("role") or event.type),
            "hidden" if event.type == HIDDEN else "" if is_spoken else "instructions",
            text_of(fields),
            tuple(calls_in(fields)),
            moment(event.at),
            folds.get(number, ()) if is_spoken else (),
        )


def _lines(session: Exported) -> Iterator[bytes]:
    """Each event but the state for an import, with its session."""
    for event in session.events:
        if event.type == _CHECKPOINT:
            continue
        payload = decoded(event.payload)
        fields = {
            "session": session.id,
            "name": session.name,
            "model": session.model,
            "id": event.id or None,
            "type": event.type,
            "created_at": utc_time(event.at),
            **({"compaction": payload} if event.type == COMPACTION else payload),
        }
        yield encoded(fields) + b"\n"


def _markdown(session: Exported) -> Iterator[bytes]:
    yield f"# {_line(session.name or 'Unnamed session')}\n\n".encode()
    yield f"Session `{session.id}`, model {_line(session.model)}. Times are UTC.\n".encode()
    for entry in entries_of(session.events):
        number = f"{entry.number}. " if entry.number else ""
        label = f" ({entry.label})" if entry.label else ""
        parts = [f"\n## {number}{_line(entry.role)}{label}, {entry.at:%Y-%m-%d %H:%M:%S}"]
        if entry.text:
            parts.append(entry.text if entry.is_markdown else _fenced(entry.text))
        parts += [f"Calls `{_line(name)}`:\n\n{_fenced(arguments)}" for name, arguments in entry.calls]
        for record in entry.folds:
            sizes = f"{record['tokens_before']:,} to {record['tokens_after']:,} tokens"
            parts.append(f"---\n\n**Folded up to here**, from {sizes}: {_line(record['reason'])}")
            parts.append(_fenced(str(record["summary"])))
        yield ("\n\n".join(parts) + "\n").encode("utf-8", "surrogatepass")


def _fenced(text: str) -> str:
    """The text as a block of code that it cannot end."""
    fence = max(["``", *_FENCES.findall(text)], key=len) + "`"
    return f"{fence}\n{text}\n{fence}"


def _line(text: str) -> str:
    return " ".join(text.split())
