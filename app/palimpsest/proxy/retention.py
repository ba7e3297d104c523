"""Erases sessions that are kept longer than the operator wants, at the start and every hour.

A session goes as by an erase (P6), one at a time and with rests, so that requests hardly notice. Of several
servers on a database one does it. A session in use stays.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from palimpsest.core.utc import DAY
from palimpsest.errors import StoreError
from palimpsest.proxy.erasing import Eraser
from palimpsest.storage.journal import Journal
from palimpsest.storage.retention import OldSession, OldSessions

_log = structlog.get_logger("palimpsest.retention")
# Seconds from the end of a run to the next one.
_PAUSE_SECONDS = 3_600.0
# Share of the time that erasing may take.
_SHARE = 0.1
# Longer than the longest erase, which takes at most two minutes.
_LEASE_SECONDS = 300.0
_LEASE = "retention"
# Sessions found at once; more are found when these are gone.
MOST_FOUND = 1_000


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """For how many days after their newest turn sessions are kept, and in how many bytes a namespace.

    0: no limit.
    """

    days: int
    max_bytes: int

    def __bool__(self) -> bool:
        """True when there is a limit."""
        return bool(self.days or self.max_bytes)


async def due(there: OldSessions, kept: RetentionLimits, now: float) -> list[OldSession]:
    """The sessions to be erased, the first 1,000 of each limit and namespace.

    A text that several sessions share counts for each of them, so that more may be due once these are gone.
    """
    found = await there.before(now - kept.days * DAY, MOST_FOUND) if kept.days else []
    sizes = await there.sizes() if kept.max_bytes else {}
    for namespace, size in sizes.items():
        excess = size - kept.max_bytes
        for old in await there.oldest(namespace, MOST_FOUND) if excess > 0 else ():
            if excess <= 0:
                break
            found.append(old)
            excess -= await there.size(namespace, old.session)
    return list(dict.fromkeys(found))


class Retention:
    """Erases what is due."""

    def __init__(
        self,
        there: OldSessions,
        journal: Journal,
        eraser: Eraser,
        kept: RetentionLimits,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._there = there
        self._journal = journal
        self._eraser = eraser
        self._kept = kept
        self._clock = clock
        self._holder = journal.server or "sole"

    async def keep_running(self) -> None:
        """Run now and every hour until cancelled; a store error is logged."""
        while True:
            try:
                await self.run()
            except StoreError as error:
                _log.warning("retention_failed", error=type(error).__name__)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def run(self) -> int:
        """Erase what is due; returns how many sessions. None of them while another server does it."""
        if not await self._has_lease():
            return 0
        began, erased = time.monotonic(), 0
        try:
            while gone := await self._erased(await due(self._there, self._kept, self._clock())):
                erased += gone
        finally:
            if erased:
                self._eraser.begin_scrub()
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
