"""A conversation written for the store alone: texts stand for messages, digests are made from them."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from typing import Any

from palimpsest.core.history.branches import Mark
from palimpsest.core.history.stored_points import MessageState, Rebase
from palimpsest.core.recall.rounds.hidden import HiddenRounds
from palimpsest.core.wire.chat_answers import Usage
from palimpsest.storage.exchange_units import (
    CloseExchange,
    ExchangeState,
    OpenExchange,
    StoredMessage,
    Variant,
)
from palimpsest.storage.history import SessionRow
from palimpsest.storage.store import Store


def digest(*parts: bytes) -> bytes:
    return hashlib.sha256(b"\x1f".join(parts)).digest()


def canonical_of(body: bytes) -> bytes:
    return digest(b"canonical", body)


class Talk:
    """One client in one session. `list_of` gives the chains its list of texts would have."""

    def __init__(self, store: Store, namespace: str = "ns", session: str | None = None) -> None:
        self.store = store
        self.namespace = namespace
        self.session = session or uuid.uuid4().hex
        self.clock = 1000.0
        self.mark: Mark = ""

    def chains(self, bodies: Sequence[bytes]) -> list[bytes]:
        chain, chains = b"", []
        for body in bodies:
            chain = digest(self.namespace.encode(), chain, canonical_of(body))
            chains.append(chain)
        return chains

    def message(
        self,
        body: bytes,
        *,
        chain: bytes,
        parent: bytes,
        depth: int = 1,
        answers: int = 0,
        role: str = "user",
    ) -> StoredMessage:
        return StoredMessage(
            chain=chain,
            parent=parent,
            canonical=canonical_of(body),
            role=role,
            tokens=len(body) + 1,
            depth=depth,
            answers=answers,
            body=body,
            digest=hashlib.sha256(body).digest(),
        )

    async def asks(self, bodies: Sequence[bytes], stored: int = 0, **more: Any) -> OpenExchange:
        """The client sends `bodies`; the first `stored` of them are stored already."""
        chains = self.chains(bodies)
        messages = []
        for i in range(stored, len(bodies)):
            parent = chains[i - 1] if i else b""
            messages.append(
                self.message(
                    bodies[i],
                    chain=chains[i],
                    parent=parent,
                    depth=i + 1,
                    answers=more.get("answers", stored // 2),
                    role="assistant" if i % 2 else "user",
                )
            )
        more.pop("answers", None)
        base = chains[stored - 1] if stored else b""
        return await self.opens(messages=messages, base=base, head=chains[-1], **more)

    def _now(self) -> float:
        self.clock += 1
        return self.clock

    async def opens(
        self,
        *,
        messages: Sequence[StoredMessage],
        base: bytes,
        head: bytes,
        rebase: Rebase | None = None,
        variants: Sequence[Variant] = (),
        preamble: Sequence[bytes] = (),
        external_id: str | None = None,
        idempotency_key: str | None = None,
        exchange: str | None = None,
        model: str = "m",
        takes_name: bool = False,
        continues: bool = False,
    ) -> OpenExchange:
        opened = OpenExchange(
            namespace=self.namespace,
            session=self.session,
            external_id=external_id,
            exchange=exchange or uuid.uuid4().hex,
            base=base,
            head=head,
            messages=messages,
            variants=variants,
            rebase=rebase,
            preamble=[(body, hashlib.sha256(body).digest()) for body in preamble],
            preamble_digest=digest(*preamble) if preamble else b"",
            model=model,
            found_by="new",
            mode="full",
            full_history=False,
            idempotency_key=idempotency_key,
            started_at=self._now(),
            takes_name=takes_name,
            continues=continues,
            mark=self.mark,
        )
        await self.store.exchanges.open(opened)
        return opened

    def answer(self, opened: OpenExchange, body: bytes, answers: int = 1) -> StoredMessage:
        chain = digest(self.namespace.encode(), opened.head, canonical_of(body))
        return self.message(
            body, chain=chain, parent=opened.head, depth=2 * answers, answers=answers, role="assistant"
        )

    async def hears(
        self,
        opened: OpenExchange,
        *answers: StoredMessage,
        state: ExchangeState = "done",
        answer_state: MessageState = "live",
        withdrawn: Sequence[bytes] = (),
        status: int | None = 200,
        hidden: HiddenRounds | None = None,
        items: Sequence[str] = (),
        response_id: str | None = None,
    ) -> CloseExchange:
        self.clock += 1
        closed = CloseExchange(
            namespace=self.namespace,
            session=self.session,
            exchange=opened.exchange,
            head=opened.head,
            base=opened.base,
            state=state,
            answers=answers,
            answer_state=answer_state,
            withdrawn=withdrawn,
            usage=Usage(prompt_tokens=7),
            finish_reason="stop",
            status=status,
            view="original",
            tokens_full=10,
            tokens_forwarded=10,
            compaction=None,
            finished_at=self.clock,
            hidden=hidden,
            items=items,
            response_id=response_id,
        )
        await self.store.exchanges.close(closed)
        return closed

    async def turns(self, count: int) -> list[bytes]:
        """`count` questions, each answered; the list as the client holds it afterwards."""
        said: list[bytes] = []
        for i in range(count):
            opened = await self.asks([*said, b"question %d" % i], stored=len(said), answers=i)
            answer = self.answer(opened, b"answer %d" % i, answers=i + 1)
            await self.hears(opened, answer)
            said += [b"question %d" % i, answer.body]
        return said

    async def row(self) -> SessionRow:
        found = await self.store.history.session(self.namespace, self.session)
        assert found is not None
        return found

    async def heads(self) -> list[bytes]:
        return [head.chain for head in await self.store.history.heads(self.namespace, self.session)]

    async def said(self, bodies: Sequence[bytes]) -> list[bytes]:
        """What the store has on the path that the list `bodies` names."""
        rows = await self.store.history.messages(self.namespace, self.session, self.chains(bodies)[-1])
        return [row.body for row in rows]


async def talked(store: Store, turns: int) -> tuple[Talk, list[bytes]]:
    """A conversation of so many turns, and the list as the client holds it."""
    talk = Talk(store)
    return talk, await talk.turns(turns)


async def answered(store: Store, **more: Any) -> tuple[Talk, OpenExchange, StoredMessage]:
    """A conversation of a question and its answer, which ends as `hears` says."""
    talk = Talk(store)
    opened = await talk.asks([b"q"])
    answer = talk.answer(opened, b"a")
    await talk.hears(opened, answer, **more)
    return talk, opened, answer
