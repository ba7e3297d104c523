"""What the store knows about a point in a namespace's history, as the pure decisions need it.

Pure values. Knows nothing of SQL nor of how they were found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MessageState = Literal["live", "incomplete", "rejected", "refused"]


@dataclass(frozen=True, slots=True)
class Known:
    """A stored point of a session: a message, or the end of a rebased list.

    `chain` is the point's own digest, `canonical` that of its message alone. `answers` counts the
    answers we relayed on the path up to and including this point, `depth` the messages (1-based).
    `arrival` grows with every message of the session. `relayed` is true for an answer we relayed.
    `extended` is true when a later message of the session follows it. `failed` is true when the
    newest exchange that ended at this message is over and failed, was refused or is incomplete; one
    that is still open has not failed, for it may be somebody else who said the same thing. `replied`
    is true when we relayed a whole answer to it, `open` while it waits for one.
    `preamble` is the digest of the instructions of the newest exchange that touched it (rule 1).
    """

    session: str
    chain: bytes
    canonical: bytes
    role: str
    depth: int
    answers: int
    arrival: int
    relayed: bool
    extended: bool
    failed: bool
    replied: bool
    state: MessageState
    preamble: bytes
    open: bool = False


@dataclass(frozen=True, slots=True)
class Rebase:
    """A list of messages a client assembled from messages of the session and, perhaps, new ones (rule 4).

    The path named by `chain` is the path named by `base` (empty: nothing) followed by `members`,
    each the chain digest of a message of the same session, in the client's order. Its last member
    is the anchor: the newest answer we relayed. `depth` counts the messages of the path; `answers`
    is at least the anchor's own, so that a client which drops its past does not fall behind the
    branch it continues (rule 7). `summarized` is the anchor where the list does not hold it: an answer
    that the client put into words of its own, and goes on from (rule 33).
    """

    chain: bytes
    base: bytes
    members: tuple[bytes, ...]
    depth: int = 0
    answers: int = 0
    summarized: bytes = b""

    @property
    def anchor(self) -> bytes:
        """The newest answer we relayed that the list goes on from."""
        return self.summarized or self.members[-1]


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to be stored at `chain`, following `parent` (empty: it opens a list).

    `index` is its place in the conversation's messages. `depth` counts the messages (1-based) and
    `answers` the relayed answers that lead to it, itself included; neither is a key.
    """

    index: int
    chain: bytes
    parent: bytes
    depth: int = 0
    answers: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a request's messages belong. Everything before `known` is stored already.

    `session` is None when a new session starts. `base` is the digest of the longest stored prefix
    (empty when there is none). `rebase` is set when the client's list jumps (rule 4); `new` are the
    messages to store, in order. `found_by` says how the session was found, for the client's eyes.
    `depth` and `answers` are those of the request's last message: an answer to it has one more of each.
    """

    session: str | None
    base: bytes
    new: tuple[NewMessage, ...]
    rebase: Rebase | None
    found_by: Literal["id", "prefix", "anchor", "quote", "retry", "new"]
    answers: int = 0
    depth: int = 0
