"""Steps 2 and 8 of an exchange: the request is committed before it is forwarded, the answer before it ends.

Knows the store and the turn; nothing of how the answer travelled. The store carries out what it has begun
to write, so that a client that leaves, or a server that stops, cancels nobody's record.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import structlog

from app.core.history.chain import chain_of
from app.core.history.message import Message
from app.core.history.resolve import respelled
from app.core.recall.rounds.hidden import HiddenRounds
from app.core.wire.answered import Usage
from app.core.wire.responses.references import ids_in
from app.errors import StoreError
from app.proxy.access.newcomers import Newcomers
from app.proxy.jobs import Jobs
from app.proxy.offload import MESSAGE_WEIGHT, offload, weight_of
from app.proxy.sessions.resolver import preamble_digest
from app.proxy.turn import Shown, Turn, original
from app.storage.contract import (
    CloseExchange,
    ExchangeState,
    OpenExchange,
    PathEntry,
    Store,
    StoredMessage,
    Variant,
)
from app.storage.naming import BEGINS_UNSEEN

# Paths whose every byte is known to be stored; one entry is two digests.
REMEMBERED_PATHS = 20_000

NO_USAGE = Usage()
_log = structlog.get_logger("palimpsest.recorder")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an exchange ended. `answers` are what the upstream said, one message a choice.

    `response_id`: the upstream's id of the answer, by which a later request may go on from it.
    `hidden` is what it was told before that, and nobody else (rule 31). `by_upstream` is false for an answer
    of this program's own.
    """

    state: ExchangeState
    status: int | None
    answers: Sequence[Message] = ()
    answer_state: Literal["live", "incomplete"] = "live"
    finish_reason: str | None = None
    usage: Usage = NO_USAGE
    response_id: str | None = None
    hidden: HiddenRounds | None = None
    by_upstream: bool = True


class Recorder:
    """Writes exchanges; remembers which spellings of a path are stored already."""

    def __init__(self, store: Store, jobs: Jobs, newcomers: Newcomers) -> None:
        self._store = store
        self._newcomers = newcomers
        self._jobs = jobs
        # The newest spelling of each path, and the session that has it.
        self._spelled: OrderedDict[bytes, tuple[str, bytes]] = OrderedDict()

    async def open(self, turn: Turn) -> None:
        """The request's new messages are durable (P2). StoreUnavailable when they cannot be.

        NamespaceUnproven when its caller has stored too much already (rule 26).
        """
        await self._newcomers.admit(turn.namespace, len(turn.placement.new))
        weight = MESSAGE_WEIGHT * len(turn.placement.new)
        opened = await offload(weight, _opened, turn, await self._variants(turn))
        try:
            await self._store.open_exchange(opened)
        except asyncio.CancelledError:
            self._jobs.start(self._given_up(turn, opened))
            raise
        self._remember(turn, turn.conversation.head, turn.conversation.messages)

    def erased(self, namespace: str, session: str) -> None:
        """The session was erased: what is remembered of it is forgotten."""
        del namespace
        for head in [head for head, (owner, _) in self._spelled.items() if owner == session]:
            del self._spelled[head]

    async def close(self, turn: Turn, shown: Shown, outcome: Outcome) -> None:
        """The answer, or the failure, is durable (P3). Repeating it changes nothing."""
        await self._store.close_exchange(_closed(turn, shown, outcome))
        if len(outcome.answers) == 1:
            answer = outcome.answers[0]
            head = chain_of(turn.conversation.head, answer.canonical)
            self._remember(turn, head, (*turn.conversation.messages, answer))

    async def note(self, turn: Turn, shown: Shown, outcome: Outcome) -> None:
        """As `close`, for an end without an answer: that it could not be stored is logged, not raised."""
        try:
            await self.close(turn, shown, outcome)
        except StoreError as error:
            _log.error("end_not_stored", error=type(error).__name__, exchange=turn.exchange)

    def abandon(self, turn: Turn, shown: Shown) -> None:
        """The client left before an answer began; recorded soon, by a job of its own."""
        self._jobs.start(self.note(turn, shown, Outcome(state="failed", status=None)))

    async def _given_up(self, turn: Turn, opened: OpenExchange) -> None:
        """The client left while its request was stored: it is stored, and that nobody waits for an answer.

        Opened once more, which changes nothing, because the first attempt may still be under way.
        """
        try:
            await self._store.open_exchange(opened)
        except StoreError as error:
            _log.error("request_not_stored", error=type(error).__name__, exchange=turn.exchange)
            return
        await self.note(turn, original(turn), Outcome(state="failed", status=None))

    async def save_partial(self, turn: Turn, body: bytes) -> None:
        """The answer so far outlives a crash; that it could not be stored is logged, not raised."""
        try:
            await self._store.save_partial(turn.namespace, turn.session, turn.exchange, body)
        except StoreError as error:
            _log.warning("partial_answer_not_stored", error=type(error).__name__, exchange=turn.exchange)

    async def _variants(self, turn: Turn) -> list[Variant]:
        """The messages stored already that the client now spells in other bytes (rule 12)."""
        talk, placement = turn.conversation, turn.placement
        if turn.is_delta or self._is_spelled(turn):
            return []
        prefix: Sequence[PathEntry] = ()
        anchor_path: Sequence[PathEntry] = ()
        if placement.base:
            prefix = await self._store.path(turn.namespace, turn.session, placement.base)
        if placement.rebase is not None:
            anchor = placement.rebase.anchor
            anchor_path = await self._store.path(turn.namespace, turn.session, anchor)
        found = await offload(weight_of(turn), respelled, talk, placement, prefix, anchor_path)
        return [Variant(chain, talk.messages[i].raw, talk.messages[i].digest) for i, chain in found]

    def _is_spelled(self, turn: Turn) -> bool:
        """True when nothing is stored of it yet, or every byte of what is has been seen here before."""
        base = turn.placement.base
        if turn.placement.rebase is not None:
            return False
        position = turn.conversation.position(base) if base else None
        if position is None:
            return True
        spelling = _spelling(turn.conversation.messages[: position + 1])
        return self._spelled.get(base) == (turn.session, spelling)

    def _remember(self, turn: Turn, head: bytes, messages: Sequence[Message]) -> None:
        self._spelled[head] = turn.session, _spelling(messages)
        self._spelled.move_to_end(head)
        if len(self._spelled) > REMEMBERED_PATHS:
            self._spelled.popitem(last=False)


