"""One exchange, from a request's bytes to the end of its answer. Read this first.

    1 resolve    which session, which branch, how much is new        resolver
    2 record     commit the new messages (P2)                        recorder
    3 view       what the model should see                           viewing
    4 plan       does it fit? what to fold, mask, pin?               viewing
    5 compact    only if the plan says so                            compactor
    6 forward    the client's bytes, or the same body, respliced     delivery
    7 relay      bytes to the client; the answer assembled           relay
    8 record     commit the answer, then let its end go out (P3)     relay, recorder

This module decides only the order of the steps, and what happens when one of them fails (rule 22).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from palimpsest.core.history.session_sources import SessionName
from palimpsest.core.wire.request import ChatRequest, NotRecorded, RequestLimits
from palimpsest.core.wire.responses.items import has_item_references
from palimpsest.errors import Conflict, InvalidField, RequestError, StoreUnavailable, UnsupportedCoding
from palimpsest.proxy.access import Access
from palimpsest.proxy.answering.delivery import Delivery
from palimpsest.proxy.answering.passthrough import Passthrough
from palimpsest.proxy.compacting.viewing import ViewPlanner
from palimpsest.proxy.incoming import Incoming, plain_body
from palimpsest.proxy.jobs import offload
from palimpsest.proxy.lookups import MixedTurns, asked_for
from palimpsest.proxy.quotas import Quotas
from palimpsest.proxy.reports import Client
from palimpsest.proxy.sessions.recorder import Recorder
from palimpsest.proxy.sessions.resolver import References, Resolver
from palimpsest.proxy.sessions.tombstones import Tombstones
from palimpsest.proxy.turn import ForwardedView, Outcome, Turn, original
from palimpsest.settings.settings import Settings

# File paths, the longest model names in use, are hardly longer. A request with a longer name passes through
# unrecorded, because names are stored in many places.
MODEL_CHARS = 512


@dataclass(frozen=True, slots=True)
class Exchange:
    """Answers chat requests."""

    access: Access
    references: References
    resolver: Resolver
    tombstones: Tombstones
    recorder: Recorder
    viewing: ViewPlanner
    delivery: Delivery
    passthrough: Passthrough
    quotas: Quotas
    mixed: MixedTurns
    limits: RequestLimits
    settings: Settings

    async def answer(self, incoming: Incoming, client: Client) -> None:
        """Answer the client. Errors before the answer has begun are raised; nothing recorded is lost."""
        control = control_of(incoming, may_ask=self.settings.access.allow_off)
        try:
            if control == "no-store":
                await self._unrecorded(incoming, client, b"no-store")
                return
            caller = await self.access.caller_of(incoming)
            if caller.quota is not None:
                incoming = replace(incoming, bill=await self.quotas.bill(caller.quota))
            request = await self._read(incoming)
            if isinstance(request, NotRecorded):
                await self._unrecorded(incoming, client, request.why.encode())
                return
            client.entry.asked_for(request.model)
            if request.references:
                request = await self.references.resolved(caller.namespace, request)
            async with (
                self.resolver.in_turn(caller.namespace, incoming, request) as name,
                self._opened(caller.namespace, incoming, request, name) as turn,
            ):
                client.entry.placed(turn)
                is_whole = True
                if turn.wire.keeps_answers:
                    # Messages or items that only the upstream holds cannot be folded.
                    said = (message.fields for message in turn.conversation.messages)
                    is_whole = not turn.begins_unseen and not has_item_references(said)
                is_off = control == "off"
                try:
                    may_plan = is_whole and not is_off
                    shown = await self._shown(turn, client) if may_plan else original(turn, is_off=is_off)
                    may_compact = is_whole and not shown.is_off
                    await self.delivery.deliver(turn, shown, client, may_compact=may_compact)
                finally:
                    self.viewing.answered(turn)
                    self.recorder.ended(turn, client.entry)
        except StoreUnavailable as failure:
            if self.settings.database.on_store_failure == "refuse" or client.started:
                raise
            client.entry.failed(failure)
            await self._unrecorded(incoming, client, b"unavailable")

    async def _read(self, incoming: Incoming) -> ChatRequest | NotRecorded:
        """The request, or why it is not recorded: the upstream judges what we do not understand (P8)."""
        try:
            plain = await plain_body(incoming, self.settings.limits.body_bytes)
        except UnsupportedCoding:
            return NotRecorded("not-understood")
        request = await offload(
            len(plain), incoming.wire.request, plain, self.limits, self.resolver.unaccepted
        )
        if isinstance(request, ChatRequest) and len(request.model) > MODEL_CHARS:
            return NotRecorded("not-understood")
        return request

    @asynccontextmanager
    async def _opened(
        self, namespace: str, incoming: Incoming, request: ChatRequest, name: SessionName | None
    ) -> AsyncIterator[Turn]:
        """Resolve and record the request's turn; it counts as in flight until the block ends."""
        for is_last in (False, True):
            found = await self.resolver.turn_of(namespace, incoming, request, name)
            with self.resolver.in_flight.at(found):
                turn = self.delivery.prepared(found)
                # It may be new here, or was erased: also if placed by an answer (rule 4).
                if turn.placement.found_by == "anchor" or not turn.placement.base:
                    await self.tombstones.admit(turn)
                if (turn.namespace, turn.session) in self.mixed.running:
                    await self.mixed.settled(turn.namespace, turn.session)
                try:
                    await self.recorder.open(turn)
                except Conflict:
                    # Another server has just created the session of that name: continue in that one.
                    if is_last:
                        raise
                    continue
                yield turn
                return

    async def _shown(self, turn: Turn, client: Client) -> ForwardedView:
        try:
            return await self.viewing.shown(turn)
        except RequestError as refused:
            client.entry.failed(refused)
            outcome = Outcome(state="refused", status=refused.status)
            await self.recorder.note(turn, original(turn), outcome, client.entry)
            raise

    async def _unrecorded(self, incoming: Incoming, client: Client, why: bytes) -> None:
        """Relay the request unchanged, with a header that says that nothing was stored.

        The caller is still authenticated: a store that is down must not admit anybody.
        """
        quota = await self.access.admit(incoming)
        if quota is not None and incoming.bill is None:
            incoming = replace(incoming, bill=await self.quotas.bill(quota))
        client.entry.facts["not_stored"] = why.decode()
        await self.passthrough.relay(incoming, client, [(b"x-palimpsest-store", why)])


def control_of(incoming: Incoming, *, may_ask: bool) -> str:
    """The X-Palimpsest header (rule 29): "off", "no-store", or "" for neither.

    InvalidField for any other value, and when the operator does not allow the header: a misspelled request
    for privacy must not be stored. RepeatedHeader when one of our own headers occurs twice.
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
