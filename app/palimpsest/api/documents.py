"""A session's export for people and for scripts: Markdown, one HTML page, or an event a line.

Made from the events of the exported document, so that they hold the same messages. The document itself is
the exact one, and the one that can be imported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from palimpsest.api.replies import utc_time
from palimpsest.core.runtime.restore import RecordedEvent
from palimpsest.core.runtime.session_import import COMPACTION, HIDDEN, ITEMS, written
from palimpsest.core.view.masking import text_of
from palimpsest.core.wire.json_text import decoded, encoded
from palimpsest.core.wire.responses.items import as_chat

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


@dataclass(frozen=True, slots=True)
class Exported:
    """A session to export: its id, its name, the model, and its events, oldest first."""

    id: str
    name: str | None
    model: str
    events: Sequence[RecordedEvent]


@dataclass(frozen=True, slots=True)
class Entry:
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


def document_of(
    session: Exported, form: Form, page: Callable[[Mapping[str, Any]], Iterator[bytes]]
) -> Iterator[bytes]:
    """The export in pieces; `page` fills the template of the HTML page."""
    match form:
        case "json":
            return written(session.name, session.model, session.events)
        case "jsonl":
            return _lines(session)
        case "markdown":
            return _markdown(session)
        case "html":
            return page({"session": session, "entries": list(entries_of(session.events))})


def entries_of(events: Sequence[RecordedEvent]) -> Iterator[Entry]:
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
        fields = _message(event)
        yield Entry(
            number if is_spoken else None,
            event.id,
            str(fields.get("role") or event.type),
            "hidden" if event.type == HIDDEN else "" if is_spoken else "instructions",
            text_of(fields),
            tuple(_calls(fields)),
            datetime.fromtimestamp(event.at, UTC),
            folds.get(number, ()) if is_spoken else (),
        )


def _message(event: RecordedEvent) -> Mapping[str, Any]:
    """The event's message in the form of a chat message."""
    payload = decoded(event.payload)
    fields = as_chat(payload[ITEMS] if ITEMS in payload else payload["message"])
    return fields if isinstance(fields, Mapping) else {}


def _calls(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and arguments of each call, as the model wrote them."""
    calls = fields.get("tool_calls")
    for call in calls if isinstance(calls, list | tuple) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            yield str(function.get("name")), str(function.get("arguments"))


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
