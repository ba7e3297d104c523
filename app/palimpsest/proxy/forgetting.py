"""Clears what is held in memory of erased sessions (P6): at once, and again until nothing adds to it.

A request or a job that began before the erase may cache texts of the session after it. No cache asks whom its
texts belong to; so they are cleared again at growing intervals until all that was under way has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from palimpsest.proxy.jobs import Again, Jobs, unless
from palimpsest.proxy.journal.daily_log import DailyLog
from palimpsest.proxy.sessions.in_flight import InFlight
from palimpsest.proxy.sessions.reader import MessageReader

# Up to a minute: a request may be answered for an hour.
_AGAIN = Again(60.0)


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
    """Clears `held`, which is set once everything is wired."""

    def __init__(
        self, jobs: Jobs, stopping: asyncio.Event, in_flight: InFlight, again: Again = _AGAIN
    ) -> None:
        self.held: HeldInMemory | None = None
        self._jobs = jobs
        self._stopping = stopping
        self._in_flight = in_flight
        self._again = again
        # Sessions whose texts may still be added to caches.
        self._unsettled: list[Erased] = []

    def clear(self, erased: Erased) -> None:
        """Clear what is held of these sessions."""
        self._clear([erased])

    def clear_for_good(self, erased: Erased) -> None:
        """As `clear`, and again in the background until all that was under way has ended."""
        self._clear([erased])
        self._unsettled.append(erased)
        if len(self._unsettled) == 1:
            self._jobs.start(unless(self._stopping, self._clear_all()))

    async def _clear_all(self) -> None:
        while self._unsettled:
            await self._clear_until_settled(len(self._unsettled))

    async def _clear_until_settled(self, number: int) -> None:
        """The first `number` are then done; those that are erased meanwhile are cleared with them."""
        was_used = False
        for rest in self._again.rests():
            # Before the jobs: a request that ends may leave one.
            used = self._in_flight.sessions
            is_used = any(session in used for one in self._unsettled[:number] for session in one.sessions)
            was_used = was_used or is_used
            running = self.held.jobs.running if self.held is not None else ()
            await asyncio.sleep(rest)
            self._clear(self._unsettled, every_message=was_used)
            if not is_used and all(job.done() for job in running):
                del self._unsettled[:number]
                return

    def _clear(self, erased: Sequence[Erased], *, every_message: bool = False) -> None:
        """`every_message`: an answer that came after the erase is not among the digests."""
        digests = None if every_message else frozenset().union(*(one.digests for one in erased))
        if self.held is None:
            return
        for memory in self.held.sessions:
            for one in erased:
                for session in one.sessions:
                    memory.erased(one.namespace, session)
        self.held.reader.forget(digests)
        for forget in self.held.others:
            forget()
