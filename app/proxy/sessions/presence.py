"""Servers that share a database say that they are there, and clear up after those that are not any more.

A server is known to be dead by its beats standing still, not by anybody's clock. Knows nothing of what is
cleared up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from app.errors import StoreError
from app.storage.contract import Store

_log = structlog.get_logger("palimpsest.presence")
# A server that beats is looked at so often in the time after which it counts as dead.
LOOKS = 3


class Presence:
    """One for a server that may share its database; `found` hears that others have left something behind."""

    def __init__(self, store: Store, found: Callable[[], Awaitable[None]], seconds: float) -> None:
        self._store = store
        self._found = found
        self._seconds = seconds
        # The others: how often each beat, and how many looks found it so.
        self._seen: dict[str, tuple[int, int]] = {}

    async def keep(self) -> None:
        """Beats and looks, until it is cancelled."""
        while True:
            await asyncio.sleep(self._seconds / LOOKS)
            try:
                await self.look()
            except StoreError as error:
                # After an outage everybody's beats stood still: it is counted from the beginning.
                self._seen.clear()
                _log.warning("presence_failed", error=type(error).__name__)

    async def look(self) -> None:
        """Others see this server; whoever has not beaten for long is given up. StoreError."""
        await self._store.beat()
        beats = await self._store.beats()
        self._seen = {server: (beat, self._looks(server, beat)) for server, beat in beats.items()}
        gone = [server for server, (_, looks) in self._seen.items() if looks > LOOKS]
        for server in gone:
            if await self._store.give_up(server, self._seen.pop(server)[0]):
                _log.warning("server_gone", server=server)
        if gone:
            await self._found()

    def _looks(self, server: str, beat: int) -> int:
        before, looks = self._seen.get(server, (beat, 0))
        return looks + 1 if before == beat else 1
