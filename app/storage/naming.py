"""The part of the store's contract that requests which name something ask: who bears the name.

Part of `app.storage.contract`, which holds the promises. Must not count anything: it is on the hot path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

# The mode under which requests are recorded whose conversation began with what only the upstream knows.
BEGINS_UNSEEN = "upstream"


@dataclass(frozen=True, slots=True)
class NamedSession:
    """Of a session only what a request is decided by."""

    id: str
    external_id: str | None
    epoch: int
    full_history: bool
    appends: bool = False


@dataclass(frozen=True, slots=True)
class AnsweredAs:
    """An answer: its session, its place there, and the digest of the instructions that it was given under.

    `has_hidden`: the upstream knows more of it, or other things, than the client (rule 31). `begins_unseen`:
    what was said at first is known to the upstream alone.
    """

    session: str
    chain: bytes
    preamble: bytes
    has_hidden: bool = False
    begins_unseen: bool = False


@dataclass(frozen=True, slots=True)
class SaidLast:
    """An answer of ours and the user's message that it is the answer to, as bytes. `answers` count it in."""

    session: str
    chain: bytes
    answers: int
    question: bytes
    answer: bytes


class NamedSessions(Protocol):
    """See the module docstring."""

    async def named(self, namespace: str, name: str) -> NamedSession | None:
        """The session with our id `name`, else the one the client calls so: one row, nothing counted."""

    async def said_last(self, namespace: str) -> Sequence[SaidLast]:
        """What was answered last in the namespace, the newest first; of at most 8 exchanges.

        Of the newest 64 of all namespaces: it is asked right after an answer. Side requests apart.
        """

    async def answered_as(self, namespace: str, response_id: str) -> AnsweredAs | None:
        """The newest answer that the upstream gave this id."""
