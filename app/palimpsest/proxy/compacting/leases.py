"""Leases for summaries: of the servers that share a database one writes for a session at a time (B17).

A lease is renewed while it is held, and expires when its server is gone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from palimpsest.errors import StoreError
from palimpsest.proxy.jobs import Jobs
from palimpsest.storage.journal import Journal

_log = structlog.get_logger("palimpsest.leases")
# Longer than a summary takes, so that a late renewal loses nothing.
LEASE_SECONDS = 300
# Renewals within the lifetime of a lease: one may fail or come late.
RENEWALS = 3
# Interval at which another server's lease is polled (seconds): a summary takes seconds to a minute.
LOOK_SECONDS = 0.5


@dataclass(slots=True)
class _Hold:
    """A lease of ours: the number of its users, and the task that renews it."""

    count: int
    renewing: asyncio.Task[None]


class Leases:
    """The leases of this server, `holder`, of `seconds` each. Several jobs of one session share its lease."""

    def __init__(
        self,
        journal: Journal,
        jobs: Jobs,
        holder: str,
        clock: Callable[[], float],
        seconds: float = LEASE_SECONDS,
    ) -> None:
        self._journal = journal
        self._jobs = jobs
        self._holder = holder
        self._clock = clock
        self._seconds = seconds
        self._held: dict[str, _Hold] = {}
        # Serializes taking and releasing, so that no release undoes a later take.
        self._changing = asyncio.Lock()

    @asynccontextmanager
    async def held(self, namespace: str, session: str) -> AsyncIterator[bool]:
        """Hold the session's lease. Yields False when another server has it, or the store fails."""
        key = _key(namespace, session)
        has_lease = await self._entered(key)
        try:
            yield has_lease
        finally:
            if has_lease and self._left(key):
                await self._jobs.finish(self._released(key))

    async def is_elsewhere(self, namespace: str, session: str) -> bool:
        """True while another server writes for the session. StoreError."""
        key, now, holder = _key(namespace, session), self._clock(), self._holder
        return key not in self._held and await self._journal.is_leased(key, now, holder)

    async def waited(self, namespace: str, session: str, seconds: float) -> float:
        """Wait while another server writes for the session, at most `seconds`; the seconds waited."""
        began = time.monotonic()
        waited = 0.0
        try:
            while waited < seconds and await self.is_elsewhere(namespace, session):
                await asyncio.sleep(min(LOOK_SECONDS, seconds - waited))
                waited = time.monotonic() - began
        except StoreError as error:
            _log.warning("lease_not_read", error=type(error).__name__, session=session)
        return waited

    async def _entered(self, key: str) -> bool:
        async with self._changing:
            if hold := self._held.get(key):
                hold.count += 1
                return True
            try:
                taken = await self._journal.take_lease(key, self._holder, self._clock(), self._seconds)
            except asyncio.CancelledError:
                self._jobs.start(self._released(key))
                raise
            except StoreError as error:
                _log.warning("lease_not_taken", error=type(error).__name__, lease=key)
                return False
            if taken:
                self._held[key] = _Hold(1, asyncio.create_task(self._renewed(key)))
            return taken

    def _left(self, key: str) -> bool:
        """Drop one user; True for the last. Synchronous, so that a cancellation cannot interrupt it."""
        hold = self._held[key]
        hold.count -= 1
        if hold.count:
            return False
        del self._held[key]
        hold.renewing.cancel()
        return True

    async def _released(self, key: str) -> None:
        async with self._changing:
            if key in self._held:
                return
            try:
                await self._journal.release_lease(key, self._holder)
            except StoreError as error:
                # It expires by itself.
                _log.warning("lease_not_released", error=type(error).__name__, lease=key)

    async def _renewed(self, key: str) -> None:
        """Renew the lease until cancelled, or until another server has taken it."""
        while True:
            await asyncio.sleep(self._seconds / RENEWALS)
            try:
                if not await self._journal.renew_lease(key, self._holder, self._clock(), self._seconds):
                    # The summary being written stays usable: whether it applies depends on the conversation.
                    _log.warning("lease_lost", lease=key)
                    return
            except StoreError as error:
                _log.warning("lease_not_renewed", error=type(error).__name__, lease=key)


def _key(namespace: str, session: str) -> str:
    return f"compact:{namespace}:{session}"
