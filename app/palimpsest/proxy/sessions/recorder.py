"""Steps 2 and 8 of an exchange: commits the request before it is forwarded, the answer before its end is
sent.

The store finishes a write that it has begun, so that neither a disconnect nor a stop loses a record.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import NamedTuple

import structlog

from palimpsest.core.budget.upstream_counts import Prices, as_theirs, price
from palimpsest.core.history.message import Message, chain_of
from palimpsest.core.history.read import continuing
from palimpsest.core.history.resolve import respelled
from palimpsest.core.history.session_sources import program_of
from palimpsest.core.history.stored_points import PathEntry
from palimpsest.core.recall.rounds.offer import tools_edit
from palimpsest.core.wire.request import envelope_of
from palimpsest.core.wire.responses.items import ids_in
from palimpsest.errors import QuotaExceeded, StoreError
from palimpsest.proxy.access import UnprovenNamespaces
from palimpsest.proxy.incoming import Incoming
from palimpsest.proxy.jobs import MESSAGE_WEIGHT, Jobs, logged, offload
from palimpsest.proxy.model_facts import ModelPrices
from palimpsest.proxy.quotas import Quotas, answer_room, used_by
from palimpsest.proxy.reports import RequestEntry, printable
from palimpsest.proxy.sessions.resolver import preamble_digest
from palimpsest.proxy.telemetry.counts import Counts
from palimpsest.proxy.turn import ForwardedView, Outcome, Turn, original, weight_of
from palimpsest.storage.exchange_units import (
    CloseExchange,
    ExchangeState,
    OpenExchange,
    StoredMessage,
    Variant,
)
from palimpsest.storage.history import BEGINS_UNSEEN
from palimpsest.storage.store import Store

# Paths whose exact bytes are known to be stored; one entry is two digests.
REMEMBERED_PATHS = 5_000

# Longer names of programs are truncated.
_CLIENT_CHARS = 60
_log = structlog.get_logger("palimpsest.recorder")


# Statuses that clients retry, because the request was not at fault (OpenAI's SDKs do).
RETRIED = frozenset({408, 409, 425, 429})


def state_of_status(status: int) -> ExchangeState:
    """The state for an error status. A 4xx rejects the messages (rule 11), unless clients retry it."""
    return "rejected" if 400 <= status < 500 and status not in RETRIED else "failed"


class Recorder:
    """Writes exchanges; remembers which exact bytes of a path are stored already."""

    def __init__(
        self,
        store: Store,
        jobs: Jobs,
        newcomers: UnprovenNamespaces,
        quotas: Quotas,
        prices: ModelPrices,
        counts: Counts | None,
    ) -> None:
        self._store = store
        self._prices = prices
        self._counts = counts
        self._quotas = quotas
        self._newcomers = newcomers
        self._jobs = jobs
        # By the head of each path.
        self._spelled: OrderedDict[bytes, _Spelling] = OrderedDict()

    async def open(self, turn: Turn) -> None:
        """Store the request's new messages durably (P2). StoreUnavailable when that fails.

        NamespaceUnproven when an unproven caller has stored too much already (rule 26).
        """
        await self._newcomers.admit(turn.namespace, len(turn.placement.new))
        weight = MESSAGE_WEIGHT * len(turn.placement.new)
        opened = await offload(weight, _opened, turn, await self._variants(turn))
        try:
            await self._store.exchanges.open(opened)
        except asyncio.CancelledError:
            self._jobs.start(self._given_up(turn, opened))
            raise
        self._remember(turn, turn.conversation.head, turn.conversation.messages)

    def erased(self, namespace: str, session: str) -> None:
        """Forget an erased session."""
        del namespace
        for head in [head for head, spelled in self._spelled.items() if spelled.session == session]:
            del self._spelled[head]

    async def close(
        self, turn: Turn, shown: ForwardedView, outcome: Outcome, entry: RequestEntry | None = None
    ) -> None:
        """Store the answer, or the failure, durably (P3). Idempotent.

        `entry` knows when the answer came, or whose fault its absence is.
        """
        prices = await self._prices.of(turn.model) if outcome.usage.prompt_tokens is not None else None
        cost, saved = _money(turn, shown, outcome, prices)
        closed = replace(_closed(turn, shown, outcome, entry), cost=cost, saved=saved)
        if (bill := turn.incoming.bill) is None:
            await self._store.exchanges.close(closed)
        else:
            with self._quotas.charging(bill, _used_by(turn, shown, outcome, entry)) as charge:
                await self._store.exchanges.close(replace(closed, charge=charge))
        if entry is not None and cost is not None and self._counts is not None:
            self._counts.settled(entry, cost)
        if len(outcome.answers) == 1:
            answer = outcome.answers[0]
            head = chain_of(turn.conversation.head, answer.canonical)
            self._remember(turn, head, (*turn.conversation.messages, answer))

    async def reserve(self, turn: Turn, shown: ForwardedView, entry: RequestEntry) -> None:
        """Reserve the prompt and room for an answer, if the caller has a quota; before it is forwarded.

        QuotaExceeded, recorded, when nothing is left.
        """
        bill = turn.incoming.bill
        if bill is None:
            return
        room = answer_room(turn.max_output_tokens, turn.request.members(("n",)).get("n"))
        try:
            await self._quotas.reserve(bill, as_theirs(shown.tokens, turn.ratio) + room)
        except QuotaExceeded as refused:
            entry.failed(refused)
            await self.note(turn, shown, Outcome(state="refused", status=refused.status), entry)
            raise

    async def note(
        self, turn: Turn, shown: ForwardedView, outcome: Outcome, entry: RequestEntry | None = None
    ) -> None:
        """As `close`, but a store error is logged, not raised."""
        try:
            await self.close(turn, shown, outcome, entry)
        except StoreError as error:
            _log.error("end_not_stored", error=type(error).__name__, exchange=turn.exchange)

    def ended(self, turn: Turn, entry: RequestEntry) -> None:
        """Record, in the background, an exchange that nothing else has recorded the end of.

        The client left before an answer began, or it was ended by a bug or by an outage of the database.
        """
        if self._store.exchanges.is_open(turn.exchange):
            self._jobs.start(self._unanswered(turn, entry))

    async def _unanswered(self, turn: Turn, entry: RequestEntry) -> None:
        # A job that records what came of the answer was started before this one.
        if self._store.exchanges.is_open(turn.exchange):
            shown = entry.shown or original(turn)
            await self.note(turn, shown, Outcome(state="failed", status=None), entry)

    async def _given_up(self, turn: Turn, opened: OpenExchange) -> None:
        """Record a request whose client left while it was being stored.

        Opening is idempotent and is repeated, because the first attempt may still be running.
        """
        try:
            await self._store.exchanges.open(opened)
        except StoreError as error:
            _log.error("request_not_stored", error=type(error).__name__, exchange=turn.exchange)
            return
        await self.note(turn, original(turn), Outcome(state="failed", status=None))

    async def save_partial(self, turn: Turn, body: bytes) -> None:
        """Store the answer so far, for recovery after a crash; a store error is logged."""
        with logged(_log, "partial_answer_not_stored", exchange=turn.exchange):
            await self._store.exchanges.save_partial(turn.namespace, turn.session, turn.exchange, body)

    async def _variants(self, turn: Turn) -> list[Variant]:
        """The stored messages that the client has now sent in other bytes (rule 12)."""
        talk, placement = turn.conversation, turn.placement
        position = talk.position(placement.base) if placement.base else None
        if turn.is_delta or (position is None and placement.rebase is None):
            return []
        if position is not None and placement.rebase is None:
            known = self._spelled.get(placement.base)
            said = _spelling(turn.session, talk.messages[: position + 1])
            if known == said:
                return []
            if known is not None and known.before == said.before and known.session == said.session:
                # Most clients spell an answer in their own way when they send it back.
                return [Variant(placement.base, talk.messages[position].raw, said.last)]
        prefix: Sequence[PathEntry] = ()
        anchor_path: Sequence[PathEntry] = ()
        if placement.base:
            prefix = await self._store.history.path(turn.namespace, turn.session, placement.base)
        if placement.rebase is not None:
            anchor = placement.rebase.anchor
            anchor_path = await self._store.history.path(turn.namespace, turn.session, anchor)
        found = await offload(weight_of(turn), respelled, talk, placement, prefix, anchor_path)
        return [Variant(chain, talk.messages[i].raw, talk.messages[i].digest) for i, chain in found]

    def _remember(self, turn: Turn, head: bytes, messages: Sequence[Message]) -> None:
        if not messages:
            # Instructions alone stand on no path.
            return
        self._spelled[head] = _spelling(turn.session, messages)
        self._spelled.move_to_end(head)
        if len(self._spelled) > REMEMBERED_PATHS:
            self._spelled.popitem(last=False)


class _Spelling(NamedTuple):
    """The newest exact bytes of a session's path: a digest of all but the last message, and its digest."""

    session: str
    before: bytes
    last: bytes


