"""Requests that do not contain the whole conversation: only new messages (rules 9, 10), or references to
items.

A request that references items is the same conversation as one that contains them.
`palimpsest.core.wire.responses.items` and `palimpsest.core.history.append` decide; this module reads the
store, and serializes the appends to a session.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from palimpsest.core.history.append import (
    Mode,
    ModeFacts,
    NeedsTranscript,
    Repeat,
    appended_of,
    is_serialized,
    mode_of,
)
from palimpsest.core.history.message import Conversation, Message, chain_of, conversation_of, seed_of
from palimpsest.core.history.session_sources import SessionName
from palimpsest.core.wire.request import ChatRequest
from palimpsest.core.wire.responses.items import unique_item
from palimpsest.core.wire.responses.request import answer_with, messages_in, runs_with, with_items
from palimpsest.proxy.incoming import Incoming
from palimpsest.proxy.sessions.in_flight import InFlight
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.storage.exchanges import Exchanges
from palimpsest.storage.history import History, NamedSession, StoredResponse


class References:
    """Resolves references to items."""

    def __init__(self, exchanges: Exchanges, reader: MessageReader) -> None:
        self._exchanges = exchanges
        self._reader = reader

    async def resolved(self, namespace: str, request: ChatRequest) -> ChatRequest:
        """The request with the items that it references, as far as they are stored in this namespace.

        Other references stay as they are: to items that never passed through here, belong to another caller,
        were erased, or share their id with others none of which was given at this point.
        """
        idents = list(dict.fromkeys(request.references.values()))
        kept = await self._exchanges.answers_with(namespace, idents)
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
            (message,) = await self._reader.read_stored([raw], request.model)
            has_begun = has_begun or not message.is_instruction
            if has_begun:
                parent = chain_of(parent, message.canonical)
        return known_items

    async def _said_after(
        self, namespace: str, parent: bytes, wanted: Mapping[int, str]
    ) -> Mapping[int, bytes]:
        kept = await self._exchanges.answers_with(namespace, list(dict.fromkeys(wanted.values())), parent)
        items = ((at, unique_item(kept.get(ident, ()), ident)) for at, ident in wanted.items())
        return {at: item for at, item in items if item is not None}


_NOTHING = Conversation((), (), ())


@dataclass(frozen=True, slots=True)
class RequestedSession:
    """The session name of a request, the stored session, and whether the request is a retry."""

    name: SessionName | None
    row: NamedSession | None
    repeat: Repeat


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


# Requests that may wait for the previous turn of their session: no person types eight turns ahead (rule 10).
WAITING_APPENDS = 8


class Deltas:
    """Expands requests to the conversations that they stand for."""

    def __init__(
        self,
        history: History,
        reader: MessageReader,
        in_flight: InFlight,
        *,
        default_mode: Literal["append", "full", "detect"],
        transcript_bytes: int,
    ) -> None:
        self._history = history
        self._reader = reader
        self._default_mode: Literal["append", "full", "detect"] = default_mode
        self._transcripts = Transcripts(transcript_bytes)
        self._in_flight = in_flight

    async def read(
        self,
        namespace: str,
        incoming: Incoming,
        sent: Conversation,
        named: RequestedSession,
        model: str,
    ) -> tuple[Mode, Conversation]:
        """The mode of the request, and its whole conversation."""
        name, row = named.name, named.row
        facts = ModeFacts(
            header=incoming.header(b"x-session-mode"),
            default=self._default_mode,
            may_append=name is not None and name.may_append,
            exists=row is not None,
            full_history=row is not None and row.full_history,
            appends=row is not None and row.appends,
        )
        mode = mode_of(sent, facts, None)
        if mode == "full" or mode == "new":
            return mode, sent
        stored = await self._transcript(namespace, row, model)
        if isinstance(mode, NeedsTranscript):
            mode = mode_of(sent, facts, stored)
        if mode != "append":
            return "full", sent
        return mode, appended_of(stored, sent, named.repeat).conversation

    async def behind(
        self, namespace: str, answer: StoredResponse, sent: Conversation, model: str
    ) -> tuple[Mode, Conversation]:
        """As `read`, for a request that continues from a stored answer."""
        rows = await self._history.messages(namespace, answer.session, answer.chain)
        raws = await self._history.preamble(namespace, answer.session, answer.preamble)
        stored = await self._reader.read_stored([*messages_in(raws), *(row.body for row in rows)], model)
        return "append", conversation_of([*stored, *sent.preamble, *sent.messages], seed_of(namespace))

    @asynccontextmanager
    async def in_turn(
        self, namespace: str, incoming: Incoming, name: SessionName, messages: Sequence[Message]
    ) -> AsyncIterator[None]:
        """Serialize requests that may append to one session; Conflict when too many wait."""
        header = incoming.header(b"x-session-mode")
        waits = is_serialized(messages, header, self._default_mode)
        if not name.may_append or not waits:
            yield
            return
        async with self._in_flight.in_turn(f"{namespace}\0{name.value}", WAITING_APPENDS):
            yield

    def erased(self, namespace: str, session: str) -> None:
        """Forget what was read of an erased session."""
        self._transcripts.forget((namespace, session))

    async def _transcript(self, namespace: str, row: NamedSession | None, model: str) -> Conversation:
        """The default branch of the session with its instructions; empty for a new session."""
        heads = await self._history.heads(namespace, row.id) if row else ()
        if row is None or not heads:
            return _NOTHING
        head, place = heads[0], (namespace, row.id)
        known = self._transcripts.of(place, model, head.preamble)
        rows = await self._history.messages(namespace, row.id, head.chain, known.head if known else b"")
        if known is not None and rows and rows[0].chain == known.head:
            fresh = await self._reader.read_stored([row.body for row in rows[1:]], model)
            talk = known.talk.extended(fresh)
        else:
            raws = await self._history.preamble(namespace, row.id, head.preamble)
            bodies = [*messages_in(raws), *(row.body for row in rows)]
            # Rows of a rebased list are stored under other digests than those of this list.
            talk = conversation_of(await self._reader.read_stored(bodies, model), seed_of(namespace))
        self._transcripts.keep(place, Transcript(model, head.chain, head.preamble, talk))
        return talk