def _spelling(messages: Sequence[Message]) -> bytes:
    """Names the exact bytes of a list of messages."""
    return hashlib.sha256(b"".join([message.digest for message in messages])).digest()


def _opened(turn: Turn, variants: Sequence[Variant]) -> OpenExchange:
    placement, talk = turn.placement, turn.conversation
    return OpenExchange(
        namespace=turn.namespace,
        session=turn.session,
        external_id=turn.external_id,
        exchange=turn.exchange,
        base=placement.base,
        head=talk.head,
        messages=[
            stored_message(talk.messages[new.index], new.chain, new.parent, new.depth, new.answers)
            for new in placement.new
        ],
        variants=variants,
        rebase=placement.rebase,
        preamble=[(message.raw, message.digest) for message in turn.instructions],
        preamble_digest=preamble_digest(turn.instructions),
        model=turn.request.model,
        found_by=placement.found_by,
        mode=BEGINS_UNSEEN if turn.begins_unseen else turn.mode,
        full_history=_is_full_history(turn),
        idempotency_key=turn.incoming.header(b"idempotency-key"),
        started_at=turn.started_at,
        takes_name=turn.takes_name,
        continues=not turn.is_new,
        appends=turn.is_delta and turn.request.previous is None,
        mark=turn.mark,
    )


def _is_full_history(turn: Turn) -> bool:
    """Rule 9: a session that ever received answers or instructions is not one that sends deltas."""
    talk = turn.conversation
    if turn.is_delta:
        return False
    return bool(talk.preamble) or any(message.role == "assistant" for message in talk.messages)


def _closed(turn: Turn, shown: Shown, outcome: Outcome) -> CloseExchange:
    head, place = turn.conversation.head, turn.placement
    compaction = shown.view.compaction
    return CloseExchange(
        namespace=turn.namespace,
        session=turn.session,
        exchange=turn.exchange,
        head=head,
        base=turn.placement.base,
        state=outcome.state,
        answers=[
            stored_message(answer, chain_of(head, answer.canonical), head, place.depth + 1, place.answers + 1)
            for answer in outcome.answers
        ],
        answer_state=outcome.answer_state,
        withdrawn=turn.withdrawn if outcome.state in ("rejected", "refused") else (),
        usage=outcome.usage,
        response_id=outcome.response_id,
        finish_reason=outcome.finish_reason,
        status=outcome.status,
        view="original" if compaction is None else "compacted",
        tokens_full=turn.tokens,
        # As the upstream counts the last round's prompt.
        tokens_forwarded=shown.tokens + (outcome.hidden.tokens if outcome.hidden else 0),
        compaction=compaction.id if compaction else None,
        finished_at=time.time(),
        hidden=outcome.hidden,
        by_upstream=outcome.by_upstream,
        items=ids_in(outcome.answers[0].raw) if outcome.answers else (),
    )


def stored_message(message: Message, chain: bytes, parent: bytes, depth: int, answers: int) -> StoredMessage:
    """The message as a row at `chain`; `depth` and `answers` count it in."""
    return StoredMessage(
        chain=chain,
        parent=parent,
        canonical=message.canonical,
        role=message.role,
        tokens=message.tokens,
        depth=depth,
        answers=answers,
        body=message.raw,
        digest=message.digest,
    )
