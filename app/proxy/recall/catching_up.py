"""The index of what is searched, brought up to date before a search as far as that does not take too long.

Knows nothing of what is looked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from app.proxy.recall.indexing import Indexing
from app.proxy.recall.switch import RecallSwitch
from app.storage.contract import Store

# Sessions that a search of a whole namespace brings up to date, or reads through: those written last.
_SESSIONS = 256
_log = structlog.get_logger("palimpsest.recall")


@dataclass(frozen=True, slots=True)
class Behind:
    """The sessions of which something may not be in the index yet, those written last first.

    `is_all`: there are no others.
    """

    sessions: Sequence[str]
    is_all: bool


class CatchingUp:
    """One for the application; it waits for `seconds` at most, and finds what there is then."""

    def __init__(self, store: Store, indexing: Indexing, switch: RecallSwitch, seconds: float) -> None:
        self._store = store
        self._indexing = indexing
        self._switch = switch
        self._seconds = seconds

    def forget(self) -> None:
        """No word that was read is remembered (P6)."""
        self._indexing.forget()

    async def session(self, namespace: str, session: str) -> Behind:
        """What was recorded of the session before this call is in the index, or it is behind. StoreError."""
        return Behind(await self._caught_up(namespace, [session]), is_all=True)

    async def namespace(self, namespace: str) -> Behind:
        """The same of all the namespace's sessions. Those that switched recall off are behind for ever."""
        lagging = await self._store.lagging(namespace, _SESSIONS)
        on = [name for name in lagging if await self._switch.is_on(namespace, name)]
        off = [name for name in lagging if name not in set(on)]
        return Behind([*await self._caught_up(namespace, on), *off], is_all=len(lagging) < _SESSIONS)

    async def _caught_up(self, namespace: str, sessions: Sequence[str]) -> Sequence[str]:
        """Those for which the time did not last."""
        done = 0
        try:
            async with asyncio.timeout(self._seconds):
                for name in sessions:
                    await self._indexing.catch_up(namespace, name)
                    done += 1
        except TimeoutError:
            _log.warning("search_before_the_index", sessions=len(sessions) - done)
        return sessions[done:]
