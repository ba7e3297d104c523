"""Stored points of a namespace's history, and the order of the messages that they lead to.

A path is the client's list at a point. A lineage is every message that led to it, including those that the
client dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

MessageState = Literal["live", "incomplete", "rejected", "refused"]


@dataclass(frozen=True, slots=True)
class StoredPoint:
    """A stored point of a session: a message, or the end of a rebased list.

    `chain` is the point's own digest, `canonical` that of its message alone. `answers` counts the relayed
    answers on the path up to and including this point, `depth` the messages (1-based). `arrival` grows with
    every message of the session. `relayed`: an answer that we relayed. `extended`: a later message of the
    session follows it. `failed`: the newest exchange that ended at this message is over and failed, was
    refused or is incomplete; an open one has not failed, because another client may have sent the same
    message. `replied`: we relayed a whole answer to it; `open`: it is waiting for one. `preamble` is the
    digest of the instructions of the newest exchange that touched it (rule 1).
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
class PathEntry:
    """A message of a path without its body: enough to align a client's list with it (rule 4)."""

    chain: bytes
    canonical: bytes
    digest: bytes
    role: str
    relayed: bool


@dataclass(frozen=True, slots=True)
class Rebase:
    """A list that a client assembled from messages of the session and, perhaps, new ones (rule 4).

    The path named by `chain` is the path named by `base` (empty: none) followed by `members`, each the chain
    digest of a message of the same session, in the client's order. The last member is the anchor: the newest
    answer that we relayed. `depth` counts the messages of the path. `answers` is at least the anchor's own,
    so that a client which drops its past does not fall behind the branch it continues (rule 7). `summarized`
    is the anchor where the list does not contain it: an answer that the client rewrote and continues from
    (rule 33).
    """

    chain: bytes
    base: bytes
    members: tuple[bytes, ...]
    depth: int = 0
    answers: int = 0
    summarized: bytes = b""

    @property
    def anchor(self) -> bytes:
        """The newest relayed answer that the list continues from."""
        return self.summarized or self.members[-1]


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to be stored at `chain`, following `parent` (empty: it starts a list).

    `index` is its place in the conversation's messages. `depth` counts the messages (1-based) and `answers`
    the relayed answers that lead to it, itself included; neither is a key.
    """

    index: int
    chain: bytes
    parent: bytes
    depth: int = 0
    answers: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a request's messages belong.

    `session` is None when a new session starts. `base` is the digest of the longest stored prefix (empty when
    there is none). `rebase` is set when the client rewrote its list (rule 4); `new` are the messages to
    store, in order. `found_by` is how the session was found, as shown to the client. `depth` and `answers`
    are those of the request's last message: an answer to it has one more of each.
    """

    session: str | None
    base: bytes
    new: tuple[NewMessage, ...]
    rebase: Rebase | None
    found_by: Literal["id", "prefix", "anchor", "quote", "retry", "new"]
    answers: int = 0
    depth: int = 0


# A message by its chain digest, or the end of a rebased list.
Point: TypeAlias = bytes | Rebase


def path_of(points: Iterable[Point]) -> list[bytes]:
    """The messages of a path, given its points oldest first (a rebase is followed to its base)."""
    path: list[bytes] = []
    for point in points:
        if isinstance(point, bytes):
            path.append(point)
        else:
            path.extend(point.members)
    return path


def bases_of(points: Iterable[Point]) -> Iterator[bytes]:
    """Bases whose paths `lineage_of` needs: those that are not on the lineage themselves."""
    passed: set[bytes] = set()
    for point in points:
        if isinstance(point, bytes):
            passed.add(point)
            continue
        if point.base and point.base not in passed:
            yield point.base
        passed.add(point.chain)
        passed.update(point.members)


def lineage_of(points: Iterable[Point], paths: Mapping[bytes, Sequence[bytes]]) -> list[bytes]:
    """Every message of a lineage, given its points oldest first (a rebase is followed to its anchor).

    At each rebase the messages that the client kept or dropped stay where they are, and new ones are put
    before the next message that it kept. `paths` are the paths of `bases_of`.
    """
    line: list[bytes] = []
    passed: set[bytes] = set()
    for point in points:
        if isinstance(point, bytes):
            line.append(point)
            passed.add(point)
            continue
        listed = [*paths.get(point.base, ()), *point.members]
        if any(chain not in passed for chain in listed):
            line = merged(line, listed)
        passed.update(listed)
        passed.add(point.chain)
    return line


def merged(line: Sequence[bytes], listed: Sequence[bytes]) -> list[bytes]:
    """`line` in its order, with the entries only in `listed` put before the next entry that both have."""
    have = set(line)
    place = {chain: i for i, chain in enumerate(listed)}
    result: list[bytes] = []
    done = 0
    for chain in line:
        at = place.get(chain, -1)
        if at >= done:
            result.extend(new for new in listed[done:at] if new not in have)
            done = at + 1
        result.append(chain)
    result.extend(new for new in listed[done:] if new not in have)
    return result
