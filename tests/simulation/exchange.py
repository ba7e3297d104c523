"""The steps of an exchange against a real store, without HTTP: resolve, open, answer, close.

Knows nothing of the habits of the client that speaks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Literal

import msgspec
from palimpsest.core.history.append import Mode, ModeFacts, NeedsTranscript, Repeat, appended_of, mode_of
from palimpsest.core.history.message import Conversation, Message, chain_of, conversation_of, seed_of
from palimpsest.core.history.read import read_message
from palimpsest.core.history.resolve import (
    Lookups,
    NeedsPath,
    NeedsRelayed,
    NeedsSessionsAt,
    RequestFacts,
    placement_of,
    respelled,
    withdrawn_of,
)
from palimpsest.core.history.stored_points import NewMessage, Placement
from palimpsest.core.wire.chat_answers import Usage
from palimpsest.storage.exchange_units import (
    CloseExchange,
    ExchangeState,
    OpenExchange,
    StoredMessage,
    Variant,
)
from palimpsest.storage.history import MessageRow, SessionRow
from palimpsest.storage.store import Store

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """What a client sends: messages as bytes, and the headers that matter here."""

    messages: Sequence[bytes]
    session: str | None = None
    mode: str | None = None
    retry: bool = False
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Answers:
    """What the upstream does: its messages (n of them), or a failure."""

    messages: Sequence[bytes] = ()
    state: ExchangeState = "done"


@dataclass(frozen=True, slots=True)
class Opened:
    """An exchange that has been recorded and not answered."""

    session: str
    exchange: str
    mode: Mode
    conversation: Conversation
    placement: Placement


@dataclass(slots=True)
class Proxy:
    """One namespace of a store, seen from the exchange."""

    store: Store
    namespace: str
    numbers: Any = field(default_factory=lambda: count(1))

    async def play(self, request: Request, answers: Answers) -> Opened:
        """A whole exchange."""
        opened = await self.open(request)
        await self.close(opened, answers)
        return opened

    async def open(self, request: Request) -> Opened:
        """Resolve and record: what happens before a byte goes upstream."""
        messages = tuple(read_message(raw, _tokens) for raw in request.messages)
        sent = conversation_of(messages, seed_of(self.namespace))
        row = await self._named(request.session)
        repeats = await self.store.exchanges.of_key(self.namespace, request.key) if request.key else None
        facts = RequestFacts(
            preamble=_preamble_digest(sent.preamble),
            named=request.session is not None,
            session=row.id if row else None,
            retry=request.retry,
            repeats=repeats,
        )
        mode, conversation = await self._read(request, sent, row, facts)
        if mode == "append":
            facts = replace(facts, preamble=_preamble_digest(conversation.preamble))
        placement, lookups = await self._placed(conversation, facts)
        opened = Opened(
            session=placement.session or self._id("session"),
            exchange=self._id("exchange"),
            mode=mode,
            conversation=conversation,
            placement=placement,
        )
        await self.store.exchanges.open(await self._opening(opened, request, sent, facts, lookups))
        return opened

    async def close(self, opened: Opened, answers: Answers) -> None:
        """Record how it ended: what happens before the client sees the end."""
        placement, head = opened.placement, opened.conversation.head
        messages = [read_message(raw, _tokens) for raw in answers.messages]
        refused = answers.state in ("rejected", "refused")
        await self.store.exchanges.close(
            CloseExchange(
                namespace=self.namespace,
                session=opened.session,
                exchange=opened.exchange,
                head=head,
                base=placement.base,
                state=answers.state,
                answers=[
                    _stored(
                        message,
                        NewMessage(
                            index=placement.depth,
                            chain=chain_of(head, message.canonical),
                            parent=head,
                            depth=placement.depth + 1,
                            answers=placement.answers + 1,
                        ),
                    )
                    for message in messages
                ],
                answer_state="incomplete" if answers.state == "incomplete" else "live",
                withdrawn=withdrawn_of(placement) if refused else (),
                usage=Usage(),
                finish_reason="stop" if answers.state == "done" else None,
                status=200 if answers.state == "done" else 500,
                view="original",
                tokens_full=0,
                tokens_forwarded=0,
                compaction=None,
                finished_at=0.0,
            )
        )

    async def sessions(self) -> Sequence[SessionRow]:
        return await self.store.history.sessions(self.namespace, 100, None)

    async def transcript(self, session: str) -> Sequence[MessageRow]:
        """The default branch, with what the client dropped on the way."""
        heads = await self.store.history.heads(self.namespace, session)
        return await self.store.history.transcript(self.namespace, session, heads[0].chain)

    async def default_list(self, session: str) -> list[bytes]:
        """The bodies of the default branch: the list the client held last."""
        heads = await self.store.history.heads(self.namespace, session)
        return [
            row.body for row in await self.store.history.messages(self.namespace, session, heads[0].chain)
        ]

    async def canonicals(self, opened: Opened) -> list[bytes]:
        """The stored path of a request, as digests of its messages."""
        path = await self.store.history.path(self.namespace, opened.session, opened.conversation.head)
        return [point.canonical for point in path]

    async def _named(self, name: str | None) -> SessionRow | None:
        return await self.store.history.session(self.namespace, name) if name else None

    async def _read(
        self, request: Request, sent: Conversation, row: SessionRow | None, facts: RequestFacts
    ) -> tuple[Mode, Conversation]:
        named = await self.store.history.named(self.namespace, request.session) if request.session else None
        asked = ModeFacts(
            header=request.mode,
            may_append=request.session is not None,
            exists=row is not None,
            full_history=row is not None and row.full_history,
            appends=named is not None and named.appends,
        )
        mode = mode_of(sent, asked, None)
        stored = await self._stored(row) if mode not in ("full", "new") else None
        if isinstance(mode, NeedsTranscript):
            mode = mode_of(sent, asked, stored)
            assert not isinstance(mode, NeedsTranscript)
        if mode != "append" or stored is None:
            return mode, sent
        head = facts.repeats[1] if facts.repeats and facts.repeats[0] == facts.session else None
        return mode, appended_of(stored, sent, Repeat(request.retry, head)).conversation

    async def _stored(self, row: SessionRow | None) -> Conversation:
        heads = await self.store.history.heads(self.namespace, row.id) if row else ()
        if not row or not heads:
            return Conversation((), (), ())
        preamble = await self.store.history.preamble(self.namespace, row.id, heads[0].preamble)
        rows = await self.store.history.messages(self.namespace, row.id, heads[0].chain)
        bodies = [*preamble, *(stored.body for stored in rows)]
        stored = conversation_of(tuple(read_message(raw, _tokens) for raw in bodies), seed_of(self.namespace))
        assert stored.head == heads[0].chain
        return stored

    async def _placed(self, conversation: Conversation, facts: RequestFacts) -> tuple[Placement, Lookups]:
        known = await self.store.history.known(self.namespace, conversation.chains, facts.session)
        lookups = Lookups(known)
        while True:
            match placement_of(conversation, facts, lookups):
                case Placement() as placement:
                    return placement, lookups
                case NeedsSessionsAt(chain):
                    twins = await self.store.history.known(self.namespace, [chain], None)
                    lookups = replace(lookups, twins=twins)
                case NeedsRelayed(canonicals, session):
                    relayed = await self.store.history.relayed(self.namespace, canonicals, session)
                    lookups = replace(lookups, relayed=relayed)
                case NeedsPath(session, chain):
                    path = await self.store.history.path(self.namespace, session, chain)
                    lookups = replace(lookups, path=path)

    async def _opening(
        self, opened: Opened, request: Request, sent: Conversation, facts: RequestFacts, lookups: Lookups
    ) -> OpenExchange:
        talk, placement = opened.conversation, opened.placement
        prefix = await self.store.history.path(self.namespace, opened.session, placement.base)
        other = respelled(talk, placement, prefix, lookups.path or ())
        return OpenExchange(
            namespace=self.namespace,
            session=opened.session,
            external_id=request.session,
            exchange=opened.exchange,
            base=placement.base,
            head=talk.head,
            messages=[_stored(talk.messages[new.index], new) for new in placement.new],
            variants=[Variant(at, talk.messages[i].raw, talk.messages[i].digest) for i, at in other],
            rebase=placement.rebase,
            preamble=[(message.raw, message.digest) for message in talk.preamble],
            preamble_digest=facts.preamble,
            model="scripted",
            found_by=placement.found_by,
            mode=opened.mode,
            full_history=bool(sent.preamble) or any(m.role == "assistant" for m in sent.messages),
            idempotency_key=request.key,
            started_at=0.0,
            appends=opened.mode == "append",
        )

    def _id(self, kind: Literal["session", "exchange"]) -> str:
        return f"{kind}-{self.namespace}-{next(self.numbers):06d}"


def encoded(message: Json) -> bytes:
    """A message as a client that writes plain JSON sends it."""
    return msgspec.json.encode(message)


def _stored(message: Message, new: NewMessage) -> StoredMessage:
    return StoredMessage(
        chain=new.chain,
        parent=new.parent,
        canonical=message.canonical,
        role=message.role,
        tokens=message.tokens,
        depth=new.depth,
        answers=new.answers,
        body=message.raw,
        digest=message.digest,
    )


def _preamble_digest(preamble: Sequence[Message]) -> bytes:
    return hashlib.sha256(b"".join(message.digest for message in preamble)).digest()


def _tokens(fields: Mapping[str, Any]) -> int:
    return len(fields)
