"""Clears what is held in memory of erased sessions (P6): at once, and again until nothing adds to it.

A request or a job that began before the erase may cache texts of the session after it. No cache asks whom its
texts belong to; so they are cleared again at growing intervals until all that was under way has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from palimpsest.proxy.jobs import Jobs, unless
from palimpsest.proxy.journal.daily_log import DailyLog
from palimpsest.proxy.sessions.in_flight import InFlight
from palimpsest.proxy.sessions.reader import MessageReader

# The longest interval: a request may be answered for an hour.
_MOST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Again:
    """Delays between retries: `first_seconds`, then doubling up to `most_seconds`."""

    most_seconds: float
    first_seconds: float = 1.0

    def rests(self) -> Iterator[float]:
        """The delays in seconds, without end."""
        rest = self.first_seconds
        while True:
            yield min(rest, self.most_seconds)
            rest = min(2 * rest, self.most_seconds)


class Remembers(Protocol):
    """Something that holds data of sessions in memory."""

    def erased(self, namespace: str, session: str) -> None:
        """Forget an erased session."""


@dataclass(frozen=True, slots=True)
class HeldInMemory:
    """What holds data in memory: by session, messages by their bytes, and caches without an owner.

    `jobs`: what fills them behind the answers. `log`: the daily log that is written from it, if any.
    """

    sessions: Sequence[Remembers]
    reader: MessageReader
    others: Sequence[Callable[[], None]]
    jobs: Jobs
    log: DailyLog | None = None


@dataclass(frozen=True, slots=True)
class Erased:
    """Sessions of a namespace, and the digests of their bodies."""

    namespace: str
    sessions: Sequence[str]
    digests: Collection[bytes]


class Forgetting:
    """Clears `held`, to which each living generation of the application adds what it holds, until it ends."""

    def __init__(
        self, jobs: Jobs, stopping: asyncio.Event, in_flight: InFlight, again: Again | None = None
    ) -> None:
        self.held: list[HeldInMemory] = []
        self._jobs = jobs
        self._stopping = stopping
        self._in_flight = in_flight
        self._again = again or Again(_MOST_SECONDS)
        # What may still be added to the caches.
        self._pursued: list[Erased] = []

    def now(self, erased: Erased) -> None:
        """Clear what is held of these sessions."""
        self._clear([erased])

    def for_good(self, erased: Erased) -> None:
        """Clear it, now and in the background, until all that was under way has ended."""
        self._clear([erased])
        self._pursued.append(erased)
        if len(self._pursued) == 1:
            self._jobs.start(unless(self._stopping, self._pursue()))

    async def _pursue(self) -> None:
        while self._pursued:
            await self._settled(len(self._pursued))

    async def _settled(self, number: int) -> None:
        """The first `number` are cleared for good; those that are erased meanwhile are cleared with them."""
        was_used = False
        for rest in self._again.rests():
            # Looked at first: a request that has ended may have left a job.
            used = self._in_flight.sessions
            is_used = any(session in used for one in self._pursued[:number] for session in one.sessions)
            was_used = was_used or is_used
            running = [job for held in self.held for job in held.jobs.running]
            await asyncio.sleep(rest)
            self._clear(self._pursued, every_message=was_used)
            if not is_used and all(job.done() for job in running):
                del self._pursued[:number]
                return

    def _clear(self, erased: Sequence[Erased], *, every_message: bool = False) -> None:
        """`every_message`: an answer that came after the erase is not among the digests."""
        digests = None if every_message else frozenset().union(*(one.digests for one in erased))
        for held in self.held:
            for memory in held.sessions:
                for one in erased:
                    for session in one.sessions:
                        memory.erased(one.namespace, session)
            held.reader.forget(digests)
            for forget in held.others:
                forget()