def _spelling(session: str, messages: Sequence[Message]) -> _Spelling:
    """The spelling of a list that is not empty."""
    before = hashlib.sha256(b"".join([message.digest for message in messages[:-1]])).digest()
    return _Spelling(session, before, messages[-1].digest)


def _opened(turn: Turn, variants: Sequence[Variant]) -> OpenExchange:
    placement, talk = turn.placement, turn.conversation
    carried, carried_digest = _digested(envelope_of(turn.request))
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
        full_history=not turn.is_delta and turn.conversation.is_history,
        idempotency_key=turn.incoming.header(b"idempotency-key"),
        started_at=turn.started_at,
        takes_name=turn.takes_name,
        continues=not turn.is_new,
        appends=turn.is_delta and turn.request.previous is None,
        mark=turn.mark,
        said=len(placement.new) if turn.is_delta else len(talk.messages),
        carried=carried,
        carried_digest=carried_digest,
        client=_client_of(turn.incoming),
    )


def _digested(bodies: Sequence[bytes]) -> tuple[Sequence[tuple[bytes, bytes]], bytes | None]:
    """The bodies, each with its sha256, and their joint sha256; None for none."""
    each = [(body, hashlib.sha256(body).digest()) for body in bodies]
    return each, hashlib.sha256(b"".join([digest for _, digest in each])).digest() if each else None


