"""One exchange, from a request's bytes to the end of its answer. Read this first.

    1 resolve    which session, which branch, how much is new        resolver
    2 record     commit the new messages (P2)                        recorder
    3 view       what the model should see                           viewing
    4 plan       does it fit? what to fold, mask, pin?               viewing
    5 compact    only if the plan says so                            compactor
    6 forward    the client's bytes, or the same body, respliced     delivery
    7 relay      bytes to the client; the answer assembled           relay
    8 record     commit the answer, then let its end go out (P3)     relay, recorder

Nothing is decided here but the order, and what happens when a step cannot be done (rule 22).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from app.core.history.carriers import SessionName
from app.core.wire.chat_request import ChatRequest
from app.core.wire.request_body import Limits
from app.core.wire.responses.references import names_kept_items
from app.core.wire.wires import NotRecorded, parse_request
from app.errors import Conflict, InvalidField, RequestError, StoreUnavailable, UnsupportedCoding
from app.proxy.access.access import Access
from app.proxy.answering.delivery import Delivery
from app.proxy.answering.passthrough import Passthrough, WholeBody
from app.proxy.client import Client
from app.proxy.compacting.viewing import Viewing
from app.proxy.hidden.mixed import MixedTurns
from app.proxy.incoming import Incoming, plain_body
from app.proxy.offload import offload
from app.proxy.recall.offering import asked_for
from app.proxy.sessions.recorder import Outcome, Recorder
from app.proxy.sessions.references import References
from app.proxy.sessions.resolver import Resolver
from app.proxy.sessions.tombstones import Tombstones
from app.proxy.turn import Shown, Turn, original

# A path on a disk, the longest name in use, is hardly longer. A longer one is the upstream's to judge: such a
# request passes through, and nothing is kept of it, for a name is kept in many places.
MODEL_CHARS = 512


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What an operator has decided about whole exchanges; `body_bytes` bounds a body that is decoded."""

    limits: Limits
    body_bytes: int
    allow_off: bool
    on_store_failure: Literal["refuse", "passthrough"]


@dataclass(frozen=True, slots=True)
class Exchange:
    """Answers chat requests; one for the application."""

    access: Access
    references: References
    resolver: Resolver
    tombstones: Tombstones
    recorder: Recorder
    viewing: Viewing
    delivery: Delivery
    passthrough: Passthrough
    mixed: MixedTurns
    behaviour: Behaviour

    async def answer(self, incoming: Incoming, client: Client) -> None:
        """The client has an answer. Errors before it began are raised; nothing recorded is lost."""
        control = control_of(incoming, may_ask=self.behaviour.allow_off)
        try:
            if control == "no-store":
                await self._unrecorded(incoming, client, b"no-store")
                return
            caller = await self.access.caller_of(incoming)
            request = await self._read(incoming)
            if isinstance(request, NotRecorded):
                await self._unrecorded(incoming, client, request.why.encode())
                return
            client.entry.asked_for(request.model)
            request = await self.references.resolved(caller.namespace, request)
            async with (
                self.resolver.in_turn(caller.namespace, incoming, request) as name,
                self._opened(caller.namespace, incoming, request, name) as turn,
            ):
                client.entry.placed(turn)
                await self._delivered(turn, client, may_compact=control != "off" and _is_whole(turn))
        except StoreUnavailable as failure:
            if self.behaviour.on_store_failure == "refuse" or client.started:
                raise
            client.entry.failed(failure)
            await self._unrecorded(incoming, client, b"unavailable")

    async def _read(self, incoming: Incoming) -> ChatRequest | NotRecorded:
        """The request, or why it is not recorded: what is not understood is the upstream's to judge (P8)."""
        try:
            plain = await plain_body(incoming, self.behaviour.body_bytes)
        except UnsupportedCoding:
            return NotRecorded("not-understood")
        limits, has_accepted = self.behaviour.limits, self.resolver.has_accepted
        request = await offload(len(plain), parse_request, incoming.wire, plain, limits, has_accepted)
        if isinstance(request, ChatRequest) and len(request.model) > MODEL_CHARS:
            return NotRecorded("not-understood")
        return request

    @asynccontextmanager
    async def _opened(
        self, namespace: str, incoming: Incoming, request: ChatRequest, name: SessionName | None
    ) -> AsyncIterator[Turn]:
        """The request's turn, recorded; under way while it lasts."""
        for is_last in (False, True):
            found = await self.resolver.turn_of(namespace, incoming, request, name)
            with self.resolver.under_way.at(found):
                turn = self.delivery.prepared(found)
                await self.tombstones.admit(turn)
                await self.mixed.settled(turn.namespace, turn.session)
                try:
                    await self.recorder.open(turn)
                except Conflict:
                    # Another server began a session of that name in the same moment: it is the one meant.
                    if is_last:
                        raise
                    continue
                yield turn
                return

    async def _delivered(self, turn: Turn, client: Client, *, may_compact: bool) -> None:
        try:
            shown = await self._shown(turn) if may_compact else original(turn)
            await self.delivery.deliver(turn, shown, client, may_compact=may_compact)
        finally:
            self.viewing.answered(turn)

    async def _shown(self, turn: Turn) -> Shown:
        try:
            return await self.viewing.shown(turn)
        except RequestError as refused:
            await self.recorder.note(turn, original(turn), Outcome(state="refused", status=refused.status))
            raise
        except asyncio.CancelledError:
            self.recorder.abandon(turn, original(turn))
            raise

    async def _unrecorded(self, incoming: Incoming, client: Client, why: bytes) -> None:
        """The request passes through as it came, and the answer says that nothing was stored.

        Who asks is checked all the same: a store that is down must open the door to nobody.
        """
        await self.access.admit(incoming)
        client.entry.facts["not_stored"] = why.decode()
        await self.passthrough.relay(incoming, WholeBody(), client, [(b"x-palimpsest-store", why)])


def _is_whole(turn: Turn) -> bool:
    """False for what began with an answer that only the upstream knows, or names such items.

    Its words cannot be folded.
    """
    if turn.request.wire == "chat":
        return True
    talk = turn.conversation
    return not turn.begins_unseen and not names_kept_items(message.fields for message in talk.messages)


def control_of(incoming: Incoming, *, may_ask: bool) -> str:
    """The X-Palimpsest header (rule 29): "off", "no-store", or "" for neither.

    InvalidField for any other word, and where the operator does not allow it: who asks for privacy and
    is misspelled must not be stored. RepeatedHeader when one of our own headers stands twice.
    """
    for name in (b"x-session-id", b"x-session-mode"):
        incoming.only(name)
    asked_for(incoming)
    asked = (incoming.only(b"x-palimpsest") or "").strip().lower()
    if asked not in ("", "off", "no-store"):
        raise InvalidField("X-Palimpsest is off or no-store.", param="X-Palimpsest")
    if asked and not may_ask:
        raise InvalidField("This proxy allows no X-Palimpsest header.", param="X-Palimpsest")
    return asked
