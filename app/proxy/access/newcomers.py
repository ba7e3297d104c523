"""Namespaces that the upstream has not answered yet: capped, and erased when it never does (rule 26).

Anybody can make up a key; what comes with it must not fill the disk. Knows nothing of credentials.
A proven namespace costs a look into the store's memory and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from app.errors import NamespaceUnproven, StoreError
from app.storage.contract import Store

# Looks for what is to be erased in the time it may last.
SWEEPS = 4
_log = structlog.get_logger("palimpsest.newcomers")


class Newcomers:
    """One for the application. `clock` gives UTC seconds; `erased` hears which namespaces are gone."""

    def __init__(
        self,
        store: Store,
        erased: Callable[[Sequence[str]], None],
        clock: Callable[[], float],
        *,
        messages: int,
        seconds: int,
    ) -> None:
        self._store = store
        self._erased = erased
        self._clock = clock
        self._messages = messages
        self._seconds = seconds

    async def admit(self, namespace: str, new_messages: int) -> None:
        """The namespace may store so many more; NamespaceUnproven when it has had its share.

        A first request is let in whatever its length: a long history at first contact is no flood.
        """
        standing = await self._store.standing(namespace)
        if standing.proven or not standing.messages or not new_messages:
            return
        if standing.messages + new_messages > self._messages:
            raise NamespaceUnproven(
                "The upstream has not accepted this credential yet; until then no more is stored."
            )

    async def keep_sweeping(self) -> None:
        """Sweeps from time to time, until it is cancelled."""
        while True:
            await asyncio.sleep(self._seconds / SWEEPS)
            await self.sweep()

    async def sweep(self) -> None:
        """None is left that is old enough and still unproven; a failing store is tried again later."""
        try:
            while gone := await self._store.erase_unproven(self._clock() - self._seconds):
                self._erased(gone)
                _log.info("unproven_erased", namespaces=len(gone))
        except StoreError as error:
            _log.warning("sweep_failed", error=type(error).__name__)
