"""Endpoints that export and import sessions (A40, A41) and erase them (rule 30, P6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, Protocol

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from palimpsest.api.body import read_body
from palimpsest.api.callers import Admitted, credentials_of, require_json
from palimpsest.api.documents import MEDIA_TYPES, Exported, Form, document_of
from palimpsest.api.replies import PRIVATE, reply
from palimpsest.api.ui.paper import PageTemplates
from palimpsest.core.runtime.session_import import RecordedEvent
from palimpsest.proxy.archive import Archive
from palimpsest.proxy.erasing import Receipt, Scrubbed
from palimpsest.proxy.incoming import Incoming, plain_body
from palimpsest.proxy.journal.transfer import ImportedSession, with_hidden
from palimpsest.proxy.turn import Subject


class SessionExporter(Protocol):
    """Reads a session as events."""

    async def exported(self, subject: Subject) -> Sequence[RecordedEvent]:
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


class TransferPages:
    """Export and import of sessions."""

    def __init__(self, archive: Archive, moving: SessionTransfer, paper: PageTemplates) -> None:
        self._archive = archive
        self._moving = moving
        self._paper = paper

    def on(self, api: APIRouter) -> None:
        """The routes are registered."""
        api.add_api_route("/sessions/import", self.take, methods=["POST"])
        api.add_api_route("/sessions/{name:path}/export", self.give, methods=["GET"])

    async def give(
        self,
        request: Request,
        caller: Admitted,
        name: str,
        branch: str | None = None,
        hidden: bool = False,
        form: Annotated[Form, Query(alias="format")] = "json",
    ) -> Response:
        """The session as a document: `json` for an import, one event per line; `jsonl`, `markdown`, `html`.

        `hidden`: with hidden messages, which an import leaves out.
        """
        place = await self._archive.place(caller.namespace, name, branch)
        subject = await self._archive.branch(place, credentials_of(request))
        events = await self._moving.exports.exported(subject)
        if hidden:
            names = subject.conversation.names
            rounds = await self._archive.hidden(subject.namespace, subject.session, names)
            events = with_hidden(events, rounds)
        session = Exported(place.row.id, place.row.external_id, subject.model, events)
        document = document_of(session, form, partial(self._paper.standalone, "export.html"))
        return StreamingResponse(document, headers=PRIVATE, media_type=MEDIA_TYPES[form])

    async def take(self, request: Request, caller: Admitted) -> Response:
        """Import a session; 201 with its id."""
        body = await self._body(request)
        made = await self._moving.imports.imported(caller.namespace, body)
        fields = {
            "session": made.session,
            "name": made.name,
            "form": made.restored.form,
            "event": made.source or None,
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


class SessionEraser(Protocol):
    """Erases sessions and namespaces."""

    @property
    def scrub(self) -> Scrubbed:
        """The progress of scrubbing the database's files."""

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
        api.add_api_route("/scrub", self.progress, methods=["GET"])
        api.add_api_route("/namespace", self.everything, methods=["DELETE"])
        api.add_api_route("/sessions/{name:path}", self.one, methods=["DELETE"])

    async def progress(self, caller: Admitted) -> Response:
        """How far erased data, of any caller, are scrubbed from the database's files."""
        del caller
        scrub = self._erases.scrub
        return reply({"files": scrub.files, "scrub": _progress(scrub)})

    async def one(self, caller: Admitted, name: str, block: bool = False) -> Response:
        """Erase a session; returns a receipt. `block`: the conversation is answered 410 from now on."""
        receipt = await self._erases.session(caller.namespace, name, block=block)
        fields = {"session": receipt.session, **_fields(receipt), "blocked": receipt.is_blocked}
        return reply(fields)

    async def everything(
        self, caller: Admitted, confirm: Annotated[Literal["everything"], Query()]
    ) -> Response:
        """Erase all the caller's sessions; returns a receipt. Requires `confirm=everything`."""
        del confirm
        return reply(_fields(await self._erases.namespace(caller.namespace)))


def _fields(receipt: Receipt) -> dict[str, Any]:
    rows = dict(sorted(receipt.rows.items()))
    return {
        "erased_at": receipt.at,
        "rows": rows,
        "daily_log_entries": receipt.log_entries,
        "files": receipt.files,
        "scrub": _progress(receipt.scrub) if receipt.files == "pending" else None,
    }


def _progress(scrub: Scrubbed) -> dict[str, Any] | None:
    """The progress of a pending scrub; None when none is pending."""
    if scrub.files != "pending":
        return None
    return {
        "since": scrub.since,
        "attempts": scrub.attempts,
        "next_attempt_at": scrub.next_at,
        "trouble": scrub.trouble or None,
    }
