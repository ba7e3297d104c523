"""Reading back what is stored, for one caller: sessions, branches, messages by the id they are shown with.

Whatever is not there, or belongs to somebody else, is the same NotFound. Changes nothing; knows
nothing of HTTP nor of how views are made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.core.history.chain import chains_of, seed_of
from app.core.history.conversation import Conversation
from app.core.history.message import Message
from app.core.recall.rounds.hidden import HiddenRounds
from app.core.recall.tools.ids import chain_digits_of, compaction_of, session_of
from app.core.view.compaction import context_id
from app.core.wire.chat_request import Wire
from app.core.wire.responses.instructions import field_in, messages_in
from app.core.wire.responses.telling import told_in
from app.errors import InvalidParameter, NotFound
from app.proxy.compacting.model_tokens import PRIMING_TOKENS
from app.proxy.incoming import Headers
from app.proxy.offload import MESSAGE_WEIGHT, offload
from app.proxy.sessions.reader import MessageReader
from app.storage.contract import Head, MessageRow, SessionRow, Store, StoredCompaction
from app.storage.exchange.asked import Asked

# The newest request of a branch ended within so many messages of its end.
_NEWEST = 8


@dataclass(frozen=True, slots=True)
class Place:
    """A branch of a session up to `chain` (empty: nothing is stored). `preamble` names its instructions."""

    namespace: str
    row: SessionRow
    chain: bytes
    preamble: bytes
    is_default: bool


@dataclass(frozen=True, slots=True)
class Branch:
    """A stored branch, read: the subject of a view or a compaction that no request asks for.

    `fixed_tokens` are those of the newest request on it, whose answer limit nobody stored.
    """

    namespace: str
    row: SessionRow
    conversation: Conversation
    headers: Headers
    model: str
    fixed_tokens: int
    max_output_tokens: int | None = None
    tools: bytes | None = None

    @property
    def session(self) -> str:
        """Our id."""
        return self.row.id

    @property
    def wire(self) -> Wire:
        """The API that it speaks: of a branch spoken on both the one that has a form for all of it."""
        said = (message.raw for message in self.conversation.messages)
        return "chat" if all(told_in(raw, "chat") == raw for raw in said) else "responses"

    @property
    def tokens(self) -> int:
        """The whole prompt with nothing folded, in our count."""
        talk = self.conversation
        return self.fixed_tokens + sum(m.tokens for m in (*talk.preamble, *talk.messages))


class Archive:
    """One per application; every method takes the caller's namespace and sees nothing beyond it."""

    def __init__(self, store: Store, reader: MessageReader) -> None:
        self._store = store
        self._reader = reader

    async def session(self, namespace: str, name: str) -> SessionRow:
        """The session of our id, of the client's own name, or of the conversation's name in results."""
        row = await session_named(self._store, namespace, name)
        if row is None:
            raise missing()
        return row

    async def branches(self, namespace: str, row: SessionRow) -> Sequence[Head]:
        """The default one first."""
        return await self._store.heads(namespace, row.id)

    async def place(self, namespace: str, name: str, branch: str | None) -> Place:
        """The default branch, or the one up to a head or message whose id begins with `branch`."""
        row = await self.session(namespace, name)
        heads = await self._store.heads(namespace, row.id)
        if branch is None:
            return _at(namespace, row, heads[0], heads) if heads else Place(namespace, row, b"", b"", True)
        digits = _digits(branch)
        found = [head for head in heads if head.chain.hex().startswith(digits)]
        if len(found) > 1:
            raise InvalidParameter("More than one branch begins so; give more digits.", param="branch")
        if found:
            return _at(namespace, row, found[0], heads)
        message = await self.message_in(namespace, row, branch)
        known = await self._store.known(namespace, [message.chain], row.id)
        return Place(namespace, row, message.chain, known[0].preamble if known else b"", False)

    async def preamble(self, place: Place) -> tuple[tuple[Message, ...], bytes | None]:
        """The branch's instructions: messages, and the JSON of the field that stood beside them."""
        raws = await self._store.preamble(place.namespace, place.row.id, place.preamble)
        messages = await self._reader.read_stored(messages_in(raws), place.row.model)
        return messages, field_in(raws)

    async def transcript(self, place: Place) -> Sequence[MessageRow]:
        """Every message of the branch, those the client dropped on the way included."""
        return await self._store.transcript(place.namespace, place.row.id, place.chain)

    async def hidden(
        self, namespace: str, session: str, chains: Sequence[bytes]
    ) -> Mapping[str, HiddenRounds]:
        """What the client was not shown, by the id of the answer it led to (rule 31)."""
        found = await self._store.hidden_rounds(namespace, session, chains)
        return {context_id(chain): rounds for chain, rounds in found.items()}

    async def branch(self, place: Place, headers: Headers) -> Branch:
        """The branch as the conversation a model is told about."""
        rows = await self._store.bodies(place.namespace, place.row.id, place.chain)
        chains = tuple(row.chain for row in rows)
        newest = (place.chain, *chains[:-_NEWEST:-1]) if rows else ()
        asked = await self._store.asked(place.namespace, place.row.id, newest)
        model = asked.model if asked else place.row.model
        raws = await self._store.preamble(place.namespace, place.row.id, place.preamble)
        preamble = await self._reader.read_stored(messages_in(raws), model)
        messages = await self._reader.read_stored([row.body for row in rows], model)
        weight = MESSAGE_WEIGHT * len(messages)
        talk = await offload(weight, _listed, preamble, messages, chains, place.namespace)
        return Branch(place.namespace, place.row, talk, headers, model, _fixed_tokens(talk, asked))

    async def message(self, namespace: str, ident: str) -> tuple[str, MessageRow]:
        """The message of an id as views and transcripts give it, and a session it stands in."""
        digits = _digits(ident)
        found = await self._store.message(namespace, bytes.fromhex(digits[: len(digits) // 2 * 2]))
        if found is None or not found[1].chain.hex().startswith(digits):
            raise missing()
        return found

    async def summary(self, namespace: str, ident: str) -> tuple[str, StoredCompaction]:
        """The summary of an id as results give it, or of its compaction's, and the session it stands in."""
        found = await self._store.compaction(namespace, compaction_of(ident))
        if found is None or found[1].compaction.kind != "message_removal":
            raise missing()
        return found

    async def message_in(self, namespace: str, row: SessionRow, ident: str) -> MessageRow:
        """The session's message of this id. Two sessions may have the same beginning."""
        owner, message = await self.message(namespace, ident)
        if owner == row.id:
            return message
        path = await self._store.bodies(namespace, row.id, message.chain)
        if not path:
            raise missing()
        return path[-1]


async def session_named(store: Store, namespace: str, name: str) -> SessionRow | None:
    """The session that `name` means; a client's own name goes before what only looks like one of ours."""
    row = await store.session(namespace, name)
    ident = session_of(name) if row is None else None
    return row if ident is None else await store.session(namespace, ident)


def missing() -> NotFound:
    """What is said of everything that is not there or not the caller's: the same words (rule 25)."""
    return NotFound("There is nothing here, or it is not yours.")


def _fixed_tokens(talk: Conversation, asked: Asked | None) -> int:
    """What the newest request's prompt held besides messages, mostly its tool schemas."""
    if asked is None:
        return PRIMING_TOKENS
    place = talk.position(asked.head)
    sent = talk.messages if place is None else talk.messages[: place + 1]
    said = sum(message.tokens for message in (*talk.preamble, *sent))
    return max(PRIMING_TOKENS, asked.tokens_full - said)


def _listed(
    preamble: Sequence[Message], messages: Sequence[Message], names: Sequence[bytes], namespace: str
) -> Conversation:
    """The list as the client sends it: records of compactions name its messages by their places in it."""
    chains = chains_of(messages, seed_of(namespace))
    return Conversation(tuple(preamble), tuple(messages), chains, tuple(names))


def _at(namespace: str, row: SessionRow, head: Head, heads: Sequence[Head]) -> Place:
    return Place(namespace, row, head.chain, head.preamble, head is heads[0])


def _digits(ident: str) -> str:
    digits = chain_digits_of(ident)
    if digits is None:
        raise missing()
    return digits
