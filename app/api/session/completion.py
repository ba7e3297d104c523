"""Saying that a session has come to an end, or to something worth keeping (A38).

Knows nothing of what is worth it.
"""

from __future__ import annotations

from typing import Annotated, Protocol

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, StringConstraints

from app.api.callers import Admitted, credentials_of, order_of
from app.api.replies import reply
from app.api.sessions import place_fields
from app.proxy.archive import Archive
from app.proxy.subject import Subject


class Completes(Protocol):
    """Writes the checkpoint of what was completed."""

    async def completed(self, subject: Subject, marker: str = "") -> str | None:
        """Its id, also when it was there before; None when nothing was produced or decided."""


class CompletionOrder(BaseModel):
    """`marker` is what whoever completes the session says of it."""

    model_config = ConfigDict(extra="forbid")

    marker: Annotated[str, StringConstraints(max_length=16_000)] = ""
    branch: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None


class CompletionPages:
    """Completion of a session."""

    def __init__(self, archive: Archive, completes: Completes) -> None:
        self._archive = archive
        self._completes = completes

    def on(self, api: APIRouter) -> None:
        """The route is registered."""
        api.add_api_route("/sessions/{name:path}/complete", self.complete, methods=["POST"])

    async def complete(self, request: Request, caller: Admitted, name: str) -> Response:
        """The checkpoint that it gave; null when nothing was produced or decided since the last one."""
        order = await order_of(request, CompletionOrder)
        place = await self._archive.place(caller.namespace, name, order.branch)
        subject = await self._archive.branch(place, credentials_of(request))
        made = await self._completes.completed(subject, order.marker)
        return reply({**place_fields(place), "checkpoint": made})
