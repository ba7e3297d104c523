"""Requests for a compaction (`/v1/responses/compact`, `compaction_trigger`), answered here where that is set.

By default the upstream answers them. With `auto` it is asked first and this program answers where it has no
such thing; with `proxy` it is never asked. The summary is made by the same engine as any other; nothing
comes into force in the session, since it is the client that goes on from what it is given.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from app.core.history.message import Message
from app.core.view.plan import stays_with_client
from app.core.wire.answered import Usage
from app.core.wire.json_text import encoded
from app.core.wire.responses.compacting import (
    MANAGEMENT,
    compaction_answer,
    events_of,
    item_of,
    triggered_answer,
)
from app.proxy.client import Client
from app.proxy.compacting.viewing import Viewing
from app.proxy.recall.refusing import Refusing
from app.proxy.reports import exchange_headers
from app.proxy.sessions.reader import MessageReader
from app.proxy.sessions.recorder import Outcome, Recorder
from app.proxy.turn import Turn, original

Who = Literal["upstream", "auto", "proxy"]
# How upstreams say that there is no such address, item or field.
_NO_ADDRESS = frozenset({404, 405, 501})
_REFUSES = frozenset({400, 404, 422, 501})


@dataclass(frozen=True, slots=True)
class Means:
    """What a summary is made with and recorded by."""

    viewing: Viewing
    reader: MessageReader
    recorder: Recorder
    new_id: Callable[[], str]


class OwnCompactions:
    """One for the application. `refusing` are the models whose upstream was found to have none."""

    def __init__(self, who: Who, means: Means, refusing: Refusing) -> None:
        self._who = who
        self._means = means
        self._refusing = refusing

    def answers(self, turn: Turn) -> bool:
        """True when this request is to be answered here."""
        return self._is_ours(turn) and _asks(turn) and bool(turn.conversation.messages)

    def prepared(self, turn: Turn) -> Turn:
        """The turn as it goes upstream: without `context_management` where that is not understood."""
        if not self._is_ours(turn) or not turn.request.members((MANAGEMENT,)):
            return turn
        return replace(turn, request=replace(turn.request, dropped=(MANAGEMENT,)))

    def are_refused(self, turn: Turn, status: int, body: bytes) -> bool:
        """True when this refusal says that the upstream makes no compactions, which is kept in mind."""
        if self._who != "auto" or self._is_ours(turn):
            return False
        manages = bool(turn.request.members((MANAGEMENT,))) and MANAGEMENT.encode() in body
        triggers = turn.request.trigger is not None and b"compaction_trigger" in body
        at_address = turn.incoming.asks_for_compaction and status in _NO_ADDRESS
        if at_address or ((manages or triggers) and status in _REFUSES):
            self._refusing.remember(turn.namespace, turn.model)
            return True
        return False

    async def answer(self, turn: Turn, client: Client) -> None:
        """The client has its compaction; it is stored first. StoreError when it cannot be."""
        means, shown = self._means, original(turn)
        try:
            # Before the item that answers a trigger a client may drop everything, its own words too.
            stays = _is_instruction if turn.request.trigger is not None else stays_with_client
            made, scene = await means.viewing.of_all(turn, stays)
        except asyncio.CancelledError:
            means.recorder.abandon(turn, shown)
            raise
        ident = means.new_id()
        item = item_of(made.summary, ident)
        usage = Usage(*map(scene.budget.for_model, (turn.tokens, scene.count_text(made.summary))))
        answer = _answer(turn, ident, item, usage)
        stored = means.reader.read_answers([encoded([item])], turn.model)
        outcome = Outcome(
            "done", 200, stored, finish_reason="stop", response_id=answer["id"], by_upstream=False
        )
        await means.recorder.close(turn, shown, outcome)
        streams = turn.request.stream and not turn.incoming.asks_for_compaction
        kind = b"text/event-stream; charset=utf-8" if streams else b"application/json"
        told = exchange_headers(turn, shown, tells_view=False)
        body = b"".join(events_of(answer)) if streams else encoded(answer)
        length = (b"content-length", str(len(body)).encode())
        await client.start(200, [(b"content-type", kind), length, *told])
        await client.end(body)

    def _is_ours(self, turn: Turn) -> bool:
        if turn.request.wire != "responses":
            return False
        is_refused = (turn.namespace, turn.model) in self._refusing
        return self._who == "proxy" or (self._who == "auto" and is_refused)


def _is_instruction(message: Message) -> bool:
    return message.is_instruction


def _asks(turn: Turn) -> bool:
    return turn.incoming.asks_for_compaction or turn.request.trigger is not None


def _answer(turn: Turn, ident: str, item: dict[str, Any], usage: Usage) -> dict[str, Any]:
    head = {"id": f"resp_{ident}", "created_at": int(time.time())}
    if turn.request.trigger is not None:
        return triggered_answer(head, turn.model, item, usage)
    talk = turn.conversation
    kept = [message.raw for message in (*talk.preamble, *talk.messages) if stays_with_client(message)]
    return compaction_answer(head, kept, item, usage)