def _used_by(turn: Turn, shown: ForwardedView, outcome: Outcome, entry: RequestEntry | None) -> int:
    """Tokens of the exchange; where the upstream has not counted, by our own count.

    Nothing where it refused or failed. A client that left what it had asked for before an answer began has
    used the prompt.
    """
    prompt = shown.tokens + outcome.hidden_tokens
    if outcome.status is None:
        has_left = entry is not None and entry.upstream is not None and entry.code is None
        return as_theirs(prompt, turn.ratio) if has_left else 0
    if not outcome.by_upstream or outcome.status >= HTTPStatus.MULTIPLE_CHOICES:
        return 0
    return used_by(outcome.usage, as_theirs(prompt, turn.ratio), as_theirs(outcome.answer_tokens, turn.ratio))


def _money(
    turn: Turn, shown: ForwardedView, outcome: Outcome, prices: Prices | None
) -> tuple[float | None, float | None]:
    """What the upstream asks for the exchange, and would have asked more with what was left out, cached.

    None where prices are unknown, or the upstream has not stated what a round of it took.
    """
    if not outcome.by_upstream:
        return 0.0, 0.0
    if prices is None:
        return None, None
    usage, earlier = outcome.usage, outcome.hidden.usages if outcome.hidden else ()
    if earlier and usage.completion_tokens is not None:
        # The client's answer states the completion tokens of all rounds.
        hidden = sum(each.completion_tokens or 0 for each in earlier)
        usage = replace(usage, completion_tokens=max(0, usage.completion_tokens - hidden))
    costs = [price(each, prices) for each in (usage, *earlier)]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        return None, None
    sent, prompt = shown.tokens + outcome.hidden_tokens, usage.prompt_tokens or 0
    left_out = round(max(0, turn.tokens - sent) * prompt / sent) if sent else 0
    cached = min(usage.cached_tokens or 0, prompt) + left_out
    whole = price(replace(usage, prompt_tokens=prompt + left_out, cached_tokens=cached), prices)
    return sum(known), (whole or 0.0) - known[0]


def _client_of(incoming: Incoming) -> str | None:
    named = program_of(incoming.headers)
    return printable(named, _CLIENT_CHARS) if named else None


def _sent(turn: Turn, shown: ForwardedView) -> tuple[bytes, ...]:
    """What the upstream was sent beside the messages; empty if it is what the client's request carried."""
    request = turn.request
    if shown.has_our_tools:
        return envelope_of(request, [*request.edits_beside, tools_edit(request)], is_spliced=True)
    if shown.is_original and not turn.is_delta:
        return envelope_of(request, request.own_edits) if request.own_edits else ()
    # Without edits, a list is put in its own place.
    is_list = request.body.startswith(b"[", request.messages_at[0])
    edits = request.edits_beside
    return envelope_of(request, edits, is_spliced=True) if edits or not is_list else ()


def _closed(turn: Turn, shown: ForwardedView, outcome: Outcome, entry: RequestEntry | None) -> CloseExchange:
    head, place, said = turn.conversation.head, turn.placement, turn.conversation.messages
    compaction = shown.view.compaction
    sent, sent_digest = _digested(_sent(turn, shown))
    return CloseExchange(
        namespace=turn.namespace,
        session=turn.session,
        exchange=turn.exchange,
        head=head,
        base=turn.placement.base,
        state=outcome.state,
        answers=[
            stored_message(
                continuing(said, answer),
                chain_of(head, answer.canonical),
                head,
                place.depth + 1,
                place.answers + 1,
            )
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
        # The last round's prompt, which is what the upstream's usage counts; nothing of what we refused.
        tokens_forwarded=0 if outcome.state == "refused" else shown.tokens + outcome.hidden_tokens,
        compaction=compaction.id if compaction else None,
        finished_at=time.time(),
        hidden=outcome.hidden,
        by_upstream=outcome.by_upstream,
        items=ids_in(outcome.answers[0].raw) if outcome.answers and turn.wire.keeps_answers else (),
        sent=sent,
        sent_digest=sent_digest,
        body_digest=entry.body_digest if entry else None,
        first_at=entry.first_byte_at if entry else None,
        prepared_seconds=entry.prepared_seconds if entry else None,
        waited_seconds=shown.waited_seconds,
        code=entry.code if entry else None,
        cause=entry.cause if entry else None,
        error=entry.error if entry else None,
    )


def stored_message(message: Message, chain: bytes, parent: bytes, depth: int, answers: int) -> StoredMessage:
    """The message as a row at `chain`; `depth` and `answers` include it."""
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
