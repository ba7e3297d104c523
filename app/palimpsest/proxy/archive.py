"""Read access to what is stored of one caller, by public ids: sessions, branches, messages, exchanges.

Of a turn also what the model saw: its view and body; of a compaction what it folded, and what followed. What
does not exist and what belongs to another caller are the same NotFound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from palimpsest.core.budget.upstream_counts import as_theirs
from palimpsest.core.history.message import Conversation, Message, chains_of, seed_of
from palimpsest.core.recall.rounds.hidden import HiddenRounds
from palimpsest.core.recall.tool_results import chain_digits_of, compaction_of, session_of
from palimpsest.core.sent_body import Material, names_ours, sent_body, wire_of
from palimpsest.core.summary.line_sources import SummaryLine, lines_of
from palimpsest.core.text.message_text import text_with_calls
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
from palimpsest.core.view.compaction import Compaction, context_id
from palimpsest.core.view.dialects import as_sent
from palimpsest.core.view.findings import Aftermath, Found, TurnCost, aftermath_of, findings_of
from palimpsest.core.view.outcomes import View, ViewPart
from palimpsest.core.view.view import applies, cut_in, folded_in, kept_in
from palimpsest.core.wire.json_text import decoded
from palimpsest.core.wire.request import Wire, tools_in
from palimpsest.core.wire.responses.request import field_in, messages_in
from palimpsest.errors import InvalidParameter, NotFound
from palimpsest.proxy.incoming import Headers
from palimpsest.proxy.jobs import MESSAGE_WEIGHT, offload
from palimpsest.proxy.model_facts import PRIMING_TOKENS, Calibrations, ModelTokens, Windows
from palimpsest.proxy.quotas import Quota
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.proxy.turn import ReadBranch
from palimpsest.storage.exchange_log import NEWEST, LoggedExchange
from palimpsest.storage.exchanges import Exchanges
from palimpsest.storage.history import Head, MessageRow, SessionRow
from palimpsest.storage.journal import StoredCompaction
from palimpsest.storage.store import Store

# The newest request of a branch ended at most this many messages before its end.
_NEWEST = 8


@dataclass(frozen=True, slots=True)
class Place:
    """A branch of a session up to `chain` (empty: nothing stored). `preamble`: digest of its instructions."""

    namespace: str
    row: SessionRow
    chain: bytes
    preamble: bytes
    is_default: bool


@dataclass(frozen=True, slots=True)
class Archive:
    """Reads the store; every method is confined to the caller's namespace."""

    store: Store
    reader: MessageReader

    async def session(self, namespace: str, name: str) -> SessionRow:
        """The session by our id, by the client's name, or by its conversation id in tool results."""
        row = await session_named(self.store, namespace, name)
        if row is None:
            raise missing()
        return row

    async def branches(self, namespace: str, row: SessionRow) -> Sequence[Head]:
        """The heads of the session's branches, the default one first."""
        return await self.store.history.heads(namespace, row.id)

    async def place(self, namespace: str, name: str, branch: str | None) -> Place:
        """The default branch, or the one that ends at the head or message whose id begins with `branch`."""
        row = await self.session(namespace, name)
        heads = await self.store.history.heads(namespace, row.id)
        if branch is None:
            chain, preamble = (heads[0].chain, heads[0].preamble) if heads else (b"", b"")
            return Place(namespace, row, chain, preamble, True)
        digits = _digits(branch)
        found = [head for head in heads if head.chain.hex().startswith(digits)]
        if len(found) > 1:
            raise InvalidParameter("More than one branch begins so; give more digits.", param="branch")
        if found:
            return Place(namespace, row, found[0].chain, found[0].preamble, found[0] is heads[0])
        message = await self.message_in(namespace, row, branch)
        return await self.up_to(namespace, row, message.chain)

    async def up_to(self, namespace: str, row: SessionRow, chain: bytes) -> Place:
        """The branch up to this stored message, or to the end of a list that a client put together."""
        known = await self.store.history.known(namespace, [chain], row.id)
        return Place(namespace, row, chain, known[0].preamble if known else b"", False)

    async def preamble(self, place: Place) -> tuple[tuple[Message, ...], bytes | None]:
        """The branch's instructions: messages, and the JSON of the request's `instructions` field."""
        raws = await self.store.history.preamble(place.namespace, place.row.id, place.preamble)
        messages = await self.reader.read_stored(messages_in(raws), place.row.model)
        return messages, field_in(raws)

    async def transcript(self, place: Place) -> Sequence[MessageRow]:
        """Every message of the branch, including those that the client dropped later."""
        return await self.store.history.transcript(place.namespace, place.row.id, place.chain)

    async def hidden(
        self, namespace: str, session: str, chains: Sequence[bytes]
    ) -> Mapping[str, HiddenRounds]:
        """The hidden rounds by the id of the answer that they led to (rule 31)."""
        found = await self.store.exchanges.hidden_rounds(namespace, session, chains)
        return {context_id(chain): rounds for chain, rounds in found.items()}

    async def branch(self, place: Place, headers: Headers, quota: Quota | None = None) -> ReadBranch:
        """The branch as the conversation that a model is given.

        `headers` and `quota` are the caller's: what a model is asked is sent with them and counts against it.
        """
        rows = await self.store.history.messages(place.namespace, place.row.id, place.chain)
        chains = tuple(row.chain for row in rows)
        newest = (place.chain, *chains[:-_NEWEST:-1]) if rows else ()
        asked = await self.store.exchanges.finished(place.namespace, place.row.id, newest)
        model = asked.model if asked else place.row.model
        raws = await self.store.history.preamble(place.namespace, place.row.id, place.preamble)
        preamble = await self.reader.read_stored(messages_in(raws), model)
        field = [b'{"role":"system","content":%b}' % said for said in (field_in(raws),) if said is not None]
        messages = await self.reader.read_stored([row.body for row in rows], model)
        # As the client sends it: compactions refer to the digests of its list.
        sent = await offload(MESSAGE_WEIGHT * len(messages), chains_of, messages, seed_of(place.namespace))
        talk = Conversation(tuple(preamble), tuple(messages), sent, chains)
        # Of the newest request's prompt what is beside its messages, mostly tool schemas.
        fixed = PRIMING_TOKENS
        if asked is not None:
            at = talk.position(asked.head)
            said = (*talk.preamble, *(talk.messages if at is None else talk.messages[: at + 1]))
            fixed = max(fixed, asked.tokens_full - sum(message.tokens for message in said))
        stated = await self.reader.read_stored(field, model)
        return ReadBranch(place.namespace, place.row, talk, headers, quota, model, fixed, rows, stated)

    async def message(self, namespace: str, ident: str) -> tuple[str, MessageRow]:
        """The message with this public id, and a session that contains it."""
        digits = _digits(ident)
        found = await self.store.history.message(namespace, bytes.fromhex(digits[: len(digits) // 2 * 2]))
        if found is None or not found[1].chain.hex().startswith(digits):
            raise missing()
        return found

    async def summary(self, namespace: str, ident: str) -> tuple[str, StoredCompaction]:
        """The summary with this id, its own or its compaction's, and the session that contains it."""
        found = await self.store.compactions.get(namespace, compaction_of(ident))
        if found is None or found[1].compaction.kind != "message_removal":
            raise missing()
        return found

    async def message_in(self, namespace: str, row: SessionRow, ident: str) -> MessageRow:
        """The session's message with this id. Sessions with the same beginning share message ids."""
        owner, message = await self.message(namespace, ident)
        if owner == row.id:
            return message
        path = await self.store.history.messages(namespace, row.id, message.chain)
        if not path:
            raise missing()
        return path[-1]


async def session_named(store: Store, namespace: str, name: str) -> SessionRow | None:
    """The session with this name; a client's name takes precedence over one that only looks like our id."""
    row = await store.history.session(namespace, name)
    ident = session_of(name) if row is None else None
    return row if ident is None else await store.history.session(namespace, ident)


def missing() -> NotFound:
    """The error for what does not exist or belongs to another caller: the same message (rule 25)."""
    return NotFound("There is nothing here, or it is not yours.")


def _digits(ident: str) -> str:
    digits = chain_digits_of(ident)
    if digits is None:
        raise missing()
    return digits


# The newest turns of a session that are read for its findings and its report.
MOST_TURNS = 2_000


@dataclass(frozen=True, slots=True)
class SeenExchange:
    """An exchange with everything that was said and sent.

    `start`: the index of the first message that the request contained. `view` is as the upstream was sent it;
    `shown` are its messages, with hidden rounds of earlier turns, or those of the request alone where the
    upstream keeps the others. `body` is the request as sent, None where what it carried beside its messages
    was not kept (records of older versions), and where nothing was sent. `is_exact`: the body has the digest
    of the one that was sent; None when that is not known. `envelope`: what it carried
    beside its messages. `ratio`: the model's tokens for one of ours.
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
    is_exact: bool | None
    envelope: Sequence[bytes]
    ratio: float

    def for_model(self, tokens: int) -> int:
        """Tokens of our count as the model counts them."""
        return as_theirs(tokens, self.ratio)

    @property
    def said(self) -> Sequence[bytes]:
        """The whole list that the view stands for: instructions, then every message."""
        return [message.raw for message in (*self.talk.preamble, *self.talk.messages)]


@dataclass(frozen=True, slots=True)
class ExchangeViews:
    """Reads exchanges and compactions of one caller; what does not exist is NotFound, as in `Archive`."""

    store: Store
    archive: Archive
    reader: MessageReader
    tokens: ModelTokens
    calibrations: Calibrations
    windows: Windows

    async def page(
        self, namespace: str, session: str, before: int, limit: int
    ) -> tuple[list[tuple[int, LoggedExchange, float]], int | None]:
        """The session's exchanges that arrived before `before`, newest first.

        Each with its number and the model's tokens for one of ours. And where the next page begins, None on
        the last one.
        """
        found = await self.store.exchange_log.page(namespace, session, before, limit + 1)
        page = [(number, one, self.ratio_of(namespace, one)) for number, one in found[:limit]]
        return page, page[-1][1].arrival if len(found) > limit else None

    async def logged(self, namespace: str, row: SessionRow, name: str) -> tuple[int, LoggedExchange]:
        """The exchange with this number in its session, from 1, or with this id."""
        found = await self.store.exchange_log.one(namespace, row.id, name)
        if found is None:
            raise missing()
        return found

    async def seen(self, namespace: str, row: SessionRow, name: str) -> SeenExchange:
        """The exchange with its view and body. NotFound also when the session is erased meanwhile."""
        number, exchange = await self.logged(namespace, row, name)
        place = Place(namespace, row, exchange.head, exchange.preamble, False)
        branch = await self.archive.branch(place, ())
        if exchange.head and not branch.conversation.messages:
            raise missing()
        made = [stored.compaction for stored in await self.store.compactions.of_session(namespace, row.id)]
        if exchange.view is None and made:
            raise NotFound("What was sent at this turn is not known yet, or the proxy was killed meanwhile.")
        force = next((one for one in made if one.id == exchange.compaction), None)
        talk = branch.conversation
        carried = await self._set(namespace, row.id, exchange.carried)
        sent = await self._set(namespace, row.id, exchange.sent) or carried
        has_rounds = force is not None and names_ours(sent) and not names_ours(carried)
        where = self.store.exchanges, namespace, row.id
        material = Material(
            talk=talk,
            spelled=await self._spelled(namespace, row.id, talk, exchange),
            force=force,
            rounds=await rounds_shown(*where, talk, force, wire_of(sent)) if has_rounds else {},
            carried=carried,
            sent=sent,
            said=exchange.said,
            digest=exchange.body_digest,
            count_text=self.tokens.counter_of(exchange.model).count_text,
        )
        weight = MESSAGE_WEIGHT * len(talk.messages)
        rebuilt = await offload(weight, sent_body, material)
        why = "the request's instructions"
        stated = [ViewPart("preamble", None, one.raw, one.tokens, False, why) for one in branch.stated]
        fates = await offload(weight, fates_of, rebuilt.talk, rebuilt.plain, lineage_of(force, made))
        return SeenExchange(
            number=number,
            exchange=exchange,
            branch=branch,
            talk=rebuilt.talk,
            start=said_messages(rebuilt.talk, exchange.said)[1],
            view=replace(view := as_sent(rebuilt.plain), parts=(*stated, *view.parts)),
            force=force,
            fates=fates,
            shown=rebuilt.shown,
            body=None if exchange.state == "refused" else rebuilt.body,
            is_exact=rebuilt.is_exact,
            envelope=rebuilt.envelope,
            ratio=self.ratio_of(namespace, exchange),
        )

    def ratio_of(self, namespace: str, exchange: LoggedExchange) -> float:
        """The model's tokens for one of ours, by the upstream's own count of this prompt if it stated one."""
        counted, ours = exchange.prompt_tokens, exchange.tokens_forwarded
        return self.calibrations.ratio_in(namespace, exchange.model, counted, ours)

    def shares(self, seen: SeenExchange) -> dict[Category, int]:
        """Tokens of the prompt by what they are for, as the model counts; their sum is the prompt."""
        said = sum(part.tokens for part in seen.view.parts)
        fixed = max(0, (seen.exchange.tokens_forwarded or said) - said)
        count: Callable[[Mapping[str, Any]], int] = self.tokens.counter_of(seen.exchange.model).count_message
        ours = shares_of(seen.view.parts, fixed, count)
        tools = tools_in(seen.envelope)
        if len(seen.shown) + len(seen.branch.stated) > len(seen.view.parts) or seen.exchange.sent:
            # What is not tools are look-ups of this turn and of earlier ones, with their results.
            schemas = PRIMING_TOKENS + self.tokens.schema_tokens(seen.exchange.model, tools)
            if schemas < fixed:
                ours = {**ours, "tools": schemas, "lookups": fixed - schemas}
        if not tools and seen.envelope:
            ours["framing"] = ours.pop("tools", 0)
        return {category: seen.for_model(tokens) for category, tokens in ours.items() if tokens}

    async def lost(self, seen: SeenExchange) -> list[Lost]:
        """What folded messages say and the view does not."""
        weight = sum(len(message.raw) for message in seen.talk.messages)
        return await offload(weight, lost_in, seen.talk, seen.fates, seen.view.parts)

    async def findings(self, namespace: str, row: SessionRow) -> list[Found]:
        """What makes the session's default branch dearer than it need be; tokens as the model counts."""
        place = await self.archive.place(namespace, row.id, None)
        branch = await self.archive.branch(place, ())
        turns = (await self.store.exchange_log.page(namespace, row.id, NEWEST, MOST_TURNS))[::-1]
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
            self.windows.known(branch.model, namespace).tokens,
            self.tokens.counter_of(branch.model).count_tools,
        )
        ratio = self.calibrations.ratio_of(namespace, branch.model)
        return [
            one if one.kind == "cold_cache" else replace(one, tokens=as_theirs(one.tokens, ratio))
            for one in found
        ]

    async def _spelled(
        self, namespace: str, session: str, talk: Conversation, exchange: LoggedExchange
    ) -> Mapping[int, Sequence[Message]]:
        """Spellings of messages that the client has sent in several, by index; the likeliest first.

        That is the one that was new last by then; where new messages alone were sent, the stored one.
        """
        found = await self.store.exchange_log.spellings(namespace, session, talk.names)
        spelled: dict[int, Sequence[Message]] = {}
        for at, name in enumerate(talk.names):
            if name not in found:
                continue
            bodies = [body for _, body in found[name]]
            others = await self.reader.read_stored(bodies, exchange.model)
            known = sum(when <= exchange.started_at for when, _ in found[name])
            by_then = [talk.messages[at], *others[:known]]
            order = by_then if exchange.mode == "append" else by_then[::-1]
            spelled[at] = [*order, *others[known:]]
        return spelled

    async def _set(self, namespace: str, session: str, digest: bytes | None) -> Sequence[bytes]:
        if digest is None:
            return ()
        return await self.store.history.preamble(namespace, session, digest)

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

        def folding() -> Folding:
            folded = folded_in(made, talk)
            lines = [
                replace(line, sources=tuple(folded[at] for at in line.sources))
                for line in lines_of(made.summary, [text_with_calls(talk.messages[at]) for at in folded])
            ]
            since = cut_in(before, talk) if before is not None and applies(before, talk) else 0
            return Folding(found, is_newest, talk, folded, since, lines)

        return await offload(MESSAGE_WEIGHT * len(talk.messages) + len(made.summary), folding)

    async def followed(self, namespace: str, row: SessionRow) -> list[Followed]:
        """What followed each compaction of the session's default branch, oldest first."""
        place = await self.archive.place(namespace, row.id, None)
        talk = (await self.archive.branch(place, ())).conversation
        stored = await self.store.compactions.of_session(namespace, row.id)
        made = {one.compaction.id: one.compaction for one in stored}
        turns = (await self.store.exchange_log.page(namespace, row.id, NEWEST, MOST_TURNS))[::-1]
        weight = MESSAGE_WEIGHT * len(talk.messages)
        places = {name: at for at, name in enumerate(talk.names)}
        # The first turn under each compaction; what follows it ends before that of the next one.
        firsts: dict[str, int] = {}
        for at, (_, one) in enumerate(turns):
            if one.compaction is not None and one.head in places:
                firsts.setdefault(one.compaction, at)
        recalled = await self.store.journal.events(namespace, row.id, 0, MOST_TURNS, ["context_recalled"])
        payloads = ((event.seq, decoded(event.payload)) for event in recalled)
        asked_at = [seq for seq, said in payloads if isinstance(said, dict) and said.get("via") == "model"]
        found = []
        for at, end in pairwise([*firsts.values(), len(turns)]):
            (number, first), is_last = turns[at], end == len(turns)
            if (compaction := made.get(first.compaction or "")) is None:
                continue
            ratio = self.ratio_of(namespace, first)
            stop = len(talk.messages) if is_last else places[turns[end][1].head] + 1
            after = await offload(weight, aftermath_of, talk, compaction, places[first.head] + 1, stop)
            until = NEWEST if is_last else turns[end][1].arrival
            lookups = sum(first.arrival <= seq < until for seq in asked_at)
            saved = [one.saved for _, one in turns[at:end] if one.compaction == compaction.id]
            known = [one for one in saved if one is not None]
            found.append(
                Followed(
                    compaction=compaction,
                    since=number,
                    turns=end - at,
                    after=after,
                    lookups=lookups,
                    repeated_tokens=as_theirs(after.repeated_tokens, ratio),
                    saved=sum(known) if known else None,
                    waited_seconds=first.waited_seconds,
                )
            )
        return found

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


async def rounds_shown(
    exchanges: Exchanges,
    namespace: str,
    session: str,
    talk: Conversation,
    current: Compaction | None,
    wire: Wire,
) -> Mapping[int, HiddenRounds]:
    """The hidden rounds of the answers that `current` leaves in the view, in the form of `wire`.

    By the index of their answer; those without a form on that wire are left out. StoreError.
    """
    shown = (*kept_in(current, talk), *range(cut_in(current, talk), len(talk.messages)))
    answers = {talk.chains[index]: index for index in shown if talk.messages[index].role == "assistant"}
    found = await exchanges.hidden_rounds(namespace, session, list(answers)) if answers else {}
    rounds = {answers[chain]: hidden.translated(wire) for chain, hidden in found.items()}
    return {index: hidden for index, hidden in rounds.items() if hidden is not None}


@dataclass(frozen=True, slots=True)
class Followed:
    """What followed a compaction from the turn `since` on, the first under it.

    `lookups`: how often the model asked recall meanwhile. `repeated_tokens`: of the results of repeated
    calls, as the model counts. `saved`: what the tokens left out would have cost from the cache, None
    where no price was known. `waited_seconds`: how long its first turn waited for it, None where it did not.
    """

    compaction: Compaction
    since: int
    turns: int
    after: Aftermath
    lookups: int
    repeated_tokens: int
    saved: float | None
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
