"""Erasing: a session, or everything that belongs to the caller's key (rule 30, P6).

Knows nothing of what there is to erase.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Protocol

from fastapi import APIRouter, Query, Response

from app.api.callers import Admitted
from app.api.replies import reply
from app.proxy.erasing import Receipt
from app.proxy.scrubbing import Scrubbed


class Erases(Protocol):
    """Carries it out."""

    @property
    def scrub(self) -> Scrubbed:
        """How far the database's files are scrubbed."""

    async def session(self, namespace: str, name: str, *, block: bool) -> Receipt:
        """Nothing is left of the session."""

    async def namespace(self, namespace: str) -> Receipt:
        """Nothing is left of any."""


class ErasePages:
    """The endpoints that erase."""

    def __init__(self, erases: Erases) -> None:
        self._erases = erases

    def on(self, api: APIRouter) -> None:
        """The routes are registered; a bare name takes every path, so that this comes after others."""
        api.add_api_route("/scrub", self.progress, methods=["GET"])
        api.add_api_route("/namespace", self.everything, methods=["DELETE"])
        api.add_api_route("/sessions/{name:path}", self.one, methods=["DELETE"])

    async def progress(self, caller: Admitted) -> Response:
        """How far the database's files are scrubbed of what was erased, whoever erased it."""
        del caller
        scrub = self._erases.scrub
        return reply({"files": scrub.files, "scrub": _progress(scrub)})

    async def one(self, caller: Admitted, name: str, block: bool = False) -> Response:
        """A receipt. `block`: the conversation is answered 410 from now on."""
        receipt = await self._erases.session(caller.namespace, name, block=block)
        fields = {"session": receipt.session, **_fields(receipt), "blocked": receipt.is_blocked}
        return reply(fields)

    async def everything(
        self, caller: Admitted, confirm: Annotated[Literal["everything"], Query()]
    ) -> Response:
        """A receipt. Who means it says so: `confirm=everything`."""
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
    """Of what is pending how far it is; None when nothing is."""
    if scrub.files != "pending":
        return None
    return {
        "since": scrub.since,
        "attempts": scrub.attempts,
        "next_attempt_at": scrub.next_at,
        "trouble": scrub.trouble or None,
    }
