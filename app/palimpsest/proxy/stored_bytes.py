"""Bounds of what is stored for a namespace: checked before a request goes upstream, with next to no reads.

The database keeps the totals. A total that was read counts for ten seconds, or until the bodies of requests
since, which are at least what they store, fill half of the room that was left. So a namespace far below its
bound is rarely looked up, one near it at each request, and a refusal is never older than an erase.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from palimpsest.core.budget.quota import StorageBound, storage_refusal
from palimpsest.errors import StorageFull, StoreError
from palimpsest.storage.body_bytes import BodyBytes

# How long a total counts at most: what other servers, and answers, store meanwhile comes on top.
FRESH_SECONDS = 10.0
# Namespaces remembered, those that were read last; one takes about 300 bytes.
_REMEMBERED = 10_000
# From one adding up to the next: a namespace with 100 turns a second has 4,000 rows by then (1 ms to read).
_ADD_UP_SECONDS = 10.0
_log = structlog.get_logger("palimpsest.stored_bytes")


@dataclass(slots=True)
class _Room:
    """How many bytes may come before the total is read again, and until when."""

    size: int
    until: float


class StorageBounds:
    """Admits requests while less is stored than may be. `clock` gives monotonic seconds."""

    def __init__(self, sizes: BodyBytes, clock: Callable[[], float] = time.monotonic) -> None:
        self._sizes = sizes
        self._clock = clock
        self._rooms: OrderedDict[StorageBound, _Room] = OrderedDict()

    async def admit(self, bound: StorageBound, size: int) -> None:
        """Check that a request whose body has `size` bytes may be stored; StorageFull at the bound."""
        room = self._rooms.get(bound)
        if room is None or room.size <= 0 or self._clock() >= room.until:
            room = await self._read(bound)
        room.size -= size

    async def _read(self, bound: StorageBound) -> _Room:
        until = self._clock() + FRESH_SECONDS
        stored = await self._sizes.of(bound.namespace)
        if said := storage_refusal(bound, stored):
            raise StorageFull(said)
        room = self._rooms[bound] = _Room((bound.max_bytes - stored) // 2, until)
        self._rooms.move_to_end(bound)
        if len(self._rooms) > _REMEMBERED:
            self._rooms.popitem(last=False)
        return room

    async def keep_adding_up(self) -> None:
        """Keep the rows of totals few, until cancelled: needed on PostgreSQL. A store error is logged."""
        while True:
            try:
                await self._sizes.add_up()
            except StoreError as error:
                _log.warning("bytes_not_added_up", error=type(error).__name__)
            await asyncio.sleep(_ADD_UP_SECONDS)
