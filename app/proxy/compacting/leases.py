"""Leases of summaries: of the servers that share a database one writes for a session at a time (B17).

A lease is renewed while it is held, and ends by itself when its server is gone. Knows nothing of what is
written under it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from app.errors import StoreError
from app.proxy.jobs import Jobs
from app.storage.contract import Store

_log = structlog.get_logger("palimpsest.leases")
# A lease is renewed so often in its time: one renewal may fail, or come late.
RENEWALS = 3
# Whoever waits for somebody else's lease looks so often (seconds): a summary takes seconds to a minute.
LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Tenure:
    """`holder` tells this server from all others; a lease lasts `seconds`; `clock` gives UTC seconds."""

    holder: str
    seconds: float
    clock: Callable[[], float]


@dataclass(slots=True)
class _Hold:
    """A lease of ours: how many work under it, and what renews it."""

    count: int
    renewing: asyncio.Task[None]


class Leases:
    """One for the application. Several jobs of one session may share this server's lease."""

    def __init__(self, store: Store, jobs: Jobs, tenure: Tenure) -> None:
        self._store = store
        self._jobs = jobs
        self._tenure = tenure
        self._held: dict[str, _Hold] = {}
        # Taking and releasing follow each other, so that no release undoes what was taken since.
        self._changing = asyncio.Lock()

    @asynccontextmanager
    async def held(self, namespace: str, session: str) -> AsyncIterator[bool]:
        """True inside: this server writes for the session. False: somebody else does, or nobody can say."""
        key = _key(namespace, session)
        has_lease = await self._entered(key)
        try:
            yield has_lease
        finally:
            if has_lease and self._left(key):
                await self._jobs.finish(self._released(key))

    async def is_elsewhere(self, namespace: str, session: str) -> bool:
        """True while another server writes for the session. StoreError."""
        now, holder = self._tenure.clock(), self._tenure.holder
        return await self._store.is_leased(_key(namespace, session), now, holder)

    async def waited(self, namespace: str, session: str, seconds: float) -> float:
        """The seconds, at most so many, for which another server's summary was waited for; 0.0: for none."""
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
            tenure = self._tenure
            try:
                taken = await self._store.take_lease(key, tenure.holder, tenure.clock(), tenure.seconds)
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
        """True for the last one. At once, so that whoever is cancelled here leaves nothing behind."""
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
                await self._store.release_lease(key, self._tenure.holder)
            except StoreError as error:
                # It ends by itself.
                _log.warning("lease_not_released", error=type(error).__name__, lease=key)

    async def _renewed(self, key: str) -> None:
        """The lease lasts as long as this runs, or until somebody else has taken it."""
        tenure = self._tenure
        while True:
            await asyncio.sleep(tenure.seconds / RENEWALS)
            try:
                if not await self._store.renew_lease(key, tenure.holder, tenure.clock(), tenure.seconds):
                    # What is being written stays good: whether it applies is asked of the conversation.
                    _log.warning("lease_lost", lease=key)
                    return
            except StoreError as error:
                _log.warning("lease_not_renewed", error=type(error).__name__, lease=key)


def _key(namespace: str, session: str) -> str:
    return f"compact:{namespace}:{session}"
