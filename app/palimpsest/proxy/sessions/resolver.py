"""Step 1 of an exchange: finds the session and branch of a request, and which of its messages are new.

`core/history` decides; this module answers its questions from the store. Two sessions with the same messages
so far are distinguished only by which of them has a request in flight; the store knows those at other
servers. Requests may leave out items that they only reference, and the transcript that they append to
(rules 9, 10): the same conversation as one that contains them.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from palimpsest.core.history.append import (
    Mode,
    ModeFacts,
    NeedsTranscript,
    Repeat,
    appended_of,
    is_serialized,
    mode_of,
)
from palimpsest.core.history.branches import Mark
from palimpsest.core.history.canonical import is_end_of
from palimpsest.core.history.message import Conversation, Message, chain_of, conversation_of, seed_of
from palimpsest.core.history.read import before_added_lines
from palimpsest.core.history.resolve import (
    Lookups,
    NeedsPath,
    NeedsRelayed,
    NeedsSessionsAt,
    RequestFacts,
    placement_of,
)
from palimpsest.core.history.session_sources import SessionName, SessionSources, session_name_of
from palimpsest.core.history.stored_points import Placement, StoredPoint
from palimpsest.core.wire.request import ChatRequest
from palimpsest.core.wire.responses.items import unique_item
from palimpsest.core.wire.responses.request import (
    answer_with,
    messages_in,
    runs_with,
    stored_field,
    with_items,
)
from palimpsest.errors import OtherWire
from palimpsest.proxy.incoming import Incoming
from palimpsest.proxy.jobs import MESSAGE_WEIGHT, offload
from palimpsest.proxy.model_facts import Calibrations
from palimpsest.proxy.sessions.in_flight import InFlight
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.proxy.sessions.side_requests import SideRequests
from palimpsest.proxy.turn import Turn
from palimpsest.settings.compacting import Sessions
from palimpsest.storage.exchanges import Exchanges
from palimpsest.storage.history import NamedSession, StoredResponse
from palimpsest.storage.store import Store


@dataclass(frozen=True, slots=True)
class References:
    """Resolves references to items."""

    exchanges: Exchanges
    reader: MessageReader

    async def resolved(self, namespace: str, request: ChatRequest) -> ChatRequest:
        """The request with the items that it references, as far as they are stored in this namespace.

        Other references stay as they are: to items that never passed through here, belong to another caller,
        were erased, or share their id with others none of which was given at this point.
        """
        idents = list(dict.fromkeys(request.references.values()))
        kept = await self.exchanges.answers_with(namespace, idents)
        only = {ident: unique_item(answers, ident) for ident, answers in kept.items()}
        found = {at: item for at, ident in request.references.items() if (item := only.get(ident))}
        shared = {at: ident for at, ident in request.references.items() if at not in found}
        if any(ident in kept for ident in shared.values()):
            found = await self._on_path(namespace, request, found, shared)
        return with_items(request, found) if found else request

    async def _on_path(
        self, namespace: str, request: ChatRequest, found: Mapping[int, bytes], shared: Mapping[int, str]
    ) -> dict[int, bytes]:
        """`found`, and those of `shared` at whose position an answer with such an item was given.

        Some servers reuse a few ids.
        """
        known_items, parent, has_begun = dict(found), seed_of(namespace), False
        for run, raw in list(runs_with(request, found)):
            if here := {at: shared[at] for at in run if at in shared}:
                known_items |= await self._said_after(namespace, parent, here)
                raw = answer_with(request, run, known_items)
            (message,) = await self.reader.read_stored([raw], request.model)
            has_begun = has_begun or not message.is_instruction
            if has_begun:
                parent = chain_of(parent, message.canonical)
        return known_items

    async def _said_after(
        self, namespace: str, parent: bytes, wanted: Mapping[int, str]
    ) -> Mapping[int, bytes]:
        kept = await self.exchanges.answers_with(namespace, list(dict.fromkeys(wanted.values())), parent)
        items = ((at, unique_item(kept.get(ident, ()), ident)) for at, ident in wanted.items())
        return {at: item for at, item in items if item is not None}


@dataclass(frozen=True, slots=True)
class Transcript:
    """A branch as it was read for a model; `head` and `preamble` are the digests of what is stored."""

    model: str
    head: bytes
    preamble: bytes
    talk: Conversation


class Transcripts:
    """The branches that were appended to last, so that an append reads only what is new.

    The messages of all of them take at most `most_bytes`, by their own bytes; a longer one is not kept.
    """

    def __init__(self, most_bytes: int) -> None:
        self._room = most_bytes
        self._kept: OrderedDict[tuple[str, str], tuple[Transcript, int]] = OrderedDict()
        self._held = 0

    def of(self, place: tuple[str, str], model: str, preamble: bytes) -> Transcript | None:
        """The branch read of the session at this place, with these instructions; None when it is not kept."""
        kept = self._kept.get(place)
        if kept is None or (kept[0].model, kept[0].preamble) != (model, preamble):
            return None
        return kept[0]

    def keep(self, place: tuple[str, str], transcript: Transcript) -> None:
        """Keep it in place of what was kept of the session."""
        self.forget(place)
        size = sum([len(message.raw) for message in transcript.talk.messages])
        if size > self._room:
            return
        self._kept[place] = transcript, size
        self._held += size
        while self._held > self._room:
            self._held -= self._kept.popitem(last=False)[1][1]

    def forget(self, place: tuple[str, str]) -> None:
        """Nothing is kept of the session."""
        if (kept := self._kept.pop(place, None)) is not None:
            self._held -= kept[1]


# Messages of a question and its answer.
_ANSWERED = 2
_NOTHING = Conversation((), (), ())
# Chats that begin alike, of which the newest are compared, and cut answers that are remembered.
_MOST_TWINS, _MOST_CUT = 16, 10_000
# Requests that may wait for the previous turn of their session: no person types eight turns ahead (rule 10).
WAITING_APPENDS = 8


class Resolver:
    """Resolves parsed requests to turns; those of new messages alone stand for the whole conversation."""

    def __init__(
        self,
        store: Store,
        reader: MessageReader,
        beside: SideRequests,
        how: Sessions,
        transcripts: Transcripts,
        calibrations: Calibrations,
        new_id: Callable[[], str],
        in_flight: InFlight,
    ) -> None:
        self._store = store
        self._reader = reader
        self._beside = beside
        self._sources = SessionSources(how.headers)
        self._default_mode = how.default_mode
        self._transcripts = transcripts
        self._calibrations = calibrations
        self._new_id = new_id
        self.in_flight = in_flight
        # Canonical digests of answers that clients cut, by the chain before and what they sent.
        self._cut: OrderedDict[tuple[bytes, bytes], bytes] = OrderedDict()

    def unaccepted(self, model: str, raws: Sequence[bytes]) -> Sequence[bytes]:
        """Those of the messages that were not checked for repeated keys before."""
        return self._reader.unaccepted(model, raws)

    async def turn_of(
        self, namespace: str, incoming: Incoming, request: ChatRequest, name: SessionName | None
    ) -> Turn:
        """The resolved request. RequestError for invalid headers, or messages that do not fit the session."""
        history, key = self._store.history, incoming.header(b"idempotency-key")
        row = await history.named(namespace, name.value) if name else None
        repeats = await self._store.exchanges.of_key(namespace, key) if key else None
        # The SDK's header says that the request is a retry.
        is_retry = (incoming.header(b"x-stainless-retry-count") or "0").strip() not in ("", "0")
        repeat = Repeat(is_retry, repeats[1] if row and repeats and repeats[0] == row.id else None)
        # The answer that it continues from, by the upstream's id.
        before = await history.response(namespace, request.previous) if request.previous else None
        mode, talk = await self._read_as(namespace, incoming, request, name, row, repeat, before)
        field = [stored_field(request.instructions)] if request.instructions is not None else []
        instructions = (*await self._reader.read_stored(field, request.model), *talk.preamble)
        named = row.id if row is not None and mode != "new" else None
        facts = RequestFacts(
            preamble=preamble_digest(instructions),
            named=name is not None or before is not None,
            session=before.session if before is not None else named,
            retry=is_retry,
            repeats=repeats,
        )
        beside = (request.tools, request.response_format, request.instructions)
        # Counting a byte costs eight times reading it.
        weight = 8 * sum([len(raw or b"") for raw in beside])
        fixed_tokens = await offload(weight, self._calibrations.fixed_tokens, namespace, request)
        # For a continued conversation nothing is awaited from here to the return, so that the caller marks
        # the point as taken before another request is placed.
        if self._cut:
            talk = self._with_cut(talk, seed_of(namespace))
        placement = await self._found(namespace, talk, facts)
        while any(talk.messages[new.index].role == "assistant" for new in placement.new):
            if not await self._finds_cut(namespace, talk, request.model, facts.session):
                break
            talk = self._with_cut(talk, seed_of(namespace))
            placement = await self._found(namespace, talk, facts)
        mark: Mark = "client_compaction"
        if not incoming.asks_for_compaction and request.trigger is None:
            may_join = not facts.named
            placement, mark = await self._beside.placed(
                namespace, talk, placement, time.time(), may_join=may_join
            )
        session = placement.session
        if session is None and name is not None and row is None:
            # Parallel first requests with one name get the same id.
            session = self.in_flight.id_of(namespace, name.value, self._new_id)
        return Turn(
            namespace=namespace,
            incoming=incoming,
            request=request,
            conversation=talk,
            placement=placement,
            session=session or self._new_id(),
            exchange=incoming.ident or self._new_id(),
            external_id=name.value if name and placement.session is None else None,
            takes_name=placement.session is None and row is not None and row.external_id is not None,
            mode=mode,
            instructions=instructions,
            fixed_tokens=fixed_tokens,
            started_at=time.time(),
            ratio=self._calibrations.ratio_of(namespace, request.model),
            carrier=name.carrier if name else "",
            mark=mark,
            continues_hidden=bool(before and before.has_hidden),
            begins_unseen=before.begins_unseen if before else request.previous is not None,
        )

    async def _read_as(
        self,
        namespace: str,
        incoming: Incoming,
        request: ChatRequest,
        name: SessionName | None,
        row: NamedSession | None,
        repeat: Repeat,
        before: StoredResponse | None,
    ) -> tuple[Mode, Conversation]:
        """The mode of the request, and its whole conversation in the form of its wire."""
        history, seed = self._store.history, seed_of(namespace)
        messages = await self._reader.read(request.message_spans, request.model)
        sent = await offload(MESSAGE_WEIGHT * len(messages), conversation_of, messages, seed)
        header = incoming.header(b"x-session-mode")
        if before is not None:
            rows = await history.messages(namespace, before.session, before.chain)
            raws = await history.preamble(namespace, before.session, before.preamble)
            bodies = [*messages_in(raws), *(each.body for each in rows)]
            stored = await self._reader.read_stored(bodies, request.model)
            talk = conversation_of([*stored, *sent.preamble, *sent.messages], seed)
        elif name is None and header is None:
            # Only a named session can be appended to.
            return "full", sent
        else:
            facts = ModeFacts(
                header=header,
                default=self._default_mode,
                may_append=name is not None and name.may_append,
                exists=row is not None,
                full_history=row is not None and row.full_history,
                appends=row is not None and row.appends,
            )
            mode = mode_of(sent, facts, None)
            if mode == "full" or mode == "new":
                return mode, sent
            known = await self._transcript(namespace, row, request.model)
            if isinstance(mode, NeedsTranscript):
                mode = mode_of(sent, facts, known)
            if mode != "append":
                return "full", sent
            talk = appended_of(known, sent, repeat).conversation
        return "append", await offload(MESSAGE_WEIGHT * len(talk.messages), _on_wire, request, talk)

    async def _transcript(self, namespace: str, row: NamedSession | None, model: str) -> Conversation:
        """The default branch of the session with its instructions; empty for a new session."""
        history = self._store.history
        heads = await history.heads(namespace, row.id) if row else ()
        if row is None or not heads:
            return _NOTHING
        head, place = heads[0], (namespace, row.id)
        known = self._transcripts.of(place, model, head.preamble)
        rows = await history.messages(namespace, row.id, head.chain, known.head if known else b"")
        if known is not None and rows and rows[0].chain == known.head:
            fresh = await self._reader.read_stored([each.body for each in rows[1:]], model)
            talk = known.talk.extended(fresh)
        else:
            raws = await history.preamble(namespace, row.id, head.preamble)
            bodies = [*messages_in(raws), *(each.body for each in rows)]
            # Rows of a rebased list are stored under other digests than those of this list.
            talk = conversation_of(await self._reader.read_stored(bodies, model), seed_of(namespace))
        self._transcripts.keep(place, Transcript(model, head.chain, head.preamble, talk))
        return talk

    def erased(self, namespace: str, session: str) -> None:
        """Forget what was read of an erased session, and the id given to its name."""
        self._transcripts.forget((namespace, session))
        self.in_flight.erased(session)

    @asynccontextmanager
    async def in_turn(
        self, namespace: str, incoming: Incoming, request: ChatRequest
    ) -> AsyncIterator[SessionName | None]:
        """The session name of the request; those that may append to one session wait until the block ends.

        Conflict when too many wait.
        """
        members = request.members((*self._sources.body_keys, "metadata"))
        name = session_name_of(incoming.headers, incoming.path_session, members, self._sources)
        if name is not None and name.may_append:
            messages = await self._reader.read(request.message_spans, request.model)
            if is_serialized(messages, incoming.header(b"x-session-mode"), self._default_mode):
                async with self.in_flight.in_turn(f"{namespace}\0{name.value}", WAITING_APPENDS):
                    yield name
                return
        yield name

    async def _found(self, namespace: str, talk: Conversation, facts: RequestFacts) -> Placement:
        known: Sequence[StoredPoint] = ()
        if not facts.named or facts.session is not None:
            known = await self._store.history.known(namespace, talk.chains, facts.session)
        lookups = Lookups(known)
        # A repeated request belongs where the first one is, which may still be in flight.
        is_repeat = facts.named or facts.retry or facts.repeats is not None
        weight = MESSAGE_WEIGHT * len(talk.messages)
        while True:
            may_be_taken = not is_repeat and lookups.known
            seen = self._marked(lookups) if may_be_taken else lookups
            placed = await offload(weight, placement_of, talk, facts, seen)
            if may_be_taken and self._marked(lookups) != seen:
                # Another request was placed meanwhile.
                continue
            match placed:
                case NeedsSessionsAt(chain):
                    twins = await self._store.history.known(namespace, [chain], None)
                    lookups = replace(lookups, twins=tuple(twins))
                case NeedsRelayed(canonicals, session):
                    rows = await self._store.history.relayed(namespace, canonicals, session)
                    lookups = replace(lookups, relayed=tuple(rows))
                case NeedsPath(session, chain):
                    path = await self._store.history.path(namespace, session, chain)
                    lookups = replace(lookups, path=tuple(path))
                case placement:
                    break
        if placement.found_by == "new" and (shorter := before_added_lines(talk, seed_of(namespace))):
            # The client dropped the answer, and added to its question what was wrong with it.
            points = await self._store.history.known(namespace, shorter, None)
            asked = {k.session for k in points if k.preamble == facts.preamble}
            if len(asked) == 1:
                heads = await self._store.history.heads(namespace, session := asked.pop())
                if all(head.depth <= _ANSWERED for head in heads):
                    return replace(placement, session=session, found_by="retry")
        return placement

    async def _finds_cut(self, namespace: str, talk: Conversation, model: str, session: str | None) -> bool:
        """True when the first unknown message is the end of the answer that is stored in its place.

        Clients cut what a model thinks before it answers, in more spellings than can be listed.
        """
        history = self._store.history
        known = await history.known(namespace, talk.chains, session)
        place = talk.position(known[0].chain) if known else None
        if place is None or place + 1 == len(talk.messages) or talk.messages[place + 1].role != "assistant":
            return False
        before, sent = talk.chains[place], talk.messages[place + 1]
        for point in known[:_MOST_TWINS]:
            for head in await history.heads(namespace, point.session):
                rows = await history.messages(namespace, point.session, head.chain, before)
                answers = [row.body for row in rows[1:2] if row.relayed and rows[0].chain == before]
                for stored in await self._reader.read_stored(answers, model):
                    if is_end_of(sent.fields, stored.fields):
                        self._cut[before, sent.digest] = stored.canonical
                        if len(self._cut) > _MOST_CUT:
                            self._cut.popitem(last=False)
                        return True
        return False

    def _with_cut(self, talk: Conversation, seed: bytes) -> Conversation:
        """The conversation with cut answers under the digests of the whole ones."""
        named: list[Message] = []
        chain = seed
        for message in talk.messages:
            whole = self._cut.get((chain, message.digest))
            named.append(message if whole is None else replace(message, canonical=whole))
            chain = chain_of(chain, named[-1].canonical)
        return conversation_of([*talk.preamble, *named], seed)

    def _marked(self, lookups: Lookups) -> Lookups:
        """The lookups with points taken by now: other requests were placed while the store was read."""
        marked = self.in_flight.marked
        twins = lookups.twins if lookups.twins is None else marked(lookups.twins)
        known = marked(lookups.known)
        if known is lookups.known and twins is lookups.twins:
            return lookups
        return replace(lookups, known=known, twins=twins)


def preamble_digest(preamble: Sequence[Message]) -> bytes:
    """A digest of the exact bytes of a request's instructions."""
    return hashlib.sha256(b"".join([message.digest for message in preamble])).digest()


def _on_wire(request: ChatRequest, talk: Conversation) -> Conversation:
    """The conversation in the form of the request's wire, if some of it is stored in the other one.

    A converted message keeps its stored digest: it is the same message. OtherWire if a message has no form on
    this wire.
    """
    own = set(request.message_spans)
    # The form of an answer shows its wire.
    answers = [m.raw for m in talk.messages if m.role == "assistant" and m.raw not in own]
    if answers and all(raw.startswith(request.wire.answer_start) for raw in answers):
        return talk

    def converted(message: Message) -> Message:
        raw = message.raw if message.raw in own else request.wire.translated(message.raw)
        if raw is None:
            raise OtherWire("This session was spoken on another API, and holds what has no form on this one.")
        return message if raw is message.raw else replace(message, raw=raw)

    return replace(
        talk, preamble=tuple(map(converted, talk.preamble)), messages=tuple(map(converted, talk.messages))
    )
