"""Leases for summaries: of the servers that share a database one writes for a session at a time (B17).

A lease is renewed while it is held, and expires when its server is gone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import structlog

from palimpsest.proxy.jobs import Jobs, logged
from palimpsest.storage.journal import Journal

_log = structlog.get_logger("palimpsest.leases")
# Longer than a summary takes, so that a late renewal loses nothing.
LEASE_SECONDS = 300
# Renewals within the lifetime of a lease: one may fail or come late.
RENEWALS = 3
# Interval at which another server's lease is polled (seconds): a summary takes seconds to a minute.
LOOK_SECONDS = 0.5


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
        # By key: the number of users, and the task that renews the lease.
        self._held: dict[str, tuple[int, asyncio.Task[None]]] = {}
        # Serializes taking and releasing, so that no release undoes a later take.
        self._changing = asyncio.Lock()

    @asynccontextmanager
    async def held(self, namespace: str, session: str) -> AsyncIterator[bool]:
        """Hold the session's lease. Yields False when another server has it, or the store fails."""
        key = _key(namespace, session)
        has_lease = await self._take(key)
        try:
            yield has_lease
        finally:
            if has_lease:
                # Nothing is awaited before the release runs as a job: a cancellation cannot interrupt this.
                users, renewing = self._held.pop(key)
                if users > 1:
                    self._held[key] = users - 1, renewing
                else:
                    renewing.cancel()
                    await self._jobs.finish(self._release(key))

    async def is_elsewhere(self, namespace: str, session: str) -> bool:
        """True while another server writes for the session. StoreError."""
        key, now, holder = _key(namespace, session), self._clock(), self._holder
        return key not in self._held and await self._journal.is_leased(key, now, holder)

    async def waited(self, namespace: str, session: str, seconds: float) -> float:
        """Wait while another server writes for the session, at most `seconds`; the seconds waited."""
        began, waited = time.monotonic(), 0.0
        with logged(_log, "lease_not_read", session=session):
            while waited < seconds and await self.is_elsewhere(namespace, session):
                await asyncio.sleep(min(LOOK_SECONDS, seconds - waited))
                waited = time.monotonic() - began
        return waited

    async def _take(self, key: str) -> bool:
        async with self._changing:
            if key in self._held:
                users, renewing = self._held[key]
                self._held[key] = users + 1, renewing
                return True
            taken = False
            try:
                with logged(_log, "lease_not_taken", lease=key):
                    taken = await self._journal.take_lease(key, self._holder, self._clock(), self._seconds)
            except asyncio.CancelledError:
                self._jobs.start(self._release(key))
                raise
            if taken:
                self._held[key] = 1, asyncio.create_task(self._renew(key))
            return taken

    async def _release(self, key: str) -> None:
        async with self._changing:
            if key not in self._held:
                # After a failure the lease expires by itself.
                with logged(_log, "lease_not_released", lease=key):
                    await self._journal.release_lease(key, self._holder)

    async def _renew(self, key: str) -> None:
        """Renew the lease until cancelled, or until another server has taken it."""
        is_ours = True
        while is_ours:
            await asyncio.sleep(self._seconds / RENEWALS)
            with logged(_log, "lease_not_renewed", lease=key):
                is_ours = await self._journal.renew_lease(key, self._holder, self._clock(), self._seconds)
        # The summary being written stays usable: whether it applies depends on the conversation.
        _log.warning("lease_lost", lease=key)


def _key(namespace: str, session: str) -> str:
    return f"compact:{namespace}:{session}"
