"""What a compaction did, from what is stored: what it folded, what its text cost, and what followed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from palimpsest.core.budget.prices import dollars_of
from palimpsest.core.history.message import Conversation
from palimpsest.core.summary.line_sources import SummaryLine, lines_of
from palimpsest.core.text.message_text import text_with_calls
from palimpsest.core.view.aftermath import Aftermath, aftermath_of
from palimpsest.core.view.compaction import Compaction, context_id
from palimpsest.core.view.view import applies, cut_in, folded_in
from palimpsest.core.wire.json_text import decoded
from palimpsest.errors import NotFound
from palimpsest.proxy.archive import Archive, missing
from palimpsest.proxy.compacting.costs import ModelPrices
from palimpsest.proxy.exchange_views import MOST_TURNS, ExchangeViews, cost_of
from palimpsest.proxy.jobs import MESSAGE_WEIGHT, offload
from palimpsest.storage.compactions import StoredCompaction
from palimpsest.storage.exchange_log import NEWEST, LoggedExchange
from palimpsest.storage.history import SessionRow
from palimpsest.storage.store import Store


@dataclass(frozen=True, slots=True)
class Followed:
    """What followed a compaction from the turn `since` on, the first under it.

    `lookups`: how often the model asked recall meanwhile. Estimates, None without a price: `repeated_cost` is
    what the results of repeated calls cost once more in a prompt, `saved` what the tokens left out would have
    cost from the cache. `cost`: of its text, None where that is unknown. `waited_seconds`: how long its first
    turn waited for it, None where it did not.
    """

    compaction: Compaction
    since: int
    turns: int
    after: Aftermath
    lookups: int
    repeated_cost: float | None
    saved: float | None
    cost: float | None
    waited_seconds: float | None


@dataclass(frozen=True, slots=True)
class Folding:
    """A compaction with the messages that its summary stands for.

    `talk` is a branch on which it applies, None when there is none any more; `folded` are places in it, and
    those from `since` on were not folded before. The sources of `lines` are places in `talk`. `is_newest`: it
    is the session's newest one in force, which can be undone.
    """

    stored: StoredCompaction
    is_newest: bool
    talk: Conversation | None
    folded: Sequence[int]
    since: int
    lines: Sequence[SummaryLine]


@dataclass(frozen=True, slots=True)
class CompactionViews:
    """Reads compactions of one caller; what does not exist is NotFound, as in `Archive`."""

    store: Store
    archive: Archive
    exchanges: ExchangeViews
    prices: ModelPrices

    async def folding(self, namespace: str, row: SessionRow, name: str) -> Folding:
        """The session's compaction with this id."""
        every = await self.store.compactions.of_session(namespace, row.id)
        found = next((one for one in every if one.compaction.id == name), None)
        if found is None:
            raise missing()
        made, standing = found.compaction, [one for one in every if one.undone_at is None]
        is_newest = standing[-1:] == [found]
        before = next((one.compaction for one in every if one.compaction.id in made.parents[:1]), None)
        talk = await self._talk(namespace, row, made)
        if talk is None:
            lines = await offload(len(made.summary), lines_of, made.summary, [])
            return Folding(found, is_newest, None, (), 0, lines)
        weight = MESSAGE_WEIGHT * len(talk.messages) + len(made.summary)
        return await offload(weight, _folding, found, is_newest, before, talk)

    async def followed(self, namespace: str, row: SessionRow) -> list[Followed]:
        """What followed each compaction of the session's default branch, oldest first."""
        place = await self.archive.place(namespace, row.id, None)
        talk = (await self.archive.branch(place, ())).conversation
        stored = await self.store.compactions.of_session(namespace, row.id)
        made = {one.compaction.id: one.compaction for one in stored}
        turns = (await self.exchanges.page(namespace, row.id, NEWEST, MOST_TURNS))[::-1]
        weight = MESSAGE_WEIGHT * len(talk.messages)
        spans = await offload(weight + MESSAGE_WEIGHT * len(turns), _spans, turns, talk)
        recalled = await self.store.journal.events(namespace, row.id, 0, MOST_TURNS, ["context_recalled"])
        payloads = ((event.seq, decoded(event.payload)) for event in recalled)
        asked_at = [seq for seq, said in payloads if isinstance(said, dict) and said.get("via") == "model"]
        prices = await self.prices.known(row.model)
        found = []
        for span in spans:
            if (compaction := made.get(span.compaction)) is None:
                continue
            first, ratio = span.turns[0], self.exchanges.ratio_of(namespace, span.turns[0])
            after = await offload(weight, aftermath_of, talk, compaction, span.start, span.end)
            lookups = sum(first.arrival <= seq < span.until for seq in asked_at)
            under = [one for one in span.turns if one.compaction == compaction.id]
            found.append(
                Followed(
                    compaction=compaction,
                    since=span.number,
                    turns=len(span.turns),
                    after=after,
                    lookups=lookups,
                    repeated_cost=None
                    if prices is None
                    else after.repeated_tokens * ratio * prices.input / 1e6,
                    saved=None if prices is None else sum(cost_of(one, prices, ratio).saved for one in under),
                    cost=await self.cost_of(compaction),
                    waited_seconds=first.waited_seconds,
                )
            )
        return found

    async def cost_of(self, compaction: Compaction) -> float | None:
        """What the calls for its text cost; 0 where code wrote it, None where it is not known."""
        if compaction.author != "model":
            return 0.0
        prices, spent = await self.prices.known(compaction.model or ""), compaction.spent
        if prices is None or spent is None:
            return None
        return dollars_of(spent.prompt, spent.cached, 0, spent.completion, prices)

    async def _talk(self, namespace: str, row: SessionRow, made: Compaction) -> Conversation | None:
        """A branch on which the compaction applies: the default one, or the one that it was made on."""
        ends = [None, context_id(made.watermark)] if made.watermark else [None]
        for branch in ends:
            try:
                place = await self.archive.place(namespace, row.id, branch)
            except NotFound:
                continue
            talk = (await self.archive.branch(place, ())).conversation
            if applies(made, talk):
                return talk
        return None


