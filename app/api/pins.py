"""Messages pinned by hand or by their own text: they stay word for word from the next compaction on (A32).

Knows nothing of how a view is made.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, StringConstraints

from app.api.callers import Admitted, credentials_of, order_of
from app.api.replies import raw_reply, reply
from app.core.view.compaction import context_id
from app.core.view.text_pins import is_pin_body
from app.errors import PinsTooLarge
from app.proxy.archive import Archive, missing
from app.proxy.compacting.scenes import Scenes
from app.storage.contract import MessageRow, SessionRow, Store


class PinOrder(BaseModel):
    """The message to pin, by the id under which it is shown."""

    model_config = ConfigDict(extra="forbid")

    message: Annotated[str, StringConstraints(min_length=1, max_length=100)]


class PinPages:
    """Pins of a session."""

    def __init__(self, archive: Archive, store: Store, scenes: Scenes) -> None:
        self._archive = archive
        self._store = store
        self._scenes = scenes

    def on(self, api: APIRouter) -> None:
        """The routes are registered."""
        api.add_api_route("/sessions/{name:path}/pins", self.listed, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/pins", self.add, methods=["POST"])
        api.add_api_route("/sessions/{name:path}/pins/{message}", self.remove, methods=["DELETE"])

    async def listed(self, request: Request, caller: Admitted, name: str) -> Response:
        """Those by hand in the order in which they were pinned, then those by the default branch's texts."""
        row = await self._archive.session(caller.namespace, name)
        pins = [pin for pin in await self._store.pins(caller.namespace, row.id) if not pin.is_lifted]
        fields = [_fields(pin.chain, pin.created_at, "hand", is_kept=True) for pin in pins]
        by_text = await self._by_text(request, caller.namespace, row)
        return reply({"session": row.id, "pins": fields + by_text})

    async def add(self, request: Request, caller: Admitted, name: str) -> Response:
        """The message is pinned. PinsTooLarge when a known window has no room for all pins together."""
        order = await order_of(request, PinOrder)
        row = await self._archive.session(caller.namespace, name)
        message = await self._archive.message_in(caller.namespace, row, order.message)
        warning = await self._checked(request, caller.namespace, row, message)
        await self._store.add_pin(caller.namespace, row.id, message.chain, time.time())
        fields: dict[str, Any] = {
            "session": row.id,
            "message": context_id(message.chain),
            "takes_effect": "at the next compaction",
        }
        return reply(fields | ({"warning": warning} if warning else {}), 201)

    async def remove(self, caller: Admitted, name: str, message: str) -> Response:
        """The message is pinned no longer, by hand or by its own text; 404 when it was not."""
        row = await self._archive.session(caller.namespace, name)
        found = await self._archive.message_in(caller.namespace, row, message)
        pins = {pin.chain: pin for pin in await self._store.pins(caller.namespace, row.id)}
        pin = pins.get(found.chain)
        if is_pin_body(found.role, found.body) and not (pin and pin.is_lifted):
            await self._store.lift_pin(caller.namespace, row.id, found.chain, time.time())
        elif not await self._store.remove_pin(caller.namespace, row.id, found.chain):
            raise missing()
        return raw_reply(b"", 204)

    async def _by_text(self, request: Request, namespace: str, row: SessionRow) -> list[dict[str, Any]]:
        """Those whose own text pins them, in the order in which they were said."""
        place = await self._archive.place(namespace, row.id, None)
        branch = await self._archive.branch(place, credentials_of(request))
        pinned = await self._scenes.pinned(branch, (await self._scenes.of(branch)).budget)
        found = {*pinned.by_text, *pinned.left_out}
        if not found:
            return []
        rows = await self._store.bodies(namespace, row.id, place.chain)
        return [
            _fields(one.chain, one.created_at, "text", is_kept=one.chain in pinned.by_text)
            for one in rows
            if one.chain in found
        ]

    async def _checked(
        self, request: Request, namespace: str, row: SessionRow, message: MessageRow
    ) -> str | None:
        """What is to be said of pins that leave no room; with a guessed window they are not refused."""
        place = await self._archive.place(namespace, row.id, None)
        scene = await self._scenes.of(await self._archive.branch(place, credentials_of(request)))
        tokens = scene.budget.fixed_tokens + message.tokens
        for pin in await self._store.pins(namespace, row.id):
            if pin.chain != message.chain and not pin.is_lifted:
                tokens += (await self._archive.message(namespace, context_id(pin.chain)))[1].tokens
        # One large message lifts the target of the moment, and the next turn lowers it again.
        room = min(scene.budget.target_tokens, scene.budget.carry_tokens)
        if tokens <= room:
            return None
        said = f"All pins take {tokens} tokens; a compaction comes down to {room}."
        if scene.budget.window.is_known:
            raise PinsTooLarge(said, param="message")
        return said


def _fields(chain: bytes, at: float, origin: str, *, is_kept: bool) -> dict[str, Any]:
    """`is_kept`: a compaction keeps it; of pins by text those are not that have no room beside newer ones."""
    return {"message": context_id(chain), "created_at": at, "origin": origin, "is_kept": is_kept}
