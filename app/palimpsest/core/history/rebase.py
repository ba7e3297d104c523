"""Alignment of a client's rewritten list with a stored path: which messages are stored already (rule 4)."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from palimpsest.core.history.message import Conversation
from palimpsest.core.history.stored_points import NewMessage, PathEntry, Rebase, StoredPoint

# A longer run does not show better which of several equal answers is meant.
_TELLING_RUN = 32


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
    conversation: Conversation, start: Start, index: int, anchor: StoredPoint, path: Sequence[PathEntry]
) -> Jump | None:
    """The messages after `start` up to the anchor at `index`, as a rebase; None if it is not on `path`.

    `path` is the stored path of `anchor`. Messages that are on it, in the same order, are named, not copied;
    the others are new.
    """
    talk = conversation.messages
    # Leading messages of the path are those of the prefix: they are placed already.
    both = enumerate(zip(talk[: start.depth], path, strict=False))
    same = min(start.depth, len(path))
    shared = next((at for at, (message, point) in both if message.canonical != point.canonical), same)
    places = places_of([m.canonical for m in talk[start.depth : index + 1]], path[shared:])
    if not places or places[-1] is None:
        return None
    members: list[bytes] = []
    new: list[NewMessage] = []
    parent, adjoining, led = start.chain, True, start.answers
    for i, place in enumerate(places, start.depth):
        if place is None:
            chain = conversation.chains[i] if adjoining else _aside(conversation.chains[i])
            new.append(NewMessage(i, chain, parent, i + 1, led))
        else:
            point = path[shared + place]
            chain, adjoining, led = point.chain, False, led + point.relayed
        members.append(chain)
        parent = chain
    # Answers that came after the anchor on the path asked for do not lead to it.
    later = sum(point.relayed for point in path[shared + places[-1] + 1 :])
    depth, answers = start.depth + len(places), max(led, anchor.answers - later)
    rebase = Rebase(conversation.chains[depth - 1], start.chain, tuple(members), depth, answers)
    return Jump(rebase, tuple(new))


def jump_to_summary(
    conversation: Conversation, index: int, anchor: StoredPoint, path: Sequence[PathEntry]
) -> Jump:
    """The messages up to `index`, where the client summarizes `anchor`, as a rebase after that answer.

    `path` is the stored path of `anchor`. Messages that are on it, in the same order, are named. The others
    are new, and no request finds them as a known prefix: their past is that of the path.
    """
    found = _paired([message.canonical for message in conversation.messages[: index + 1]], path)
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


def places_of(canonicals: Sequence[bytes], path: Sequence[PathEntry]) -> tuple[int | None, ...]:
    """The index on `path` of each message; None for those that are not on it, or not in this order.

    The last message is the anchor. It takes the place of an equal relayed answer: of several, the one with
    the longest equal run before it, then the newest. Of the others as many as possible keep their order;
    equal messages are paired from the end. Empty when the anchor is not on the path.
    """
    end = _end(canonicals, path)
    if end is None:
        return ()
    found = _paired(canonicals[:-1], path[:end])
    return (*map(found.get, range(len(canonicals) - 1)), end)


def _aside(chain: bytes) -> bytes:
    """The digest of a new message that follows a message named by the rebase.

    Its past, as the client sent it, is not a stored point, so the message must not be found as a known
    prefix: a path that began there would hold what the client has dropped.
    """
    return hashlib.sha256(b"aside" + chain).digest()


def _end(canonicals: Sequence[bytes], path: Sequence[PathEntry]) -> int | None:
    best, longest = None, 0
    for place in range(len(path) - 1, -1, -1):
        if path[place].relayed and path[place].canonical == canonicals[-1]:
            limit = min(len(canonicals), place + 1, _TELLING_RUN)
            run = range(1, limit)
            differs = (n for n in run if canonicals[-1 - n] != path[place - n].canonical)
            length = next(differs, limit)
            if length > longest:
                best, longest = place, length
    return best


def _paired(canonicals: Sequence[bytes], path: Sequence[PathEntry]) -> dict[int, int]:
    """The place on the path of as many messages as can keep their order; equal ones pair from the end.

    A longest selection of pairs whose places descend (patience sorting).
    """
    free: defaultdict[bytes, list[int]] = defaultdict(list)
    for place, point in enumerate(path):
        free[point.canonical].append(place)
    backwards = range(len(canonicals) - 1, -1, -1)
    pairs = [(i, stack.pop()) for i in backwards if (stack := free[canonicals[i]])]
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
