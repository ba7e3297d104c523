"""Endpoints for pins, by hand or by a message's own text: compactions keep pinned messages verbatim (A32)."""

from __future__ import annotations

import time
from typing import Annotated, Literal, TypedDict

from fastapi import Path
from pydantic import BaseModel, StringConstraints

from palimpsest.api.callers import AskedSession, CallersSession, api_router, order_like
from palimpsest.api.replies import PRIVATE, MessageId, Reply, UtcTime, described, reply, utc_time
from palimpsest.core.view.clients import is_pin_body
from palimpsest.core.view.compaction import context_id
from palimpsest.errors import PinsTooLarge
from palimpsest.proxy.archive import missing
from palimpsest.storage.history import SessionRow


class PinOrder(BaseModel):
    """The message to pin, by its id."""

    model_config = order_like(message="dcm_2703cb40bd99ef9c7f3b3be955bfc5ea")

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


api = api_router()


@api.get("/sessions/{name:path}/pins")
async def list_pins(session: AskedSession) -> Reply[PinList]:
    """List pinned messages.

    Those by hand in the order of pinning, then those by text on the default branch.
    """
    row = await session.row()
    return reply({"session": row.id, "pins": await pins_of(session, row)})


async def pins_of(session: CallersSession, row: SessionRow) -> list[PinFields]:
    """The pins of a session: those by hand, then those by text in the order of the messages."""
    history = session.parts.store.history
    pins = [pin for pin in await history.pins(session.namespace, row.id) if not pin.is_lifted]
    fields = [_fields(pin.chain, pin.created_at, "hand", is_kept=True) for pin in pins]
    place = await session.place()
    branch, contexts = await session.branch(place), session.parts.contexts
    pinned = await contexts.pinned(branch, (await contexts.of(branch)).budget)
    found = {*pinned.by_text, *pinned.left_out}
    rows = await history.messages(session.namespace, row.id, place.chain) if found else ()
    return fields + [
        _fields(one.chain, one.created_at, "text", is_kept=one.chain in pinned.by_text)
        for one in rows
        if one.chain in found
    ]


@api.post("/sessions/{name:path}/pins", status_code=201)
async def pin_message(session: AskedSession) -> Reply[AddedPin]:
    """Pin a message.

    Compactions keep it word for word from the next one on. Refused when a known window has no room for
    all pins together.
    """
    order = await session.order(PinOrder)
    return reply(await pin(session, await session.row(), order.message), 201)


async def pin(session: CallersSession, row: SessionRow, ident: str) -> AddedPin:
    """Pin the message with this id. PinsTooLarge when a known window has no room for all pins."""
    archive, history = session.parts.archive, session.parts.store.history
    message = await archive.message_in(session.namespace, row, ident)
    _, context = await session.context()
    tokens = context.budget.fixed_tokens + message.tokens
    for other in await history.pins(session.namespace, row.id):
        if other.chain != message.chain and not other.is_lifted:
            tokens += (await archive.message(session.namespace, context_id(other.chain)))[1].tokens
    # A large message raises the current target, and the next turn lowers it again.
    room, warning = context.budget.target_tokens, None
    if tokens > room:
        warning = f"All pins take {tokens} tokens; a compaction comes down to {room}."
        if context.budget.window.is_known:
            raise PinsTooLarge(warning, param="message")
    await history.add_pin(session.namespace, row.id, message.chain, time.time())
    return {
        "session": row.id,
        "message": context_id(message.chain),
        "takes_effect": "at the next compaction",
        "warning": warning,
    }


@api.delete("/sessions/{name:path}/pins/{message}", status_code=204)
async def unpin_message(
    session: AskedSession, message: Annotated[str, Path(description="Id of a pinned message.")]
) -> Reply[None]:
    """Remove a message's pin, by hand or by its own text; 404 when it has none."""
    row, history = await session.row(), session.parts.store.history
    found = await session.parts.archive.message_in(session.namespace, row, message)
    pins = await history.pins(session.namespace, row.id)
    is_lifted = any(one.is_lifted for one in pins if one.chain == found.chain)
    if is_pin_body(found.role, found.body) and not is_lifted:
        await history.lift_pin(session.namespace, row.id, found.chain, time.time())
    elif not await history.remove_pin(session.namespace, row.id, found.chain):
        raise missing()
    return Reply(None, 204, PRIVATE)


def _fields(chain: bytes, at: float, origin: Literal["hand", "text"], *, is_kept: bool) -> PinFields:
    return {"message": context_id(chain), "created_at": utc_time(at), "origin": origin, "is_kept": is_kept}
