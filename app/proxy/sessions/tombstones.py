"""Conversations that were erased and must not come back: how they are known again (rule 30).

What is kept are HMACs of chains, names and ids of items, which only this proxy's pepper can make and nobody
can read. A conversation is known by the beginning that leads to its first answer, by its name, or by what it
names of its answers instead of telling it. Knows nothing of erasing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from app.core.wire.responses.references import kept_names
from app.errors import ErasedSession
from app.proxy.access.pepper import Pepper
from app.proxy.turn import Turn
from app.storage.contract import Store

# So many marks take about a millisecond; more would hold up every other stream.
_AT_ONCE = 200


class Tombstones:
    """One for the application."""

    def __init__(self, store: Store, pepper: Pepper) -> None:
        self._store = store
        self._pepper = pepper

    async def admit(self, turn: Turn) -> None:
        """The turn's conversation may be stored; ErasedSession when it was erased and blocked.

        Only a conversation that seems to begin can be one that was there before; one that an answer of the
        same words leads to (rule 4) begins here, too.
        """
        if turn.placement.found_by == "anchor" or not turn.placement.base:
            talk = turn.conversation
            names = turn.request.references
            items = kept_names(message.fields for message in talk.messages) if names else ()
            await self.admit_list(turn.namespace, talk.chains, turn.external_id, items)

    async def admit_list(
        self, namespace: str, chains: Sequence[bytes], name: str | None, items: Sequence[str] = ()
    ) -> None:
        """A session with these messages may begin under this name; ErasedSession as above."""
        if not await self._store.has_tombstones(namespace):
            return
        if await self._store.is_buried(namespace, await self.marks_of(namespace, chains, name, items)):
            raise ErasedSession("This conversation was erased, and is to stay so.")

    async def marks_of(
        self, namespace: str, chains: Sequence[bytes], name: str | None, items: Sequence[str]
    ) -> list[bytes]:
        """One for each chain and each item, and one for the name if there is one."""
        told = [("erased chain", chain.hex()) for chain in chains]
        told += [("erased item", ident) for ident in items]
        told += [("erased name", name)] if name is not None else []
        if len(told) > _AT_ONCE:
            return await asyncio.to_thread(self._marks, namespace, told)
        return self._marks(namespace, told)

    def _marks(self, namespace: str, told: Sequence[tuple[str, str]]) -> list[bytes]:
        return [self._pepper.digest_of(kind, namespace, what) for kind, what in told]
