"""Sessions that go from one proxy to another, or come from another system (A40, A41).

Knows nothing of what is made of the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from app.api.body import read_body
from app.api.callers import Admitted, credentials_of, require_json
from app.api.replies import PRIVATE, reply
from app.core.runtime.records import RecordedEvent, written
from app.proxy.archive import Archive
from app.proxy.chronicle.exporting import with_hidden
from app.proxy.chronicle.importing import ImportedSession
from app.proxy.incoming import Incoming, plain_body
from app.proxy.subject import Subject


class Exporting(Protocol):
    """Reads a session as events."""

    async def exported(self, subject: Subject) -> Sequence[RecordedEvent]:
        """Its messages and its state; empty without messages."""


class Importing(Protocol):
    """Makes a session of a document."""

    async def imported(self, namespace: str, body: bytes) -> ImportedSession:
        """The session that is there now."""


@dataclass(frozen=True, slots=True)
class Moving:
    """Who moves sessions. A document is bounded as the body of a request is."""

    exports: Exporting
    imports: Importing
    body_bytes: int
    body_idle_seconds: float


class MovingPages:
    """Export and import of sessions."""

    def __init__(self, archive: Archive, moving: Moving) -> None:
        self._archive = archive
        self._moving = moving

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
    ) -> Response:
        """The document that an import takes, an event a line; `hidden`: with what an import leaves out."""
        place = await self._archive.place(caller.namespace, name, branch)
        subject = await self._archive.branch(place, credentials_of(request))
        events = await self._moving.exports.exported(subject)
        if hidden:
            names = subject.conversation.names
            rounds = await self._archive.hidden(subject.namespace, subject.session, names)
            events = with_hidden(events, rounds)
        document = written(place.row.external_id, subject.model, events)
        return StreamingResponse(document, headers=PRIVATE, media_type="application/json")

    async def take(self, request: Request, caller: Admitted) -> Response:
        """The session that was made. 201."""
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
