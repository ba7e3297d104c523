"""What a replay needs of a session beside its messages, as events of its export: the turns, and the facts.

Facts that change (window, calibration, prices) are those known now; the store has no older ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate

from palimpsest.core.history.message import Message
from palimpsest.core.policy import Policy
from palimpsest.core.runtime.recorded_turns import (
    RecordedMemory,
    RecordedPin,
    RecordedTools,
    RecordedTurn,
    ReplayFacts,
    facts_event,
    turn_event,
)
from palimpsest.core.runtime.session_import import RecordedEvent
from palimpsest.core.sent_body import wire_of
from palimpsest.core.wire.compaction_items import MANAGEMENT, threshold_in
from palimpsest.core.wire.envelope import body_with
from palimpsest.core.wire.request import ChatRequest, RequestLimits
from palimpsest.core.wire.responses.request import messages_in
from palimpsest.errors import NotUnderstood
from palimpsest.proxy.archive import Place, ReadBranch
from palimpsest.proxy.compacting.context_loader import ModelFacts
from palimpsest.proxy.journal_rows import rows_of, text_of
from palimpsest.proxy.lookups.hidden_rounds import Replays
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.proxy.token_counts import PRIMING_TOKENS
from palimpsest.storage.exchange_log import NEWEST, LoggedExchange
from palimpsest.storage.store import Store

_PAGE = 1_000
# Stands for the messages where only what a request carried beside them is read.
_NO_MESSAGES = (b'{"role":"user","content":""}',)


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """The settings that facts are made of; see `ReplayFacts`. `counted_as` returns a name and an encoding."""

    policy_for: Callable[[str, str, bytes | None], Policy]
    counted_as: Callable[[str], tuple[str, str | None]]
    text_pins_share: float
    breaker_seconds: int


@dataclass(slots=True)
class _Session:
    """What is read of one session: its own settings, and sets of bodies that many turns share, by digest."""

    place: Place
    branch: ReadBranch
    own_settings: bytes | None
    sets: dict[bytes, Sequence[bytes]] = field(default_factory=dict)
    requests: dict[bytes, ChatRequest | None] = field(default_factory=dict)


class TurnRecords:
    """Reads a branch's turns."""

    def __init__(
        self, store: Store, reader: MessageReader, models: ModelFacts, replays: Replays, how: ReplaySettings
    ) -> None:
        self._store = store
        self._reader = reader
        self._models = models
        self._replays = replays
        self._how = how

    async def events(self, place: Place, branch: ReadBranch) -> list[RecordedEvent]:
        """The facts, then the turns whose last message is on the branch, oldest first. StoreError."""
        own, _ = await self._store.compactions.with_settings(place.namespace, place.row.id)
        session = _Session(place, branch, own)
        return [facts_event(await self._facts(session), place.row.updated_at), *await self._turns(session)]

    async def _facts(self, session: _Session) -> ReplayFacts:
        namespace, row, model = session.place.namespace, session.place.row, session.branch.model
        costs, prices = self._models.costs.of(model), await self._models.costs.known(model)
        name, encoding = self._how.counted_as(model)
        positions = {chain: at for at, chain in enumerate(session.branch.conversation.names)}
        pins = await self._store.history.pins(namespace, row.id)
        blocks, entries = await rows_of(self._store.journal, namespace, row.id)
        return ReplayFacts(
            policy=self._how.policy_for(row.id, model, session.own_settings),
            window=self._models.windows.known(model, namespace),
            ratio=self._models.calibrations.ratio_of(namespace, model),
            prices=prices,
            asks_model=costs.asks_model,
            cache_seconds=costs.cache_seconds,
            counted_as=name,
            encoding=encoding,
            text_pins_share=self._how.text_pins_share,
            breaker_seconds=self._how.breaker_seconds,
            pins=tuple(
                RecordedPin(positions[pin.chain], pin.created_at, pin.is_lifted)
                for pin in pins
                if pin.chain in positions
            ),
            memory=tuple(
                RecordedMemory(text_of(each), each.memory.created_at, is_block)
                for is_block, rows in ((True, blocks), (False, entries))
                for each in rows
            ),
        )

    async def _turns(self, session: _Session) -> list[RecordedEvent]:
        talk, place = session.branch.conversation, session.place
        positions = {chain: at for at, chain in enumerate(talk.names)}
        said = list(accumulate((message.tokens for message in talk.messages), initial=0))
        found, preamble = [], place.preamble
        for number, one in await self._exchanges(place):
            at = positions.get(one.head)
            if at is None or one.mark or one.tokens_full is None:
                continue
            instructions = await self._instructions(session, one)
            fixed = one.tokens_full - said[at + 1] - sum(each.tokens for each in instructions)
            request = await self._request(session, one)
            turn = RecordedTurn(
                n=number,
                messages=at + 1,
                model=one.model,
                fixed_tokens=max(PRIMING_TOKENS, fixed),
                started_at=one.started_at,
                finished_at=one.finished_at,
                max_output_tokens=request.max_output_tokens if request else None,
                compact_threshold=_threshold(request, await self._set(session, one.sent)),
                instructions=None
                if one.preamble == preamble
                else tuple(each.raw.decode() for each in instructions),
                tools=self._tools(session, request, fixed),
                compaction=one.compaction,
                tokens_sent=one.tokens_forwarded,
                prompt_tokens=one.prompt_tokens,
                cached_tokens=one.cached_tokens,
                written_tokens=one.written_tokens,
            )
            found.append(turn_event(turn))
            preamble = one.preamble
        return found

    async def _exchanges(self, place: Place) -> list[tuple[int, LoggedExchange]]:
        """All exchanges of the session, oldest first, with their numbers."""
        found: list[tuple[int, LoggedExchange]] = []
        before = NEWEST
        while page := await self._store.exchange_log.page(place.namespace, place.row.id, before, _PAGE):
            found += page
            before = page[-1][1].arrival
        return found[::-1]

    async def _instructions(self, session: _Session, one: LoggedExchange) -> tuple[Message, ...]:
        raws = messages_in(await self._set(session, one.preamble))
        return await self._reader.read_stored(raws, one.model)

    async def _request(self, session: _Session, one: LoggedExchange) -> ChatRequest | None:
        """What the request carried beside its messages; None where that was not kept."""
        carried = await self._set(session, one.carried)
        if not carried:
            return None
        key = one.carried or b""
        if key not in session.requests:
            body = body_with(carried, _NO_MESSAGES)
            with suppress(NotUnderstood):
                session.requests[key] = wire_of(carried).read_request(body, RequestLimits(), None)
        return session.requests.setdefault(key, None)

    async def _set(self, session: _Session, digest: bytes | None) -> Sequence[bytes]:
        if digest is None:
            return ()
        if digest not in session.sets:
            place = session.place
            found = await self._store.history.preamble(place.namespace, place.row.id, digest)
            session.sets[digest] = found
        return session.sets[digest]

    def _tools(self, session: _Session, request: ChatRequest | None, fixed_tokens: int) -> RecordedTools:
        if request is None:
            return RecordedTools()
        window = self._models.windows.known(request.model, session.place.namespace).tokens
        added = self._replays.offered_with(request, fixed_tokens, session.own_settings, window)
        return RecordedTools(added.schema_tokens, added.is_recorded, added.as_recorded, added.result_tokens)


def _threshold(request: ChatRequest | None, sent: Sequence[bytes]) -> int:
    """The client's compaction threshold; 0 if the upstream was sent it, and handled it itself."""
    was_kept = not sent or any(MANAGEMENT.encode() in piece for piece in sent)
    return 0 if request is None or was_kept else threshold_in(request.management)
