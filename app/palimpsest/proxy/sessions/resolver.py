"""Step 1 of an exchange: finds the session and branch of a request, and which of its messages are new.

`core/history` decides; this module answers its questions from the store. Two sessions with the same messages
so far are distinguished only by which of them has a request in flight; the store knows those at other
servers.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from palimpsest.core.history.append import Mode, Repeat
from palimpsest.core.history.branches import Mark
from palimpsest.core.history.message import Conversation, Message, conversation_of, seed_of
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
from palimpsest.core.wire.responses.request import stored_field
from palimpsest.errors import OtherWire
from palimpsest.proxy.incoming import Incoming
from palimpsest.proxy.jobs import MESSAGE_WEIGHT, offload
from palimpsest.proxy.sessions.delta import Deltas, RequestedSession
from palimpsest.proxy.sessions.in_flight import InFlight
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.proxy.sessions.side_requests import SideRequests
from palimpsest.proxy.token_counts import Calibrations
from palimpsest.proxy.turn import Turn
from palimpsest.storage.history import NamedSession, StoredResponse
from palimpsest.storage.store import Store


class Resolver:
    """Resolves parsed requests to turns."""

    def __init__(
        self,
        store: Store,
        reader: MessageReader,
        deltas: Deltas,
        beside: SideRequests,
        sources: SessionSources,
        calibrations: Calibrations,
        new_id: Callable[[], str],
        in_flight: InFlight,
    ) -> None:
        self._store = store
        self._reader = reader
        self._deltas = deltas
        self._beside = beside
        self._sources = sources
        self._calibrations = calibrations
        self._new_id = new_id
        self.in_flight = in_flight

    def unaccepted(self, model: str, raws: Sequence[bytes]) -> Sequence[bytes]:
        """Those of the messages that were not checked for repeated keys before."""
        return self._reader.unaccepted(model, raws)

    async def turn_of(
        self, namespace: str, incoming: Incoming, request: ChatRequest, name: SessionName | None
    ) -> Turn:
        """The resolved request. RequestError for invalid headers, or messages that do not fit the session."""
        row = await self._store.history.named(namespace, name.value) if name else None
        repeats = await self._repeats(namespace, incoming)
        named = RequestedSession(name, row, Repeat(is_retry(incoming), _head_in(row, repeats)))
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
        # For a continued conversation nothing is awaited from here to the return, so that the caller marks
        # the point as taken before another request is placed.
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
            continues_hidden=bool(before and before.has_hidden),
            begins_unseen=before.begins_unseen if before else request.previous is not None,
        )

    async def _read_as(
        self,
        namespace: str,
        incoming: Incoming,
        request: ChatRequest,
        named: RequestedSession,
        before: StoredResponse | None,
    ) -> tuple[Mode, Conversation]:
        """The mode of the request, and its whole conversation in the form of its wire."""
        messages = await self._read(request)
        sent = await offload(MESSAGE_WEIGHT * len(messages), conversation_of, messages, seed_of(namespace))
        if before is not None:
            mode, talk = await self._deltas.behind(namespace, before, sent, request.model)
        elif named.name is None and incoming.header(b"x-session-mode") is None:
            # Only a named session can be appended to.
            return "full", sent
        else:
            mode, talk = await self._deltas.read(namespace, incoming, sent, named, request.model)
        if mode != "append":
            return mode, talk
        return mode, await offload(MESSAGE_WEIGHT * len(talk.messages), _on_wire, request, talk)

    def erased(self, namespace: str, session: str) -> None:
        """Forget the id given to an erased session's name."""
        self._deltas.erased(namespace, session)
        self.in_flight.erased(session)

    @asynccontextmanager
    async def in_turn(
        self, namespace: str, incoming: Incoming, request: ChatRequest
    ) -> AsyncIterator[SessionName | None]:
        """The session name of the request; appends to that session wait until the block ends."""
        name = self._name(incoming, request)
        if name is None:
            yield None
            return
        messages = await self._read(request)
        async with self._deltas.in_turn(namespace, incoming, name, messages):
            yield name

    async def _field_of(self, request: ChatRequest) -> Sequence[Message]:
        """The request's `instructions` field as a stored message."""
        raws = [stored_field(request.instructions)] if request.instructions is not None else []
        return await self._reader.read_stored(raws, request.model)

    async def _fixed_tokens(self, namespace: str, request: ChatRequest) -> int:
        counted = self._calibrations.fixed_tokens
        return await offload(_schema_weight(request), counted, namespace, request)

    async def _read(self, request: ChatRequest) -> Sequence[Message]:
        return await self._reader.read(request.message_spans, request.model)

    def _name(self, incoming: Incoming, request: ChatRequest) -> SessionName | None:
        wanted = (*self._sources.body_keys, "metadata")
        return session_name_of(
            incoming.headers, incoming.path_session, request.members(wanted), self._sources
        )

    async def _before(self, namespace: str, request: ChatRequest) -> StoredResponse | None:
        """The stored answer that the request continues from, by the upstream's id."""
        return await self._store.history.response(namespace, request.previous) if request.previous else None

    async def _repeats(self, namespace: str, incoming: Incoming) -> tuple[str, bytes] | None:
        key = incoming.header(b"idempotency-key")
        return await self._store.exchanges.of_key(namespace, key) if key else None

    async def _placed(
        self,
        namespace: str,
        incoming: Incoming,
        request: ChatRequest,
        talk: Conversation,
        facts: RequestFacts,
    ) -> tuple[Placement, Mark]:
        """The placement of the request, and its mark if it is a side request."""
        found = await self._found(namespace, talk, facts)
        if _is_compaction(incoming, request):
            return found, "client_compaction"
        return await self._beside.placed(namespace, talk, found, time.time(), may_join=not facts.named)

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
                    return placement

    def _marked(self, lookups: Lookups) -> Lookups:
        """The lookups with points taken by now: other requests were placed while the store was read."""
        marked = self.in_flight.marked
        twins = lookups.twins if lookups.twins is None else marked(lookups.twins)
        known = marked(lookups.known)
        if known is lookups.known and twins is lookups.twins:
            return lookups
        return replace(lookups, known=known, twins=twins)

    def _session_id(self, namespace: str, name: SessionName | None, row: NamedSession | None) -> str:
        """A new id; parallel first requests with one name get the same one."""
        if name is None or row is not None:
            return self._new_id()
        return self.in_flight.id_of(namespace, name.value, self._new_id)


