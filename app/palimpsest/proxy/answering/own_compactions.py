"""Requests for a compaction (`/v1/responses/compact`, `compaction_trigger`), answered by the proxy if so set.

By default the upstream answers them. With `auto` the proxy answers where the upstream does not support them;
with `proxy` it always does. The summary is made like any other, but no compaction is stored in the session:
the client continues from the compacted list that it receives.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from palimpsest.core.history.message import Message
from palimpsest.core.view.plan import stays_with_client
from palimpsest.core.wire.chat_answers import Usage
from palimpsest.core.wire.compaction_items import (
    MANAGEMENT,
    compaction_answer,
    events_of,
    item_of,
    triggered_answer,
)
from palimpsest.core.wire.json_text import encoded
from palimpsest.proxy.compacting.viewing import ViewPlanner
from palimpsest.proxy.destinations import RefusalMemory
from palimpsest.proxy.reports import Client, exchange_headers
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.proxy.sessions.recorder import Recorder
from palimpsest.proxy.turn import Outcome, Turn, original

Responder = Literal["upstream", "auto", "proxy"]
# Statuses with which upstreams refuse the address, the item or the field.
_NO_ADDRESS = frozenset({404, 405, 501})
_REFUSES = frozenset({400, 404, 422, 501})


@dataclass(frozen=True, slots=True)
class OwnCompactions:
    """Answers requests for a compaction. `refusing`: models whose upstream has refused them."""

    who: Responder
    viewing: ViewPlanner
    reader: MessageReader
    recorder: Recorder
    new_id: Callable[[], str]
    refusing: RefusalMemory

    def answers(self, turn: Turn) -> bool:
        """True when the proxy answers this request."""
        asks = turn.incoming.asks_for_compaction or turn.request.trigger is not None
        return self._is_ours(turn) and asks and bool(turn.conversation.messages)

    def prepared(self, turn: Turn, *, is_off: bool) -> Turn:
        """The turn as it goes upstream: without `context_management` where the proxy compacts."""
        if turn.request.management is None:
            return turn
        dropped = (MANAGEMENT,) if self._is_ours(turn) and not is_off else ()
        return replace(turn, request=replace(turn.request, dropped=dropped))

    def are_refused(self, turn: Turn, status: int, body: bytes) -> bool:
        """True when the refusal means that the upstream makes no compactions; this is remembered."""
        if self.who != "auto" or self._is_ours(turn):
            return False
        manages = turn.request.management is not None and MANAGEMENT.encode() in body
        triggers = turn.request.trigger is not None and b"compaction_trigger" in body
        at_address = turn.incoming.asks_for_compaction and status in _NO_ADDRESS
        if at_address or ((manages or triggers) and status in _REFUSES):
            self.refusing.remember(turn.namespace, turn.model)
            return True
        return False

    async def answer(self, turn: Turn, client: Client) -> None:
        """Store the answer with the compaction, then send it. StoreError when it cannot be stored."""
        shown = original(turn)
        # A client may drop everything before the item that answers a trigger, user messages included.
        stays = _is_instruction if turn.request.trigger is not None else stays_with_client
        made, context = await self.viewing.of_all(turn, stays)
        ident = self.new_id()
        item = item_of(made.summary, ident)
        usage = Usage(*map(context.budget.for_model, (turn.tokens, context.count_text(made.summary))))
        answer = _answer(turn, ident, item, usage)
        stored = self.reader.read_answers([encoded([item])], turn.model)
        outcome = Outcome(
            "done", 200, stored, finish_reason="stop", response_id=answer["id"], by_upstream=False
        )
        await self.recorder.close(turn, shown, outcome, client.entry)
        streams = turn.request.stream and not turn.incoming.asks_for_compaction
        kind = b"text/event-stream; charset=utf-8" if streams else b"application/json"
        own_headers = exchange_headers(turn, shown, includes_view=False)
        body = b"".join(events_of(answer)) if streams else encoded(answer)
        length = (b"content-length", str(len(body)).encode())
        await client.start(200, [(b"content-type", kind), length, *own_headers])
        await client.end(body)

    def _is_ours(self, turn: Turn) -> bool:
        is_refused = (turn.namespace, turn.model) in self.refusing
        return self.who == "proxy" or (self.who == "auto" and is_refused)


def _is_instruction(message: Message) -> bool:
    return message.is_instruction


def _answer(turn: Turn, ident: str, item: dict[str, Any], usage: Usage) -> dict[str, Any]:
    head = {"id": f"resp_{ident}", "created_at": int(time.time())}
    if turn.request.trigger is not None:
        return triggered_answer(head, turn.model, item, usage)
    talk = turn.conversation
    kept = [message.raw for message in (*talk.preamble, *talk.messages) if stays_with_client(message)]
    return compaction_answer(head, kept, item, usage)
