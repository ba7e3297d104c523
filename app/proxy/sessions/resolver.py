"""Step 1 of an exchange: which session, which branch, how much of it is new.

Every decision is made by `app.core.history`; here its questions are carried to the store and back.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from app.core.history.append import Mode, Repeat
from app.core.history.branches import Mark
from app.core.history.carriers import Carriers, SessionName, session_name_of
from app.core.history.chain import conversation_of, seed_of
from app.core.history.conversation import Conversation
from app.core.history.known import Known, Placement
from app.core.history.message import Message
from app.core.history.resolve import (
    Lookups,
    NeedsPath,
    NeedsRelayed,
    NeedsTwins,
    RequestFacts,
    placement_of,
)
from app.core.wire.chat_request import ChatRequest
from app.core.wire.responses.instructions import stored_field
from app.core.wire.responses.telling import told_in
from app.errors import OtherWire
from app.proxy.compacting.calibrations import Calibrations
from app.proxy.incoming import Incoming
from app.proxy.offload import MESSAGE_WEIGHT, offload
from app.proxy.sessions.beside import Beside
from app.proxy.sessions.delta import Deltas, Named
from app.proxy.sessions.reader import MessageReader
from app.proxy.sessions.underway import UnderWay
from app.proxy.turn import Turn
from app.storage.contract import Store
from app.storage.naming import AnsweredAs, NamedSession

# Names whose first request may still be on its way to the store.
REMEMBERED_NAMES = 1_000


class Resolver:
    """Turns a parsed request into a turn."""

    def __init__(
        self,
        store: Store,
        reader: MessageReader,
        deltas: Deltas,
        beside: Beside,
        carriers: Carriers,
        calibrations: Calibrations,
        new_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._reader = reader
        self._deltas = deltas
        self._beside = beside
        self._carriers = carriers
        self._calibrations = calibrations
        self._new_id = new_id
        self._given: OrderedDict[tuple[str, str], str] = OrderedDict()
        self.under_way = UnderWay()

    def has_accepted(self, model: str, raw: bytes) -> bool:
        """True when a message of these bytes need not be searched for repeated keys again."""
        return self._reader.has_accepted(model, raw)

    async def turn_of(
        self, namespace: str, incoming: Incoming, request: ChatRequest, name: SessionName | None
    ) -> Turn:
        """The resolved request. RequestError when its headers or messages cannot be what they claim."""
        row = await self._store.named(namespace, name.value) if name else None
        repeats = await self._repeats(namespace, incoming)
        named = Named(name, row, Repeat(is_retry(incoming), _head_in(row, repeats)))
        before = await self._before(namespace, request)
        mode, talk = await self._read_as(namespace, incoming, request, named, before)
        instructions = (*await self._field_of(request), *talk.preamble)
        facts = RequestFacts(
            preamble=preamble_digest(instructions),
            named=name is not None or before is not None,
            session=_continued(before, row, mode),
            retry=named.repeat.retry,
            repeats=repeats,
        )
        fixed_tokens = await self._fixed_tokens(namespace, request)
        # Of what goes on with a conversation nothing is awaited between this and the return: the caller marks
        # the place as taken.
        placement, mark = await self._placed(namespace, incoming, request, talk, facts)
        return Turn(
            namespace=namespace,
            incoming=incoming,
            request=request,
            conversation=talk,
            placement=placement,
            session=placement.session or self._session_id(namespace, name, row),
            exchange=incoming.ident or self._new_id(),
            external_id=name.value if name and placement.session is None else None,
            takes_name=placement.session is None and _is_name_taken(row),
            mode=mode,
            instructions=instructions,
            fixed_tokens=fixed_tokens,
            started_at=time.time(),
            ratio=self._calibrations.ratio_of(namespace, request.model),
            carrier=name.carrier if name else "",
            mark=mark,
            goes_on_unseen=bool(before and before.has_hidden),
            begins_unseen=before.begins_unseen if before else request.previous is not None,
        )

    async def _read_as(
        self,
        namespace: str,
        incoming: Incoming,
        request: ChatRequest,
        named: Named,
        before: AnsweredAs | None,
    ) -> tuple[Mode, Conversation]:
        """How the request is read, and the whole conversation then, as its own wire tells it."""
        messages = await self._read(request)
        sent = await offload(MESSAGE_WEIGHT * len(messages), conversation_of, messages, seed_of(namespace))
        if before is not None:
            mode, talk = await self._deltas.behind(namespace, before, sent, request.model)
        else:
            mode, talk = await self._deltas.read(namespace, incoming, sent, named, request.model)
        if mode != "append":
            return mode, talk
        return mode, await offload(MESSAGE_WEIGHT * len(talk.messages), _told_on, request, talk)

    def erased(self, namespace: str, session: str) -> None:
        """The session was erased: its id is given to nobody again."""
        del namespace
        for name in [name for name, given in self._given.items() if given == session]:
            del self._given[name]

    @asynccontextmanager
    async def in_turn(
        self, namespace: str, incoming: Incoming, request: ChatRequest
    ) -> AsyncIterator[SessionName | None]:
        """The session's name; while it lasts, no other append to the session of that name goes on."""
        name = self._name(incoming, request)
        messages = await self._read(request) if name else ()
        async with self._deltas.in_turn(namespace, incoming, name, messages):
            yield name

    async def _field_of(self, request: ChatRequest) -> Sequence[Message]:
        """What the request says beside its messages, as it is stored."""
        raws = [stored_field(request.instructions)] if request.instructions is not None else []
        return await self._reader.read_stored(raws, request.model)

    async def _fixed_tokens(self, namespace: str, request: ChatRequest) -> int:
        counted = self._calibrations.fixed_tokens
        return await offload(_schema_weight(request), counted, namespace, request)

    async def _read(self, request: ChatRequest) -> Sequence[Message]:
        return await self._reader.read(request.message_spans, request.model)

    def _name(self, incoming: Incoming, request: ChatRequest) -> SessionName | None:
        wanted = (*self._carriers.body_keys, "metadata")
        return session_name_of(
            incoming.headers, incoming.path_session, request.members(wanted), self._carriers
        )

    async def _before(self, namespace: str, request: ChatRequest) -> AnsweredAs | None:
        """The answer of ours that the request goes on from, by the upstream's id of it."""
        return await self._store.answered_as(namespace, request.previous) if request.previous else None

    async def _repeats(self, namespace: str, incoming: Incoming) -> tuple[str, bytes] | None:
        key = incoming.header(b"idempotency-key")
        return await self._store.exchange_of_key(namespace, key) if key else None

    async def _placed(
        self,
        namespace: str,
        incoming: Incoming,
        request: ChatRequest,
        talk: Conversation,
        facts: RequestFacts,
    ) -> tuple[Placement, Mark]:
        """Where the request belongs, and whether it stands beside a conversation there."""
        found = await self._found(namespace, talk, facts)
        if _is_compaction(incoming, request):
            return found, "client_compaction"
        return await self._beside.placed(namespace, talk, found, request.model, may_join=not facts.named)

    async def _found(self, namespace: str, talk: Conversation, facts: RequestFacts) -> Placement:
        known: Sequence[Known] = ()
        if not facts.named or facts.session is not None:
            known = await self._store.known(namespace, talk.chains, facts.session)
        lookups = Lookups(known)
        # Whoever repeats a request wants the place of the one that may still be under way.
        is_repeat = facts.named or facts.retry or facts.repeats is not None
        weight = MESSAGE_WEIGHT * len(talk.messages)
        while True:
            seen = lookups if is_repeat or not lookups.known else self._marked(lookups)
            placed = await offload(weight, placement_of, talk, facts, seen)
            if seen is not lookups and self._marked(lookups) != seen:
                # Another request was placed meanwhile.
                continue
            match placed:
                case NeedsTwins(chain):
                    twins = await self._store.known(namespace, [chain], None)
                    lookups = replace(lookups, twins=tuple(twins))
                case NeedsRelayed(canonicals, session):
                    rows = await self._store.relayed(namespace, canonicals, session)
                    lookups = replace(lookups, relayed=tuple(rows))
                case NeedsPath(session, chain):
                    path = await self._store.path(namespace, session, chain)
                    lookups = replace(lookups, path=tuple(path))
                case placement:
                    return placement

    def _marked(self, lookups: Lookups) -> Lookups:
        """As of this moment: others were placed while the store was asked."""
        marked = self.under_way.marked
        twins = lookups.twins if lookups.twins is None else marked(lookups.twins)
        return replace(lookups, known=marked(lookups.known), twins=twins)

    def _session_id(self, namespace: str, name: SessionName | None, row: NamedSession | None) -> str:
        """A new id; parallel first requests of one name are given the same one."""
        if name is None or row is not None:
            return self._new_id()
        given = self._given.setdefault((namespace, name.value), self._new_id())
        if len(self._given) > REMEMBERED_NAMES:
            self._given.popitem(last=False)
        return given


