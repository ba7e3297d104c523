"""What a person can do on the pages: compact now, undo a compaction, pin, unpin, change settings.

Plain forms, so that a browser sends the key it was given. A form on another site's page is refused at the
front door by its origin (`core.wire.web_origins`), as any request of another origin is.
"""

from __future__ import annotations

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
        """Register the routes."""
        ui.add_api_route("/ui/sessions/{name:path}/compact", self.compact, methods=["POST"])
        ui.add_api_route("/ui/sessions/{name:path}/settings", self.set, methods=["POST"])
        ui.add_api_route("/ui/sessions/{name:path}/undo", self.undo, methods=["POST"])
        ui.add_api_route("/ui/sessions/{name:path}/pin", self.pin, methods=["POST"])
        ui.add_api_route("/ui/sessions/{name:path}/unpin", self.unpin, methods=["POST"])

    async def set(self, request: Request, caller: Admitted, name: str) -> Response:
        """Merge the JSON of the form into the session's settings."""
        row = await self._archive.session(caller.namespace, name)
        try:
            patch = decoded((await _field(request, "patch")).encode("latin-1"))
        except InvalidJson as error:
            raise InvalidParameter(f"The settings are not JSON: {error.message}", param="patch") from None
        if not isinstance(patch, dict):
            raise InvalidParameter("The settings are no JSON object.", param="patch")
        await self._settings.patched(caller.namespace, row, patch)
        return _shown(row.id, "/settings")

    async def compact(self, request: Request, caller: Admitted, name: str) -> Response:
        """Compact the default branch now."""
        place = await self._archive.place(caller.namespace, name, None)
        made = await self._viewing.by_hand(await self._archive.branch(place, credentials_of(request)), "")
        return _shown(place.row.id, "" if made else "?nothing=1")

    async def undo(self, request: Request, caller: Admitted, name: str) -> Response:
        """Undo the compaction that the form names."""
        await self._undoing.undo_compaction(caller, name, await _field(request, "compaction"))
        return _shown((await self._archive.session(caller.namespace, name)).id)

    async def pin(self, request: Request, caller: Admitted, name: str) -> Response:
        """Pin the message that the form names."""
        row = await self._archive.session(caller.namespace, name)
        await self._pins.pin(request, caller.namespace, row, await _field(request, "message"))
        return _shown(row.id, "/state")

    async def unpin(self, request: Request, caller: Admitted, name: str) -> Response:
        """Take back the pin of the message that the form names."""
        row = await self._archive.session(caller.namespace, name)
        await self._pins.unpin_message(caller, name, await _field(request, "message"))
        return _shown(row.id, "/state")


async def _field(request: Request, name: str) -> str:
    """A field of the form. InvalidParameter when it is missing, or there twice."""
    body = await read_body(request.scope, request.receive, ORDER_BYTES, ORDER_SECONDS)
    found = parse_qs(body.decode("latin-1"), encoding="latin-1").get(name, [])
    if len(found) != 1:
        raise InvalidParameter(f"The form needs one field {name}.", param=name)
    return found[0]


def _shown(session: str, end: str = "") -> Response:
    return Response(status_code=303, headers={"location": f"/ui/sessions/{quote(session)}{end}"})
