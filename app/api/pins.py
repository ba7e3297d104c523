"""Messages pinned by hand: they stay verbatim from the next compaction on (A32, rule 14).

Knows nothing of how a view is made.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, StringConstraints

from app.api.callers import Admitted, credentials_of, order_of
from app.api.replies import raw_reply, reply
from app.core.view.masking import context_id
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

    async def listed(self, caller: Admitted, name: str) -> Response:
        """In the order in which they were pinned."""
        row = await self._archive.session(caller.namespace, name)
        pins = await self._store.pins(caller.namespace, row.id)
        fields = [{"message": context_id(pin.chain), "created_at": pin.created_at} for pin in pins]
        return reply({"session": row.id, "pins": fields})

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
        """The message is pinned no longer; 404 when it was not."""
        row = await self._archive.session(caller.namespace, name)
        found = await self._archive.message_in(caller.namespace, row, message)
        if not await self._store.remove_pin(caller.namespace, row.id, found.chain):
            raise missing()
        return raw_reply(b"", 204)

    async def _checked(
        self, request: Request, namespace: str, row: SessionRow, message: MessageRow
    ) -> str | None:
        """What is to be said of pins that leave no room; with a guessed window they are not refused."""
        place = await self._archive.place(namespace, row.id, None)
        scene = await self._scenes.of(await self._archive.branch(place, credentials_of(request)))
        tokens = scene.budget.fixed_tokens + message.tokens
        for pin in await self._store.pins(namespace, row.id):
            if pin.chain != message.chain:
                tokens += (await self._archive.message(namespace, context_id(pin.chain)))[1].tokens
        # One large message lifts the target of the moment, and the next turn lowers it again.
        room = min(scene.budget.target_tokens, scene.budget.carry_tokens)
        if tokens <= room:
            return None
        said = f"All pins take {tokens} tokens; a compaction comes down to {room}."
        if scene.budget.window.is_known:
            raise PinsTooLarge(said, param="message")
        return said
