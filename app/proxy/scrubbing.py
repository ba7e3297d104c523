"""Scrubbing the database's files after something was erased: at once if that can be, else until it is done.

Knows nothing of what was erased.
"""

from __future__ import annotations

import asyncio
import time

import structlog

from app.errors import StoreError
from app.proxy.jobs import Jobs
from app.storage.contract import Store
from app.storage.erase.contract import Scrub

# Scrubbing may take at most so much of the time: everybody who writes waits while a file is written anew.
_SHARE = 0.1
# Seconds until it is tried again when a reader held it up, or the store failed.
_AGAIN_SECONDS = 1.0
_log = structlog.get_logger("palimpsest.scrubbing")


class Scrubbing:
    """One for the application."""

    def __init__(self, store: Store, jobs: Jobs) -> None:
        self._store = store
        self._jobs = jobs
        self._one_at_a_time = asyncio.Lock()
        self._next: asyncio.Task[Scrub] | None = None
        self._rests_until = 0.0

    async def done(self, seconds: float) -> Scrub:
        """How far what was erased until now is scrubbed; "pending" when it takes longer than `seconds`."""
        task = self.begin()
        await asyncio.wait({task}, timeout=seconds)
        if not task.done() or task.cancelled() or task.exception() is not None:
            return "pending"
        return task.result()

    def begin(self) -> asyncio.Task[Scrub]:
        """What was erased until now is scrubbed soon, by a job that goes on until it is."""
        if self._next is None:
            self._next = self._jobs.start(self._scrubbed())
        return self._next

    async def _scrubbed(self) -> Scrub:
        async with self._one_at_a_time:
            await asyncio.sleep(max(0.0, self._rests_until - time.monotonic()))
            # What is erased from here on may come too late for this one.
            self._next = None
            while True:
                done = await self._tried()
                if done != "pending":
                    return done
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _tried(self) -> Scrub:
        began = time.monotonic()
        try:
            return await self._store.scrub()
        except StoreError as error:
            _log.warning("scrub_failed", error=type(error).__name__)
            return "pending"
        finally:
            now = time.monotonic()
            self._rests_until = now + (now - began) * (1 / _SHARE - 1)
