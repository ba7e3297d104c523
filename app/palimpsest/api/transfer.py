"""Endpoints that export and import sessions (A40, A41) and erase them (rule 30, P6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, NotRequired, Protocol, TypedDict, cast

from fastapi import APIRouter, Query, Request
from starlette.responses import StreamingResponse

from palimpsest.api.body import read_body
from palimpsest.api.callers import Admitted, Branch, SessionName, credentials_of, require_json
from palimpsest.api.documents import MEDIA_TYPES, Exported, Form, document_of
from palimpsest.api.replies import PRIVATE, Reply, UtcTime, described, reply, utc_time, utc_time_or_none
from palimpsest.api.ui.paper import PageTemplates
from palimpsest.core.history.session_sources import NAME_CHARS
from palimpsest.core.runtime.restore import RecordedEvent
from palimpsest.proxy.archive import Archive, Place
from palimpsest.proxy.erasing import Receipt, Scrubbed
from palimpsest.proxy.incoming import Incoming, plain_body
from palimpsest.proxy.journal.transfer import ImportedSession, with_hidden
from palimpsest.proxy.turn import ReadBranch
from palimpsest.storage.database import Scrub


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


class ScrubFields(TypedDict):
    """A scrub of the database's files that is pending."""

    since: UtcTime | None
    attempts: int
    next_attempt_at: Annotated[UtcTime | None, described("Null: one is running or queued.")]
    trouble: Annotated[str | None, described("The kind of the database's error; null: a reader prevents it.")]


class EraseReceipt(TypedDict):
    """What was erased: deleted rows by table, and what is left in the database's files."""

    erased_at: UtcTime
    rows: dict[str, int]
    daily_log_entries: int
    files: Scrub | None
    scrub: ScrubFields | None


class SessionEraseReceipt(EraseReceipt):
    """What was erased of a session. `blocked`: it is never stored again.

    `side_sessions`: of side requests that quoted it; they are erased with it.
    """

    session: str
    side_sessions: list[str]
    blocked: bool


class SessionExporter(Protocol):
    """Reads a session as events."""

    async def exported(self, branch: ReadBranch) -> Sequence[RecordedEvent]:
        """The branch's messages and state; empty without messages."""


class SessionImporter(Protocol):
    """Creates a session from a document."""

    async def imported(self, namespace: str, body: bytes) -> ImportedSession:
        """The new session."""


@dataclass(frozen=True, slots=True)
class SessionTransfer:
    """Export and import, and the limits of a document, those of a request's body."""

    exports: SessionExporter
    imports: SessionImporter
    body_bytes: int
    body_idle_seconds: float


class _Document(StreamingResponse, Reply[ExportedSession]):
    """A document in pieces."""


class TransferPages:
    """Export and import of sessions."""

    def __init__(self, archive: Archive, moving: SessionTransfer, paper: PageTemplates) -> None:
        self._archive = archive
        self._moving = moving
        self._paper = paper

    def on(self, api: APIRouter) -> None:
        """The routes are registered."""
        api.add_api_route("/sessions/import", self.import_session, methods=["POST"], status_code=201)
        api.add_api_route("/sessions/{name:path}/export", self.export_session, methods=["GET"])

    async def export_session(
        self,
        request: Request,
        caller: Admitted,
        name: SessionName,
        branch: Branch = None,
        hidden: Annotated[bool, Query(description="Also what the client has not seen.")] = False,
        form: Annotated[
            Form, Query(alias="format", description="`json` for an import; the others are for reading.")
        ] = "json",
    ) -> _Document:
        """Export a session as a document.

        `json` for an import, one event per line; `jsonl`, `markdown`, `html`.
        `hidden`: with hidden messages, which an import leaves out.
        With `branch`, another one than the newest has a name of its own: NAME (branch DIGITS).
        """
        place = await self._archive.place(caller.namespace, name, branch)
        subject = await self._archive.branch(place, credentials_of(request))
        events = await self._moving.exports.exported(subject)
        if hidden:
            names = subject.conversation.names
            rounds = await self._archive.hidden(subject.namespace, subject.session, names)
            events = with_hidden(events, rounds)
        session = Exported(place.row.id, _name_of(place), subject.model, events)
        document = document_of(session, form, partial(self._paper.standalone, "export.html"))
        return _Document(document, headers=PRIVATE, media_type=MEDIA_TYPES[form])

    async def import_session(self, request: Request, caller: Admitted) -> Reply[ImportedSessionFields]:
        """Import a session.

        The body is an exported document, or another system's events.
        """
        body = await self._body(request)
        made = await self._moving.imports.imported(caller.namespace, body)
        fields: ImportedSessionFields = {
            "session": made.session,
            "name": made.name,
            "form": made.restored.form,
            "event": made.restored.source or None,
            "is_upgraded": made.restored.is_upgraded,
            "messages": made.messages,
            "events": made.events,
        }
        return reply(fields, 201)

    async def _body(self, request: Request) -> bytes:
        require_json(request)
        limit = self._moving.body_bytes
        body = await read_body(request.scope, request.receive, limit, self._moving.body_idle_seconds)
        return await plain_body(Incoming("POST", "", request.scope["headers"], body, None), limit)


