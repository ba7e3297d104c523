"""What the model saw at a turn: an exchange's view and body, put together again from what is stored."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from palimpsest.core.budget.economy import Prices
from palimpsest.core.budget.upstream_counts import as_theirs
from palimpsest.core.history.message import Conversation
from palimpsest.core.recall.rounds.hidden import replayed, translated_rounds
from palimpsest.core.recall.tool_calls import NAMES
from palimpsest.core.view.aftermath import Aftermath, aftermath_of
from palimpsest.core.view.anatomy import (
    Category,
    Lost,
    SeenMessage,
    fates_of,
    lineage_of,
    lost_in,
    said_messages,
    shares_of,
)
from palimpsest.core.view.compaction import Compaction
from palimpsest.core.view.dialects import as_sent
from palimpsest.core.view.findings import Found, TurnCost, findings_of
from palimpsest.core.view.outcomes import View
from palimpsest.core.view.view import rendered
from palimpsest.core.wire.chat import CHAT
from palimpsest.core.wire.compaction_items import with_plain_summaries
from palimpsest.core.wire.envelope import body_with, holds_messages, tools_in
from palimpsest.core.wire.json_text import decoded
from palimpsest.core.wire.responses.request import RESPONSES
from palimpsest.proxy.archive import Archive, Place, ReadBranch, missing
from palimpsest.proxy.compacting.costs import ModelCosts
from palimpsest.proxy.compacting.windows import Windows
from palimpsest.proxy.jobs import MESSAGE_WEIGHT, offload
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.proxy.token_counts import Calibrations, ModelTokens
from palimpsest.storage.exchange_log import NEWEST, LoggedExchange
from palimpsest.storage.history import SessionRow
from palimpsest.storage.journal import StoredEvent
from palimpsest.storage.store import Store

# The newest turns and look-ups of a session that are read for its report.
_MOST_TURNS = 2_000
# The member that holds the messages, before their mark.
_LISTED = re.compile(rb'"(\w+)"\s*:\s*\x01')
_OUR_NAMES = tuple(f'"{name}"'.encode() for name in sorted(NAMES))


@dataclass(frozen=True, slots=True)
class Cost:
    """What an exchange cost, in the currency of the prices (published: US dollars).

    `saved` is an estimate: what the tokens left out would have cost if the cache had held them.
    """

    prompt: float
    completion: float
    saved: float

    @property
    def total(self) -> float:
        """Prompt and completion."""
        return self.prompt + self.completion


@dataclass(frozen=True, slots=True)
class SeenExchange:
    """An exchange with everything that was said and sent.

    `start`: the index of the first message that the request contained. `shown` are the messages of the
    prompt, hidden rounds of earlier turns included; `body` is the request as sent, None where what it carried
    beside its messages was not kept (records of older versions). `ratio`: the model's tokens for one of ours.
    """

    number: int
    exchange: LoggedExchange
    branch: ReadBranch
    talk: Conversation
    start: int
    view: View
    force: Compaction | None
    fates: Sequence[SeenMessage]
    shown: Sequence[bytes]
    body: bytes | None
    ratio: float

    def for_model(self, tokens: int) -> int:
        """Tokens of our count as the model counts them."""
        return as_theirs(tokens, self.ratio)

    @property
    def said(self) -> Sequence[bytes]:
        """The whole list that the view stands for: instructions, then every message."""
        return [message.raw for message in (*self.talk.preamble, *self.talk.messages)]


@dataclass(frozen=True, slots=True)
class Followed:
    """What followed a compaction from the turn `since` on, the first under it.

    `lookups`: how often the model asked recall meanwhile. `cost` is what the results of repeated calls cost
    once more in a prompt, an estimate; None without a price.
    """

    compaction: Compaction
    since: int
    turns: int
    after: Aftermath
    lookups: int
    cost: float | None


class ExchangeViews:
    """Reads exchanges of one caller; what does not exist is NotFound, as in `Archive`."""

    def __init__(
        self,
        store: Store,
        archive: Archive,
        reader: MessageReader,
        tokens: ModelTokens,
        calibrations: Calibrations,
        costs: ModelCosts,
        windows: Windows,
    ) -> None:
        self._store = store
        self._archive = archive
        self._reader = reader
        self._tokens = tokens
        self._calibrations = calibrations
        self._costs = costs
        self._windows = windows

    async def page(
        self, namespace: str, session: str, before: int, limit: int
    ) -> list[tuple[int, LoggedExchange]]:
        """The session's exchanges that arrived before `before`, newest first, with their numbers."""
        return await self._store.exchange_log.page(namespace, session, before, limit)

    async def logged(self, namespace: str, row: SessionRow, name: str) -> tuple[int, LoggedExchange]:
        """The exchange with this number in its session, from 1, or with this id."""
        found = await self._store.exchange_log.one(namespace, row.id, name)
        if found is None:
            raise missing()
        return found

    async def seen(self, namespace: str, row: SessionRow, name: str) -> SeenExchange:
        """The exchange with its view and body. NotFound also when the session is erased meanwhile."""
        number, exchange = await self.logged(namespace, row, name)
        place = Place(namespace, row, exchange.head, exchange.preamble, False)
        branch = await self._archive.branch(place, ())
        if exchange.head and not branch.conversation.messages:
            raise missing()
        talk = await self._as_spelled(namespace, row.id, branch.conversation, exchange)
        made = [stored.compaction for stored in await self._store.compactions.of_session(namespace, row.id)]
        force = next((one for one in made if one.id == exchange.compaction), None)
        weight = MESSAGE_WEIGHT * len(talk.messages)
        count_text = self._tokens.counter_of(exchange.model).count_text
        view = await offload(weight, rendered, talk, force, count_text)
        fates = await offload(weight, fates_of, talk, view, lineage_of(force, made))
        carried = await self._set(namespace, row.id, exchange.carried)
        sent = await self._set(namespace, row.id, exchange.sent) or carried
        shown = await self._shown(namespace, row.id, talk, as_sent(view), sent)
        start = said_messages(talk, exchange.said)[1]
        body = await offload(sum(map(len, shown)), _body, sent, shown) if sent else None
        ratio = self.ratio_of(namespace, exchange)
        return SeenExchange(number, exchange, branch, talk, start, view, force, fates, shown, body, ratio)

    def ratio_of(self, namespace: str, exchange: LoggedExchange) -> float:
        """The model's tokens for one of ours, by the upstream's own count of this prompt if it stated one."""
        if exchange.prompt_tokens and exchange.tokens_forwarded:
            return exchange.prompt_tokens / exchange.tokens_forwarded
        return self._calibrations.ratio_of(namespace, exchange.model)

    async def cost_of(self, namespace: str, exchange: LoggedExchange) -> Cost | None:
        """What it cost; None when the model's prices, or its tokens, are unknown."""
        prices = await self._costs.known(exchange.model)
        if prices is None or exchange.prompt_tokens is None or exchange.completion_tokens is None:
            return None
        return cost_of(exchange, prices, self.ratio_of(namespace, exchange))

    def shares(self, seen: SeenExchange) -> dict[Category, int]:
        """Tokens of the prompt by what they are for, as the model counts; their sum is the prompt."""
        said = sum(part.tokens for part in seen.view.parts)
        fixed = max(0, (seen.exchange.tokens_forwarded or said) - said)
        count: Callable[[Mapping[str, Any]], int] = self._tokens.counter_of(seen.exchange.model).count_message
        ours = shares_of(seen.view.parts, fixed, count)
        return {category: seen.for_model(tokens) for category, tokens in ours.items()}

    async def lost(self, seen: SeenExchange) -> list[Lost]:
        """What folded messages say and the view does not."""
        weight = sum(len(message.raw) for message in seen.talk.messages)
        return await offload(weight, lost_in, seen.talk, seen.fates, seen.view.parts)

    async def followed(self, namespace: str, row: SessionRow) -> list[Followed]:
        """What followed each compaction of the session's default branch, oldest first."""
        place = await self._archive.place(namespace, row.id, None)
        talk = (await self._archive.branch(place, ())).conversation
        stored = await self._store.compactions.of_session(namespace, row.id)
        made = {one.compaction.id: one.compaction for one in stored}
        turns = await self.page(namespace, row.id, NEWEST, _MOST_TURNS)
        firsts = await offload(MESSAGE_WEIGHT * len(turns), _first_turns, turns[::-1], talk)
        recalled = await self._store.journal.events(namespace, row.id, 0, _MOST_TURNS, ["context_recalled"])
        found = []
        for at, (ident, number, arrival, start) in enumerate(firsts):
            _, later, until, end = (
                firsts[at + 1]
                if at + 1 < len(firsts)
                else (
                    "",
                    turns[0][0] + 1,
                    NEWEST,
                    len(talk.messages),
                )
            )
            if ident not in made:
                continue
            weight = MESSAGE_WEIGHT * len(talk.messages)
            after = await offload(weight, aftermath_of, talk, made[ident], start, end)
            lookups = sum(arrival <= event.seq < until and _is_models(event) for event in recalled)
            prices = await self._costs.known(row.model)
            ratio = self._calibrations.ratio_of(namespace, row.model)
            cost = None if prices is None else after.repeated_tokens * ratio * prices.input / 1e6
            found.append(Followed(made[ident], number, later - number, after, lookups, cost))
        return found

    async def findings(self, namespace: str, row: SessionRow) -> list[Found]:
        """What makes the session's default branch dearer than it need be; tokens as the model counts."""
        place = await self._archive.place(namespace, row.id, None)
        branch = await self._archive.branch(place, ())
        turns = (await self.page(namespace, row.id, NEWEST, _MOST_TURNS))[::-1]
        if not turns:
            return []
        costs = [
            TurnCost(number, one.started_at, one.prompt_tokens, one.cached_tokens) for number, one in turns
        ]
        carried = await self._set(namespace, row.id, turns[-1][1].carried)
        found = await offload(
            MESSAGE_WEIGHT * len(branch.conversation.messages),
            findings_of,
            branch.conversation,
            tools_in(carried),
            costs,
            self._windows.known(branch.model, namespace).tokens,
            self._costs.of(branch.model).cache_seconds,
            self._tokens.counter_of(branch.model).count_tools,
        )
        ratio = self._calibrations.ratio_of(namespace, branch.model)
        return [
            one if one.kind == "cold_cache" else replace(one, tokens=as_theirs(one.tokens, ratio))
            for one in found
        ]

    async def _as_spelled(
        self, namespace: str, session: str, talk: Conversation, exchange: LoggedExchange
    ) -> Conversation:
        """The conversation with each message as the client spelled it in this request."""
        spelled = await self._store.exchange_log.spellings(
            namespace, session, talk.names, exchange.started_at
        )
        if not spelled:
            return talk
        places = [at for at, name in enumerate(talk.names) if name in spelled]
        read = await self._reader.read_stored([spelled[talk.names[at]] for at in places], exchange.model)
        messages = list(talk.messages)
        for at, message in zip(places, read, strict=True):
            messages[at] = message
        return replace(talk, messages=tuple(messages))

    async def _set(self, namespace: str, session: str, digest: bytes | None) -> Sequence[bytes]:
        if digest is None:
            return ()
        return await self._store.history.preamble(namespace, session, digest)

    async def _shown(
        self, namespace: str, session: str, talk: Conversation, view: View, sent: Sequence[bytes]
    ) -> Sequence[bytes]:
        """The view's messages, with the hidden rounds of earlier turns where our tools were sent."""
        if view.compaction is None or not any(name in piece for piece in sent for name in _OUR_NAMES):
            return view.messages
        shown = {part.index for part in view.parts}
        answers = {
            talk.chains[at]: at
            for at, message in enumerate(talk.messages)
            if at in shown and message.role == "assistant"
        }
        found = await self._store.exchanges.hidden_rounds(namespace, session, list(answers))
        wire = RESPONSES if _listed_in(sent) == RESPONSES.listed else CHAT
        rounds = {answers[chain]: translated_rounds(hidden, wire) for chain, hidden in found.items()}
        return replayed(view, talk, {at: each for at, each in rounds.items() if each is not None})


