"""Endpoints for pins, by hand or by a message's own text: compactions keep pinned messages verbatim (A32)."""

from __future__ import annotations

import time
from typing import Annotated, Literal, TypedDict

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict, StringConstraints

from palimpsest.api.callers import Admitted, SessionName, credentials_of, order_of
from palimpsest.api.replies import PRIVATE, MessageId, Reply, UtcTime, described, reply, utc_time
from palimpsest.core.view.compaction import context_id
from palimpsest.core.view.text_pins import is_pin_body
from palimpsest.errors import PinsTooLarge
from palimpsest.proxy.archive import Archive, missing
from palimpsest.proxy.compacting.context_loader import ContextLoader
from palimpsest.storage.history import History, MessageRow, SessionRow


class PinOrder(BaseModel):
    """The message to pin, by its id."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"message": "dcm_2703cb40bd99ef9c7f3b3be955bfc5ea"}]}
    )

    message: Annotated[str, StringConstraints(min_length=1, max_length=100)]


class PinFields(TypedDict):
    """A pinned message. `is_kept`: compactions keep it; false if newer ones by text leave it no room."""

    message: MessageId
    created_at: UtcTime
    origin: Annotated[Literal["hand", "text"], described("Who pinned it: a request, or its own text.")]
    is_kept: bool


class PinList(TypedDict):
    """The pins of a session: those by hand in the order of pinning, then those by text."""

    session: str
    pins: list[PinFields]


class AddedPin(TypedDict):
    """A message was pinned; `warning`: all pins together leave little room, else null."""

    session: str
    message: MessageId
    takes_effect: Literal["at the next compaction"]
    warning: str | None


class PinPages:
    """Pins of a session."""

    def __init__(self, archive: Archive, history: History, contexts: ContextLoader) -> None:
        self._archive = archive
        self._history = history
        self._contexts = contexts

    def on(self, api: APIRouter) -> None:
        """Register the routes."""
        api.add_api_route("/sessions/{name:path}/pins", self.list_pins, methods=["GET"])
        api.add_api_route("/sessions/{name:path}/pins", self.pin_message, methods=["POST"], status_code=201)
        api.add_api_route(
            "/sessions/{name:path}/pins/{message}", self.unpin_message, methods=["DELETE"], status_code=204
        )

    async def list_pins(self, request: Request, caller: Admitted, name: SessionName) -> Reply[PinList]:
        """List pinned messages.

        Those by hand in the order of pinning, then those by text on the default branch.
        """
        row = await self._archive.session(caller.namespace, name)
        return reply({"session": row.id, "pins": await self.pins(request, caller.namespace, row)})

    async def pins(self, request: Request, namespace: str, row: SessionRow) -> list[PinFields]:
        """The pins of a session."""
        pins = [pin for pin in await self._history.pins(namespace, row.id) if not pin.is_lifted]
        fields = [_fields(pin.chain, pin.created_at, "hand", is_kept=True) for pin in pins]
        return fields + await self._by_text(request, namespace, row)

    async def pin_message(self, request: Request, caller: Admitted, name: SessionName) -> Reply[AddedPin]:
        """Pin a message.

        Compactions keep it word for word from the next one on. Refused when a known window has no room for
        all pins together.
        """
        order = await order_of(request, PinOrder)
        row = await self._archive.session(caller.namespace, name)
        return reply(await self.pin(request, caller.namespace, row, order.message), 201)

    async def pin(self, request: Request, namespace: str, row: SessionRow, ident: str) -> AddedPin:
        """Pin the message with this id. PinsTooLarge when a known window has no room for all pins."""
        message = await self._archive.message_in(namespace, row, ident)
        warning = await self._checked(request, namespace, row, message)
        await self._history.add_pin(namespace, row.id, message.chain, time.time())
        return {
            "session": row.id,
            "message": context_id(message.chain),
            "takes_effect": "at the next compaction",
            "warning": warning,
        }

    async def unpin_message(
        self,
        caller: Admitted,
        name: SessionName,
        message: Annotated[str, Path(description="Id of a pinned message.")],
    ) -> Reply[None]:
        """Remove a message's pin, by hand or by its own text; 404 when it has none."""
        row = await self._archive.session(caller.namespace, name)
        found = await self._archive.message_in(caller.namespace, row, message)
        pins = {pin.chain: pin for pin in await self._history.pins(caller.namespace, row.id)}
        pin = pins.get(found.chain)
        if is_pin_body(found.role, found.body) and not (pin and pin.is_lifted):
            await self._history.lift_pin(caller.namespace, row.id, found.chain, time.time())
        elif not await self._history.remove_pin(caller.namespace, row.id, found.chain):
            raise missing()
        return Reply(None, 204, PRIVATE)

    async def _by_text(self, request: Request, namespace: str, row: SessionRow) -> list[PinFields]:
        """Pins by text, in the order of the messages."""
        place = await self._archive.place(namespace, row.id, None)
        branch = await self._archive.branch(place, credentials_of(request))
        pinned = await self._contexts.pinned(branch, (await self._contexts.of(branch)).budget)
        found = {*pinned.by_text, *pinned.left_out}
        if not found:
            return []
        rows = await self._history.messages(namespace, row.id, place.chain)
        return [
            _fields(one.chain, one.created_at, "text", is_kept=one.chain in pinned.by_text)
            for one in rows
            if one.chain in found
        ]

    async def _checked(
        self, request: Request, namespace: str, row: SessionRow, message: MessageRow
    ) -> str | None:
        """A warning if the pins leave no room. PinsTooLarge only if the window is known, not guessed."""
        place = await self._archive.place(namespace, row.id, None)
        context = await self._contexts.of(await self._archive.branch(place, credentials_of(request)))
        tokens = context.budget.fixed_tokens + message.tokens
        for pin in await self._history.pins(namespace, row.id):
            if pin.chain != message.chain and not pin.is_lifted:
                tokens += (await self._archive.message(namespace, context_id(pin.chain)))[1].tokens
        # A large message raises the current target, and the next turn lowers it again.
        room = context.budget.target_tokens
        if tokens <= room:
            return None
        said = f"All pins take {tokens} tokens; a compaction comes down to {room}."
        if context.budget.window.is_known:
            raise PinsTooLarge(said, param="message")
        return said


def _fields(chain: bytes, at: float, origin: Literal["hand", "text"], *, is_kept: bool) -> PinFields:
    return {"message": context_id(chain), "created_at": utc_time(at), "origin": origin, "is_kept": is_kept}