@dataclass(frozen=True, slots=True)
class _Span:
    """The turns of a branch from the first under a compaction to the next compaction.

    `number` is the first one's; `until` the arrival of the one after them. `start` and `end`: the messages
    that they brought.
    """

    compaction: str
    number: int
    turns: Sequence[LoggedExchange]
    until: int
    start: int
    end: int


def _spans(turns: Sequence[tuple[int, LoggedExchange]], talk: Conversation) -> list[_Span]:
    """The spans of a session's turns (oldest first), in their order."""
    places = {name: at for at, name in enumerate(talk.names)}
    firsts: dict[str, int] = {}
    for at, (_, one) in enumerate(turns):
        if one.compaction is not None and one.head in places:
            firsts.setdefault(one.compaction, at)
    spans = []
    for at, end in pairwise([*firsts.values(), len(turns)]):
        (number, first), is_last = turns[at], end == len(turns)
        spans.append(
            _Span(
                compaction=first.compaction or "",
                number=number,
                turns=[one for _, one in turns[at:end]],
                until=NEWEST if is_last else turns[end][1].arrival,
                start=places[first.head] + 1,
                end=len(talk.messages) if is_last else places[turns[end][1].head] + 1,
            )
        )
    return spans


def _folding(
    stored: StoredCompaction, is_newest: bool, before: Compaction | None, talk: Conversation
) -> Folding:
    made = stored.compaction
    folded = folded_in(made, talk)
    lines = lines_of(made.summary, [text_with_calls(talk.messages[at]) for at in folded])
    lines = [replace(line, sources=tuple(folded[at] for at in line.sources)) for line in lines]
    since = cut_in(before, talk) if before is not None and applies(before, talk) else 0
    return Folding(stored, is_newest, talk, folded, since, lines)
