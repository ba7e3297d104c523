"""Read access to what is stored of one caller: sessions, branches, messages and summaries by their public
ids.

What does not exist and what belongs to another caller are the same NotFound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from palimpsest.core.history.message import Conversation, Message, chains_of, seed_of
from palimpsest.core.recall.rounds.hidden import HiddenRounds
from palimpsest.core.recall.tool_results import chain_digits_of, compaction_of, session_of
from palimpsest.core.view.compaction import context_id
from palimpsest.core.wire.responses.request import field_in, messages_in
from palimpsest.errors import InvalidParameter, NotFound
from palimpsest.proxy.incoming import Headers
from palimpsest.proxy.jobs import MESSAGE_WEIGHT, offload
from palimpsest.proxy.model_facts import PRIMING_TOKENS
from palimpsest.proxy.quotas import Quota
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.proxy.turn import ReadBranch
from palimpsest.storage.compactions import StoredCompaction
from palimpsest.storage.exchanges import FinishedRequest
from palimpsest.storage.history import Head, MessageRow, SessionRow
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
            return _at(namespace, row, heads[0], heads) if heads else Place(namespace, row, b"", b"", True)
        digits = _digits(branch)
        found = [head for head in heads if head.chain.hex().startswith(digits)]
        if len(found) > 1:
            raise InvalidParameter("More than one branch begins so; give more digits.", param="branch")
        if found:
            return _at(namespace, row, found[0], heads)
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
        messages = await self.reader.read_stored([row.body for row in rows], model)
        weight = MESSAGE_WEIGHT * len(messages)
        talk = await offload(weight, _listed, preamble, messages, chains, place.namespace)
        fixed = _fixed_tokens(talk, asked)
        return ReadBranch(place.namespace, place.row, talk, headers, quota, model, fixed, rows)

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


def _fixed_tokens(talk: Conversation, asked: FinishedRequest | None) -> int:
    """Tokens of the newest request's prompt besides its messages, mostly tool schemas."""
    if asked is None:
        return PRIMING_TOKENS
    place = talk.position(asked.head)
    sent = talk.messages if place is None else talk.messages[: place + 1]
    said = sum(message.tokens for message in (*talk.preamble, *sent))
    return max(PRIMING_TOKENS, asked.tokens_full - said)


def _listed(
    preamble: Sequence[Message], messages: Sequence[Message], names: Sequence[bytes], namespace: str
) -> Conversation:
    """The branch with the chain digests of the list as the client sends it, which compactions refer to."""
    chains = chains_of(messages, seed_of(namespace))
    return Conversation(tuple(preamble), tuple(messages), chains, tuple(names))


def _at(namespace: str, row: SessionRow, head: Head, heads: Sequence[Head]) -> Place:
    return Place(namespace, row, head.chain, head.preamble, head is heads[0])


def _digits(ident: str) -> str:
    digits = chain_digits_of(ident)
    if digits is None:
        raise missing()
    return digits