def _schema_weight(request: ChatRequest) -> int:
    """The weight of what stands beside the messages: counting a byte costs eight times reading it."""
    return 8 * sum(
        [len(raw or b"") for raw in (request.tools, request.response_format, request.instructions)]
    )


def _is_compaction(incoming: Incoming, request: ChatRequest) -> bool:
    """True for a compaction request of the Responses API."""
    return incoming.asks_for_compaction or request.trigger is not None


def is_retry(incoming: Incoming) -> bool:
    """True when the SDK's header says that the request is a retry."""
    return (incoming.header(b"x-stainless-retry-count") or "0").strip() not in ("", "0")


def preamble_digest(preamble: Sequence[Message]) -> bytes:
    """A digest of the exact bytes of a request's instructions."""
    return hashlib.sha256(b"".join([message.digest for message in preamble])).digest()


def _is_name_taken(row: NamedSession | None) -> bool:
    return row is not None and row.external_id is not None


def _continued(before: StoredResponse | None, row: NamedSession | None, mode: Mode) -> str | None:
    """The stored session that the request names, by an answer or by name; None without one."""
    if before is not None:
        return before.session
    return row.id if row is not None and mode != "new" else None


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


def _head_in(row: NamedSession | None, repeats: tuple[str, bytes] | None) -> bytes | None:
    return repeats[1] if row and repeats and repeats[0] == row.id else None
