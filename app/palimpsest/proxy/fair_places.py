"""A semaphore that serves its waiters by owner, in turn (H05).

An owner with a hundred waiting jobs delays another owner's first one by no more than the jobs that are
running.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairPlaces:
    """At most `places` holders. Owners are served in turn, the jobs of one owner in order of arrival."""

    def __init__(self, places: int) -> None:
        self._free = places
        # The first owner is next; it moves to the end when it is served.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    def waiting(self, who: str) -> int:
        """How many jobs of the owner wait."""
        return len(self._waiting.get(who, ()))

    async def acquire(self, who: str) -> None:
        """Take a place, waiting for one if needed. A cancelled wait takes none."""
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
        """Free the place, or pass it to the next waiter."""
        while self._waiting:
            who, line = next(iter(self._waiting.items()))
            granted = line.popleft()
            if line:
                self._waiting.move_to_end(who)
            else:
                del self._waiting[who]
            # The future of a cancelled waiter is done.
            if not granted.done():
                granted.set_result(None)
                return
        self._free += 1

    @asynccontextmanager
    async def place(self, who: str) -> AsyncIterator[None]:
        """Hold a place for the duration of the block."""
        await self.acquire(who)
        try:
            yield
        finally:
            self.release()