def _schema_weight(request: ChatRequest) -> int:
    """Of what is said beside the messages: counting a byte costs some eight times what reading it does."""
    return 8 * sum(len(raw or b"") for raw in (request.tools, request.response_format, request.instructions))


def _is_compaction(incoming: Incoming, request: ChatRequest) -> bool:
    """True for what the Responses API has for it."""
    return incoming.asks_for_compaction or request.trigger is not None


def is_retry(incoming: Incoming) -> bool:
    """True when the SDK says that it has sent this request before."""
    return (incoming.header(b"x-stainless-retry-count") or "0").strip() not in ("", "0")


def preamble_digest(preamble: Sequence[Message]) -> bytes:
    """Names the instructions of one request, byte for byte."""
    return hashlib.sha256(b"".join(message.digest for message in preamble)).digest()


def _is_name_taken(row: NamedSession | None) -> bool:
    return row is not None and row.external_id is not None


def _continued(before: AnsweredAs | None, row: NamedSession | None, mode: Mode) -> str | None:
    """The session that the request says it goes on in; None where it names none that is there."""
    if before is not None:
        return before.session
    return row.id if row is not None and mode != "new" else None


def _told_on(request: ChatRequest, talk: Conversation) -> Conversation:
    """The conversation as the request's wire tells it, where some of it was spoken on the other one.

    A message keeps the digest of what is stored: told otherwise, it is no other message. OtherWire for what
    has no form on this wire.
    """
    own = set(request.message_spans)
    is_items = request.wire == "responses"
    # An answer tells the wire: one of the Responses API is the array of its items.
    spoken = {m.raw.startswith(b"[") for m in talk.messages if m.role == "assistant" and m.raw not in own}
    if spoken == {is_items}:
        return talk

    def told(message: Message) -> Message:
        raw = message.raw if message.raw in own else told_in(message.raw, request.wire)
        if raw is None:
            raise OtherWire("This session was spoken on another API, and holds what has no form on this one.")
        return message if raw is message.raw else replace(message, raw=raw)

    return replace(talk, preamble=tuple(map(told, talk.preamble)), messages=tuple(map(told, talk.messages)))


def _head_in(row: NamedSession | None, repeats: tuple[str, bytes] | None) -> bytes | None:
    return repeats[1] if row and repeats and repeats[0] == row.id else None
