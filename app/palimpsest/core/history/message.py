"""Messages, the conversation of one request, and the digests that name each prefix of it.

A message is never re-encoded: `raw` holds the bytes that the client or the upstream sent, and these are
stored and forwarded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import takewhile
from operator import attrgetter
from typing import Any

# A compaction of the Responses API, whose content only its maker can read.
_COMPACTION = re.compile(rb'\A\{.*"type"\s*:\s*"compaction"', re.DOTALL)
INSTRUCTION_ROLES = frozenset({"system", "developer"})
RESULT_ROLES = frozenset({"tool", "function"})


@dataclass(frozen=True, slots=True)
class Message:
    """A chat message as sent.

    `digest` is the sha256 (32 bytes) of `raw`, under which the bytes are stored. `canonical` is the sha256
    (32 bytes) of the canonical form (rules 1 and 2): equal for two spellings of the same message, different
    for any other pair. `tokens` is the exact count in the request's encoding, framing included, images by
    estimate, at least 1. `calls` are the ids of the tool calls that an assistant message opens, in order;
    `answers` is the id that a tool message answers. `commands`: an answer whose text holds a command;
    `as_result` is a user's message as the result of one, None for one that does not look like an output.
    """

    raw: bytes
    digest: bytes
    role: str
    canonical: bytes
    tokens: int
    fields: Mapping[str, Any]
    calls: tuple[str, ...] = ()
    answers: str | None = None
    commands: bool = False
    as_result: Message | None = None

    @property
    def is_instruction(self) -> bool:
        """True for system and developer messages, at any position."""
        return self.role in INSTRUCTION_ROLES

    @property
    def is_compaction(self) -> bool:
        """True for an item that an answer of the Responses API gave to continue from."""
        return b'"compaction"' in self.raw and _COMPACTION.match(self.raw) is not None

    @property
    def can_stand_cut(self) -> bool:
        """True for a cut-off answer that can be continued: it has text and no open calls (rule 11)."""
        return bool(self.fields.get("content")) and not self.calls


def seed_of(namespace: str) -> bytes:
    """The digest (32 bytes) with which every chain of the namespace starts; different for each namespace."""
    return sha256(b"namespace\0" + namespace.encode("utf-8", "surrogatepass")).digest()


def chain_of(parent: bytes, canonical: bytes) -> bytes:
    """The chain digest of a message: of its parent's chain and its own canonical digest, each 32 bytes."""
    return sha256(parent + canonical).digest()


# None for most messages: read without a step of the interpreter for each.
_AS_RESULT = attrgetter("as_result")


def _is_preamble(message: Message) -> bool:
    return message.role == "system" or (message.role == "developer" and not message.is_compaction)


def conversation_of(messages: Sequence[Message], seed: bytes) -> Conversation:
    """The conversation in `messages`: leading instructions apart (rule 1), the rest chained from `seed`."""
    preamble = tuple(takewhile(_is_preamble, messages))
    spoken = tuple(messages[len(preamble) :])
    return Conversation(preamble, spoken, chains_of(spoken, seed))


def chains_of(messages: Sequence[Message], seed: bytes) -> tuple[bytes, ...]:
    """The chain digest of each message, starting from `seed`."""
    chains, chain = [], seed
    # `chain_of`, written out: called for every message of every request.
    for message in messages:
        chain = sha256(chain + message.canonical).digest()
        chains.append(chain)
    return tuple(chains)


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages of one request.

    `preamble` holds the leading system and developer messages, which are not part of the chain (rule 1).
    `chains[i]` is the 32-byte digest that names `messages[: i + 1]`; it is seeded with the namespace, so that
    equal digests never occur in two namespaces. `names[i]` is the digest under which `messages[i]` is stored,
    if known; it differs from `chains[i]` where the client's list was rebased (rule 4). A user's message that
    is the output of a command before it is a result here: its role is "tool".
    """

    preamble: tuple[Message, ...]
    messages: tuple[Message, ...]
    chains: tuple[bytes, ...]
    names: tuple[bytes, ...] = ()
    _positions: Mapping[bytes, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", self.names or self.chains)
        object.__setattr__(self, "_positions", {c: i for i, c in enumerate(self.chains)})
        results = tuple(map(_AS_RESULT, self.messages))
        if any(results):
            pairs = zip((None, *self.messages), self.messages, results, strict=False)
            read = [
                result if result and before and before.commands else said for before, said, result in pairs
            ]
            object.__setattr__(self, "messages", tuple(read))

    def position(self, chain: bytes) -> int | None:
        """The index in `messages` of the message that `chain` names; None when it is not on this path."""
        return self._positions.get(chain)

    @property
    def head(self) -> bytes:
        """The chain digest of the last message; empty when there are no messages."""
        return self.chains[-1] if self.chains else b""

    @property
    def is_history(self) -> bool:
        """True with instructions or answers: whoever sends them sends no deltas (rule 9)."""
        return bool(self.preamble) or any(message.role == "assistant" for message in self.messages)

    def extended(
        self, messages: Sequence[Message], preamble: tuple[Message, ...] | None = None
    ) -> Conversation:
        """The conversation with these messages at its end, and with another preamble if one is given."""
        chains, chain = list(self.chains), self.head
        for message in messages:
            chain = chain_of(chain, message.canonical)
            chains.append(chain)
        kept = self.preamble if preamble is None else preamble
        return Conversation(kept, (*self.messages, *messages), tuple(chains))
