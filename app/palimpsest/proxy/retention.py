"""Erases sessions that are kept longer than the operator wants, at the start and every hour.

A session goes as by an erase (P6), one at a time and with rests, so that requests hardly notice. Of several
servers on a database one does it. A session in use stays. An issued key may have limits of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from palimpsest.proxy.erasing import Eraser
from palimpsest.proxy.jobs import logged
from palimpsest.storage.retention import NamespaceLimits, OldSession, RetentionLimits, due, own_limits
from palimpsest.storage.store import Store

_log = structlog.get_logger("palimpsest.retention")
# Seconds from the end of a run to the next one.
_PAUSE_SECONDS = 3_600.0
# Share of the time that erasing may take.
_SHARE = 0.1
# Longer than the longest erase, which takes at most two minutes.
_LEASE_SECONDS = 300.0
_LEASE = "retention"


class Retention:
    """Erases what is due, under the limits in `general` and those of keys."""

    def __init__(
        self,
        store: Store,
        eraser: Eraser,
        general: RetentionLimits,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._journal = store.journal
        self._eraser = eraser
        self._general = general
        self._clock = clock
        self._holder = store.journal.server or "sole"

    async def keep_running(self) -> None:
        """Run now and every hour until cancelled; a store error is logged."""
        while True:
            with logged(_log, "retention_failed"):
                await self.run()
            await asyncio.sleep(_PAUSE_SECONDS)

    async def run(self) -> int:
        """Erase what is due; returns how many sessions. None of them while another server does it."""
        limits = NamespaceLimits(self._general, own_limits(await self._store.accounts.keys()))
        if not limits or not await self._has_lease():
            return 0
        began, erased = time.monotonic(), 0
        try:
            while gone := await self._erased(await due(self._store.old_sessions, limits, self._clock())):
                erased += gone
        finally:
            if erased:
                self._eraser.scrubbing.begin()
            await self._journal.release_lease(_LEASE, self._holder)
        _log.info("retention", sessions=erased, seconds=round(time.monotonic() - began, 1))
        return erased

    async def _erased(self, sessions: list[OldSession]) -> int:
        count = 0
        for old in sessions:
            if not await self._has_lease():
                break
            began = time.monotonic()
            count += await self._eraser.unused(old.namespace, old.session, old.updated_at)
            await asyncio.sleep((time.monotonic() - began) * (1 / _SHARE - 1))
        return count

    async def _has_lease(self) -> bool:
        """Take the lease, or renew it."""
        return await self._journal.take_lease(_LEASE, self._holder, self._clock(), _LEASE_SECONDS)
