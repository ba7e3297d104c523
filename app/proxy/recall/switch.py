"""Whether recall is switched on for a session (C01, C03): by its own settings, else by the deployment's.

Read each time, so that a switch counts at once. Knows nothing of what is indexed or looked up.
"""

from __future__ import annotations

from collections.abc import Callable

from app.errors import RecallDisabled
from app.storage.contract import Store


class RecallSwitch:
    """One for the application; `is_on` reads a session's stored settings, None for a session without any."""

    def __init__(self, store: Store, is_on: Callable[[bytes | None], bool]) -> None:
        self._store = store
        self._is_on = is_on

    @property
    def by_default(self) -> bool:
        """Whether it is on for sessions that say nothing."""
        return self._is_on(None)

    async def is_on(self, namespace: str, session: str) -> bool:
        """Whether the session has an index, and answers direct calls. StoreError."""
        return self._is_on(await self._store.settings_of(namespace, session))

    async def check(self, namespace: str, session: str) -> None:
        """RecallDisabled where it is off. StoreError."""
        if not await self.is_on(namespace, session):
            raise RecallDisabled(
                "Recall is switched off for this session (recall.enabled). "
                "GET /api/sessions/{id}/search still finds what was said."
            )
