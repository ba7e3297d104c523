"""Chain digests: each names a message and its whole past, inside one namespace.

Knows nothing of what messages hold, of sessions or storage.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from itertools import accumulate, takewhile

from app.core.history.conversation import Conversation
from app.core.history.message import Message


def seed_of(namespace: str) -> bytes:
    """The digest (32 bytes) every chain of the namespace begins with; no two namespaces share one."""
    return sha256(b"namespace\0" + namespace.encode("utf-8", "surrogatepass")).digest()


def chain_of(parent: bytes, canonical: bytes) -> bytes:
    """The digest of a message with canonical digest `canonical` after the past `parent`; each 32 bytes."""
    return sha256(parent + canonical).digest()


def conversation_of(messages: Sequence[Message], seed: bytes) -> Conversation:
    """What `messages` are: the leading instructions apart (rule 1), the rest chained from `seed`."""
    preamble = tuple(takewhile(lambda message: message.is_instruction, messages))
    spoken = tuple(messages[len(preamble) :])
    return Conversation(preamble, spoken, chains_of(spoken, seed))


def chains_of(messages: Sequence[Message], seed: bytes) -> tuple[bytes, ...]:
    """The digest that names each message with those before it, from `seed` on."""
    digests = accumulate((message.canonical for message in messages), chain_of, initial=seed)
    return tuple(digests)[1:]
