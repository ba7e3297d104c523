"""Tombstones: how erased and blocked conversations are recognized if they come back (rule 30).

Only HMACs of chains, names and item ids are kept, keyed with the proxy's pepper. A conversation is recognized
by its messages up to its first answer, by its name, or by references to items of its answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from palimpsest.core.wire.responses.items import item_references_in
from palimpsest.errors import ErasedSession
from palimpsest.proxy.server_secrets import Pepper
from palimpsest.proxy.turn import Turn
from palimpsest.storage.erasure import Erasure

# Marks computed inline: about a millisecond; more would delay every other stream.
_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Tombstones:
    """Checks conversations against tombstones."""

    erasure: Erasure
    pepper: Pepper

    async def admit(self, turn: Turn) -> None:
        """Check that the turn's conversation may be recorded; ErasedSession if it was erased and blocked."""
        talk = turn.conversation
        names = turn.request.references
        items = item_references_in(message.fields for message in talk.messages) if names else ()
        await self.admit_list(turn.namespace, talk.chains, turn.external_id, items)

    async def admit_list(
        self, namespace: str, chains: Sequence[bytes], name: str | None, items: Sequence[str] = ()
    ) -> None:
        """As `admit`, for a list of messages under a session name."""
        if not await self.erasure.has_tombstones(namespace):
            return
        if await self.erasure.is_buried(namespace, await self.marks_of(namespace, chains, name, items)):
            raise ErasedSession("This conversation was erased, and is to stay so.")

    async def marks_of(
        self, namespace: str, chains: Sequence[bytes], name: str | None, items: Sequence[str]
    ) -> list[bytes]:
        """The marks: one for each chain and item, and one for the name if given."""
        facts = [("erased chain", chain.hex()) for chain in chains]
        facts += [("erased item", ident) for ident in items]
        facts += [("erased name", name)] if name is not None else []

        def marks() -> list[bytes]:
            return [self.pepper.digest_of(kind, namespace, what) for kind, what in facts]

        return await asyncio.to_thread(marks) if len(facts) > _AT_ONCE else marks()
