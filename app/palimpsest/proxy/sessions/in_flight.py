"""What the requests that are being answered have taken: points, new names, places in a queue."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

from palimpsest.core.history.stored_points import StoredPoint
from palimpsest.errors import Conflict
from palimpsest.proxy.turn import Turn

# Session names whose first request may not be stored yet.
REMEMBERED_NAMES = 1_000


class InFlight:
    """The requests in flight.

    Two servers can confuse sessions with the same messages only if both look before either request is stored.
    """

    def __init__(self) -> None:
        self._points: Counter[tuple[str, bytes]] = Counter()
        self._turns: dict[int, Turn] = {}
        self._given: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._locks: dict[str, asyncio.Lock] = {}
        self._holders: Counter[str] = Counter()

    @contextmanager
    def at(self, turn: Turn) -> Iterator[None]:
        """Context manager: the point that the turn continues from and its last message count as taken."""
        points = [(turn.session, turn.placement.base), (turn.session, turn.conversation.head)]
        self._points.update(points)
        self._turns[id(turn)] = turn
        try:
            yield
        finally:
            del self._turns[id(turn)]
            for point in points:
                self._points[point] -= 1
                if not self._points[point]:
                    del self._points[point]

    @property
    def turns(self) -> Collection[Turn]:
        """The requests that are being answered, the oldest first."""
        return self._turns.values()

    @property
    def sessions(self) -> Collection[str]:
        """The sessions with a request that is being answered."""
        return {session for session, _ in self._points}

    def marked(self, known: Sequence[StoredPoint]) -> Sequence[StoredPoint]:
        """The points, with those that are taken marked as extended; the same object where none is."""
        if not any(map(self._is_taken, known)):
            return known
        return [replace(k, extended=True) if self._is_taken(k) else k for k in known]

    def _is_taken(self, point: StoredPoint) -> bool:
        return point.open or (point.session, point.chain) in self._points

    def id_of(self, namespace: str, name: str, new_id: Callable[[], str]) -> str:
        """The id of a new session: parallel first requests with one name get the same one."""
        given = self._given.setdefault((namespace, name), new_id())
        if len(self._given) > REMEMBERED_NAMES:
            self._given.popitem(last=False)
        return given

    def erased(self, session: str) -> None:
        """Forget the id given to an erased session's name."""
        for name in [name for name, given in self._given.items() if given == session]:
            del self._given[name]

    @asynccontextmanager
    async def in_turn(self, key: str, most_waiting: int) -> AsyncIterator[None]:
        """Let one request with this key proceed at a time; Conflict when more than `most_waiting` wait."""
        if self._holders[key] > most_waiting:
            raise Conflict("Too many requests wait for this session; send them one after the other.")
        self._holders[key] += 1
        try:
            async with self._locks.setdefault(key, asyncio.Lock()):
                yield
        finally:
            self._holders[key] -= 1
            if not self._holders[key]:
                del self._holders[key]
                del self._locks[key]
