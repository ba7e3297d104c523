"""What a person can do on the pages: compact now, undo a compaction, pin, unpin, change settings.

Plain forms, so that a browser sends the key it was given. A form on another site's page is refused at the
front door by its origin (`core.wire.web_origins`), as any request of another origin is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Request, Response

from palimpsest.api.body import read_body
from palimpsest.api.callers import ORDER_BYTES, ORDER_SECONDS, Admitted, credentials_of
from palimpsest.api.pins import PinPages
from palimpsest.api.status import SettingsPages
from palimpsest.api.undoing import UndoPages
from palimpsest.core.wire.json_text import decoded
from palimpsest.errors import InvalidJson, InvalidParameter
from palimpsest.proxy.archive import Archive
from palimpsest.proxy.compacting.viewing import ViewPlanner


class ActionPages:
    """The forms of the pages; each answers with the page that shows what was done."""

    def __init__(
        self,
        archive: Archive,
        undoing: UndoPages,
        pins: PinPages,
        settings: SettingsPages,
        viewing: ViewPlanner,
    ) -> None:
        self._archive = archive
        self._undoing = undoing
        self._pins = pins
        self._settings = settings
        self._viewing = viewing

    def on(self, ui: APIRouter) -> None:
        """Register the route."""
        ui.add_api_route("/ui/sessions/{name:path}", self.act, methods=["POST"])

    async def act(self, request: Request, caller: Admitted, name: str) -> Response:
        """Do what the form's button says."""
        form = await _fields(request)
        row = await self._archive.session(caller.namespace, name)
        match _field(form, "action"):
            case "compact":
                place = await self._archive.place(caller.namespace, name, None)
                subject = await self._archive.branch(place, credentials_of(request), caller.quota)
                end = "" if await self._viewing.by_hand(subject, "") else "?nothing=1"
            case "undo":
                await self._undoing.undo_compaction(caller, name, _field(form, "compaction"))
                end = ""
            case "pin":
                await self._pins.pin(request, caller.namespace, row, _field(form, "message"))
                end = "/state"
            case "unpin":
                await self._pins.unpin_message(caller, name, _field(form, "message"))
                end = "/state"
            case "settings":
                await self._settings.patched(caller.namespace, row, _patch(_field(form, "patch")))
                end = "/settings"
            case other:
                raise InvalidParameter(f"There is no action {other}.", param="action")
        return Response(status_code=303, headers={"location": f"/ui/sessions/{quote(row.id)}{end}"})


def _patch(text: str) -> dict[str, Any]:
    """JSON that is merged into the session's settings."""
    try:
        patch = decoded(text.encode("latin-1"))
    except InvalidJson as error:
        raise InvalidParameter(f"The settings are not JSON: {error.message}", param="patch") from None
    if not isinstance(patch, dict):
        raise InvalidParameter("The settings are no JSON object.", param="patch")
    return patch


async def _fields(request: Request) -> Mapping[str, list[str]]:
    body = await read_body(request.scope, request.receive, ORDER_BYTES, ORDER_SECONDS)
    return parse_qs(body.decode("latin-1"), encoding="latin-1")


def _field(form: Mapping[str, list[str]], name: str) -> str:
    """A field of the form. InvalidParameter when it is missing, or there twice."""
    found = form.get(name, [])
    if len(found) != 1:
        raise InvalidParameter(f"The form needs one field {name}.", param=name)
    return found[0]
