"""Checks the database's files and disk once a second, logs problems, and keeps the reserve file."""

from __future__ import annotations

import asyncio

import structlog

from palimpsest.storage.database import StoreFault
from palimpsest.storage.store import Store

# A check costs 20 us; operators should not learn of a problem later than refused callers.
_LOOK_SECONDS = 1.0
# Checks between two attempts to restore the reserve: disk space is seldom freed faster.
_RESERVE_LOOKS = 10
_log = structlog.get_logger("palimpsest.store")


class StoreWatch:
    """Watches the store. `reserve_bytes` are kept free for erasing on a full disk; 0: none."""

    def __init__(self, store: Store, reserve_bytes: int) -> None:
        self._store = store
        self._reserve_bytes = reserve_bytes
        self._trouble: StoreFault | None = None
        self._has_reserve = True

    async def keep(self) -> None:
        """Check until cancelled."""
        looks = 0
        while True:
            self._noted(await asyncio.to_thread(self._store.trouble))
            if looks % _RESERVE_LOOKS == 0 and self._trouble is None:
                await self._kept_reserve()
            looks += 1
            await asyncio.sleep(_LOOK_SECONDS)

    def _noted(self, trouble: StoreFault | None) -> None:
        if trouble == self._trouble:
            return
        self._trouble = trouble
        if trouble is None:
            _log.info("database_usable_again")
        else:
            _log.error("database_unusable", reason=trouble.reason, remedy=trouble.remedy)

    async def _kept_reserve(self) -> None:
        has = await self._store.keep_reserve(self._reserve_bytes)
        if self._has_reserve and not has:
            _log.warning("no_room_for_reserve", bytes=self._reserve_bytes)
        self._has_reserve = has
