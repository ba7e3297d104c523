"""Scrubbing the database's files after something was erased: at once if that can be, else until it is done.

What holds it up (a reader, a store that fails) is waited for longer each time. Knows nothing of what was
erased.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import structlog

from app.errors import StoreError
from app.proxy.jobs import Jobs, unless
from app.storage.contract import Store
from app.storage.erase.contract import Scrub

# Scrubbing may take at most so much of the time: everybody who writes waits while a file is written anew.
_SHARE = 0.1
_log = structlog.get_logger("palimpsest.scrubbing")


@dataclass(frozen=True, slots=True)
class Again:
    """When something that held it up is tried again: after the first rest, then after twice as long."""

    most_seconds: float
    first_seconds: float = 1.0

    def rests(self) -> Iterator[float]:
        """One rest after the other, in seconds, without end."""
        rest = self.first_seconds
        while True:
            yield min(rest, self.most_seconds)
            rest = min(2 * rest, self.most_seconds)


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """How far the database's files are scrubbed: `files` "pending" when something was erased since.

    Of what is pending: how often it was tried, since when it is due and when it is tried again (UTC seconds;
    None: it is being tried, or waits for its turn), and what the store said last, "" for a reader in the way.
    """

    files: Scrub | None
    attempts: int = 0
    since: float | None = None
    next_at: float | None = None
    trouble: str = ""


class Scrubbing:
    """One for the application. Once `stopping` is set it rests for nothing, and gives up."""

    def __init__(
        self,
        store: Store,
        jobs: Jobs,
        stopping: asyncio.Event,
        again: Again,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._stopping = stopping
        self._again = again
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()
        self._next: asyncio.Task[Scrub] | None = None
        self._asked = asyncio.Event()
        self._rests_until = 0.0
        self._state = Scrubbed(None)

    @property
    def state(self) -> Scrubbed:
        """How far it is; `files` is None as long as nothing was scrubbed by this process."""
        return self._state

    async def done(self, seconds: float) -> Scrub:
        """How far what was erased until now is scrubbed; "pending" when it takes longer than `seconds`."""
        task = self.begin()
        await asyncio.wait({task}, timeout=seconds)
        if not task.done() or task.cancelled() or task.exception() is not None:
            return "pending"
        return task.result()

    def begin(self) -> asyncio.Task[Scrub]:
        """What was erased until now is scrubbed soon, by a job that goes on until it is, or a stop."""
        if self._state.files != "pending":
            self._state = Scrubbed("pending", since=self._clock())
        # What was held up until now may not be any more.
        self._asked.set()
        if self._next is None:
            self._next = self._jobs.start(self._scrubbed())
        return self._next

    async def _scrubbed(self) -> Scrub:
        async with self._one_at_a_time:
            await self._keeps_the_share()
            # What is erased from here on may come too late for this one.
            self._next = None
            attempts, rests = 0, self._again.rests()
            while True:
                self._asked.clear()
                attempts += 1
                done, trouble = await self._tried()
                if done != "pending" or self._stopping.is_set():
                    break
                rest = next(rests)
                self._state = Scrubbed("pending", attempts, self._state.since, self._clock() + rest, trouble)
                await unless(self._stopping, self._rested(rest))
            if self._next is None:
                self._state = Scrubbed(done)
            return done

    async def _rested(self, seconds: float) -> None:
        """So many seconds have passed; or something else was erased, and the share is kept."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._asked.wait()
                await self._keeps_the_share()

    async def _keeps_the_share(self) -> None:
        await unless(self._stopping, asyncio.sleep(max(0.0, self._rests_until - time.monotonic())))

    async def _tried(self) -> tuple[Scrub, str]:
        began = time.monotonic()
        try:
            return await self._store.scrub(), ""
        except StoreError as error:
            _log.warning("scrub_failed", error=type(error).__name__)
            return "pending", type(error).__name__
        finally:
            now = time.monotonic()
            self._rests_until = now + (now - began) * (1 / _SHARE - 1)
