"""Tokens that sessions used since their last checkpoint, as the upstream counted them.

In memory only: a checkpoint takes them up, what was not taken up is lost with the process. Knows
nothing of checkpoints.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from weakref import WeakValueDictionary

from app.core.runtime.snapshot import UsageSection
from app.core.runtime.tallies import usage_after
from app.core.wire.answered import Usage

# Sessions remembered; those that were answered longest ago are forgotten first.
SESSIONS = 20_000


def added(one: UsageSection, other: UsageSection) -> UsageSection:
    """The sum of both."""
    return UsageSection(
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cached_tokens=one.cached_tokens + other.cached_tokens,
        requests=one.requests + other.requests,
    )


@dataclass(slots=True)
class Taken:
    """Tokens on their way into a checkpoint. `is_stored` is set by whoever has stored it."""

    usage: UsageSection
    is_stored: bool = False


class Usages:
    """One for the application."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, str], UsageSection] = OrderedDict()
        # A lock is there as long as somebody holds it or waits for it.
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    def count(self, namespace: str, session: str, usage: Usage) -> None:
        """One more answer; without counts of the upstream's it does not count."""
        if usage.prompt_tokens is None and usage.completion_tokens is None:
            return
        key = namespace, session
        held = self._held.pop(key, UsageSection())
        self._held[key] = usage_after(
            held, usage.prompt_tokens or 0, usage.completion_tokens or 0, usage.cached_tokens or 0
        )
        if len(self._held) > SESSIONS:
            self._held.popitem(last=False)

    def erased(self, namespace: str, session: str) -> None:
        """The session was erased: nothing is counted of it."""
        self._held.pop((namespace, session), None)

    @asynccontextmanager
    async def taken(self, namespace: str, session: str) -> AsyncIterator[Taken]:
        """What was counted since it was last taken; unless the block says that it is stored, it counts again.

        One at a time for a session: whoever reads the totals so far in the block, adds what was taken and
        stores the sum, loses nothing to another.
        """
        key = namespace, session
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            taken = Taken(self._held.pop(key, UsageSection()))
            try:
                yield taken
            finally:
                if taken.usage.requests and not taken.is_stored:
                    self._held[key] = added(self._held.get(key, UsageSection()), taken.usage)
