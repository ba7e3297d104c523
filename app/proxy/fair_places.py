"""Places for work that is done a few at a time, given out in turn to those who wait for one (H05).

Knows nothing of the work. Who has a hundred pieces waiting delays anybody else's first one by no more than
what is under way.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairPlaces:
    """`places` at a time. Of several who wait each is given one in turn, in order of arrival for each."""

    def __init__(self, places: int) -> None:
        self._free = places
        # The first is next; whoever is given a place goes behind all others.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    def waiting(self, who: str) -> int:
        """How many pieces of work of theirs wait."""
        return len(self._waiting.get(who, ()))

    async def acquire(self, who: str) -> None:
        """A place is taken. Cancelled while it waits, none is."""
        if self._free:
            self._free -= 1
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(who, deque()).append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.release()
            raise

    def release(self) -> None:
        """The place is free, or another's who waits."""
        while self._waiting:
            who, line = next(iter(self._waiting.items()))
            granted = line.popleft()
            if line:
                self._waiting.move_to_end(who)
            else:
                del self._waiting[who]
            # Whoever was cancelled has left its future behind.
            if not granted.done():
                granted.set_result(None)
                return
        self._free += 1

    @asynccontextmanager
    async def place(self, who: str) -> AsyncIterator[None]:
        """A place is held while it is open."""
        await self.acquire(who)
        try:
            yield
        finally:
            self.release()
