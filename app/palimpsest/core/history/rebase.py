"""Alignment of a client's rewritten list with a stored path: which messages are stored already (rule 4)."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from palimpsest.core.history.message import Conversation
from palimpsest.core.history.stored_points import NewMessage, Rebase, StoredPoint

# A longer run does not show better which of several equal answers is meant.
_TELLING_RUN = 32


class PathPoint(Protocol):
    """A point of a stored path, with what is needed to align a client's list with it."""

    @property
    def chain(self) -> bytes:
        """The digest under which the message is stored."""

    @property
    def canonical(self) -> bytes:
        """The digest of the message alone."""

    @property
    def digest(self) -> bytes:
        """The sha256 of the message's bytes."""

    @property
    def relayed(self) -> bool:
        """True for an answer that we relayed."""


@dataclass(frozen=True, slots=True)
class Start:
    """The stored prefix of a list: its digest (empty: none), its messages and relayed answers."""

    chain: bytes = b""
    depth: int = 0
    answers: int = 0


@dataclass(frozen=True, slots=True)
class Jump:
    """A rebase, and those of its members that are not stored yet, in order."""

    rebase: Rebase
    new: tuple[NewMessage, ...]


def jump_of(
    conversation: Conversation, start: Start, index: int, anchor: StoredPoint, path: Sequence[PathPoint]
) -> Jump | None:
    """The messages after `start` up to the anchor at `index`, as a rebase; None if it is not on `path`.

    `path` is the stored path of `anchor`. Messages that are on it, in the same order, are named, not copied;
    the others are new.
    """
    talk = conversation.messages
    shared = _shared(conversation, start, path)
    places = places_of([m.canonical for m in talk[start.depth : index + 1]], path[shared:])
    if not places or places[-1] is None:
        return None
    points = [None if place is None else path[shared + place] for place in places]
    # Answers that came after the anchor on the path asked for do not lead to it.
    later = sum(point.relayed for point in path[shared + places[-1] + 1 :])
    return _jump(conversation, start, points, anchor.answers - later)


def jump_to_summary(
    conversation: Conversation, index: int, anchor: StoredPoint, path: Sequence[PathPoint]
) -> Jump:
    """The messages up to `index`, where the client summarizes `anchor`, as a rebase after that answer.

    `path` is the stored path of `anchor`. Messages that are on it, in the same order, are named. The others
    are new, and no request finds them as a known prefix: their past is that of the path.
    """
    free: defaultdict[bytes, list[int]] = defaultdict(list)
    for place, point in enumerate(path):
        free[point.canonical].append(place)
    listed = conversation.messages[: index + 1]
    backwards = range(index, -1, -1)
    found = _descending([(i, stack.pop()) for i in backwards if (stack := free[listed[i].canonical])])
    members: list[bytes] = []
    new: list[NewMessage] = []
    for i in range(index + 1):
        chain = path[found[i]].chain if i in found else _aside(conversation.chains[i])
        if i not in found:
            new.append(NewMessage(i, chain, members[-1] if members else b"", i + 1, anchor.answers))
        members.append(chain)
    end = conversation.chains[index]
    rebase = Rebase(end, b"", tuple(members), index + 1, anchor.answers, anchor.chain)
    return Jump(rebase, tuple(new))


def places_of(canonicals: Sequence[bytes], path: Sequence[PathPoint]) -> tuple[int | None, ...]:
    """The index on `path` of each message; None for those that are not on it, or not in this order.

    The last message is the anchor. It takes the place of an equal relayed answer: of several, the one with
    the longest equal run before it, then the newest. Of the others as many as possible keep their order;
    equal messages are paired from the end. Empty when the anchor is not on the path.
    """
    end = _end(canonicals, path)
    if end is None:
        return ()
    free: defaultdict[bytes, list[int]] = defaultdict(list)
    for place, point in enumerate(path[:end]):
        free[point.canonical].append(place)
    backwards = range(len(canonicals) - 2, -1, -1)
    found = _descending([(i, stack.pop()) for i in backwards if (stack := free[canonicals[i]])])
    return (*(found.get(i) for i in range(len(canonicals) - 1)), end)


def _shared(conversation: Conversation, start: Start, path: Sequence[PathPoint]) -> int:
    """How many leading messages of the path are those of the prefix: they are placed already."""
    count = 0
    for message, point in zip(conversation.messages[: start.depth], path, strict=False):
        if message.canonical != point.canonical:
            break
        count += 1
    return count


def _jump(conversation: Conversation, start: Start, points: Sequence[PathPoint | None], answers: int) -> Jump:
    members: list[bytes] = []
    new: list[NewMessage] = []
    parent, adjoining, led = start.chain, True, start.answers
    for i, point in enumerate(points, start.depth):
        if point is None:
            chain = conversation.chains[i] if adjoining else _aside(conversation.chains[i])
            new.append(NewMessage(i, chain, parent, i + 1, led))
        else:
            chain, adjoining, led = point.chain, False, led + point.relayed
        members.append(chain)
        parent = chain
    depth = start.depth + len(points)
    end = conversation.chains[depth - 1]
    return Jump(Rebase(end, start.chain, tuple(members), depth, max(led, answers)), tuple(new))


def _aside(chain: bytes) -> bytes:
    """The digest of a new message that follows a message named by the rebase.

    Its past, as the client sent it, is not a stored point, so the message must not be found as a known
    prefix: a path that began there would hold what the client has dropped.
    """
    return hashlib.sha256(b"aside" + chain).digest()


def _end(canonicals: Sequence[bytes], path: Sequence[PathPoint]) -> int | None:
    best, longest = None, 0
    for place in range(len(path) - 1, -1, -1):
        if path[place].relayed and path[place].canonical == canonicals[-1]:
            run = _run(canonicals, path, place)
            if run > longest:
                best, longest = place, run
    return best


def _run(canonicals: Sequence[bytes], path: Sequence[PathPoint], place: int) -> int:
    limit = min(len(canonicals), place + 1, _TELLING_RUN)
    for back in range(limit):
        if canonicals[-1 - back] != path[place - back].canonical:
            return back
    return limit


def _descending(pairs: Sequence[tuple[int, int]]) -> dict[int, int]:
    """A longest selection of the pairs whose places descend, as index -> place (patience sorting)."""
    ends: list[int] = []
    piles: list[int] = []
    before: list[int] = []
    for n, (_, place) in enumerate(pairs):
        pile = bisect_left(ends, -place)
        before.append(piles[pile - 1] if pile else -1)
        ends[pile : pile + 1] = [-place]
        piles[pile : pile + 1] = [n]
    chosen: dict[int, int] = {}
    n = piles[-1] if piles else -1
    while n >= 0:
        chosen[pairs[n][0]] = pairs[n][1]
        n = before[n]
    return chosen