def _first_turns(
    turns: Sequence[tuple[int, LoggedExchange]], talk: Conversation
) -> list[tuple[str, int, int, int]]:
    """The first turn of the branch under each compaction: its id, number, arrival and the messages before."""
    places = {name: at for at, name in enumerate(talk.names)}
    found: dict[str, tuple[str, int, int, int]] = {}
    for number, one in turns:
        if one.compaction is not None and one.compaction not in found and one.head in places:
            found[one.compaction] = one.compaction, number, one.arrival, places[one.head] + 1
    return list(found.values())


def _is_models(event: StoredEvent) -> bool:
    payload = decoded(event.event.payload)
    return isinstance(payload, dict) and payload.get("via") == "model"


def cost_of(exchange: LoggedExchange, prices: Prices, ratio: float) -> Cost:
    """The cost of an exchange whose tokens are known; prices are per million tokens."""
    cached, written = exchange.cached_tokens or 0, exchange.written_tokens or 0
    plain = max(0, (exchange.prompt_tokens or 0) - cached - written)
    prompt = plain * prices.input + cached * prices.cached + written * prices.written
    left_out = max(0, (exchange.tokens_full or 0) - (exchange.tokens_forwarded or 0)) * ratio
    return Cost(
        prompt / 1e6, (exchange.completion_tokens or 0) * prices.output / 1e6, left_out * prices.cached / 1e6
    )


def _listed_in(envelope: Sequence[bytes]) -> str:
    found = _LISTED.search(envelope[0])
    return found[1].decode() if found else ""


def _body(envelope: Sequence[bytes], shown: Sequence[bytes]) -> bytes:
    if holds_messages(envelope) and _listed_in(envelope) == RESPONSES.listed:
        shown = [with_plain_summaries(raw) for raw in shown]
    return body_with(envelope, shown)