def _name_of(place: Place) -> str | None:
    """The session's name; of another branch than the newest one of its own, beside which it is imported."""
    name = place.row.external_id
    if name is None or place.is_default:
        return name
    apart = f" (branch {place.chain.hex()[:_BRANCH_CHARS]})"
    return name[: NAME_CHARS - len(apart)] + apart


class SessionEraser(Protocol):
    """Erases sessions and namespaces."""

    async def session(self, namespace: str, name: str, *, block: bool) -> Receipt:
        """Erase the session."""

    async def namespace(self, namespace: str) -> Receipt:
        """Erase all sessions of the namespace."""


class ErasePages:
    """The endpoints that erase."""

    def __init__(self, erases: SessionEraser) -> None:
        self._erases = erases

    def on(self, api: APIRouter) -> None:
        """Register the routes, after all others: a bare name matches every path."""
        api.add_api_route("/namespace", self.erase_everything, methods=["DELETE"])
        api.add_api_route("/sessions/{name:path}", self.erase_session, methods=["DELETE"])

    async def erase_session(
        self,
        caller: Admitted,
        name: SessionName,
        block: Annotated[bool, Query(description="Never store the conversation again: it gets 410.")] = False,
    ) -> Reply[SessionEraseReceipt]:
        """Erase a session; answers with a receipt."""
        receipt = await self._erases.session(caller.namespace, name, block=block)
        found = {
            "session": receipt.session,
            "side_sessions": list(receipt.beside),
            "blocked": receipt.is_blocked,
        }
        return reply(cast(SessionEraseReceipt, {**receipt_fields(receipt), **found}))

    async def erase_everything(
        self, caller: Admitted, confirm: Annotated[Literal["everything"], Query(description="A safeguard.")]
    ) -> Reply[EraseReceipt]:
        """Erase all the caller's sessions; answers with a receipt."""
        del confirm
        return reply(receipt_fields(await self._erases.namespace(caller.namespace)))


def receipt_fields(receipt: Receipt) -> EraseReceipt:
    """What was erased, and what is left in the database's files."""
    rows = dict(sorted(receipt.rows.items()))
    return {
        "erased_at": utc_time(receipt.at),
        "rows": rows,
        "daily_log_entries": receipt.log_entries,
        "files": receipt.files,
        "scrub": _progress(receipt.scrub) if receipt.files == "pending" else None,
    }


def _progress(scrub: Scrubbed) -> ScrubFields | None:
    """The progress of a pending scrub; None when none is pending."""
    if scrub.files != "pending":
        return None
    return {
        "since": utc_time_or_none(scrub.since),
        "attempts": scrub.attempts,
        "next_attempt_at": utc_time_or_none(scrub.next_at),
        "trouble": scrub.trouble or None,
    }
