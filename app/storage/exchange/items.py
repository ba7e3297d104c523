"""The part of the store's contract about items of answers, which a later request may name by their ids.

Part of `app.storage.contract`, which holds the promises. Only ids and places are kept: the words stand in the
answers, once. Must not know how an item looks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

# Answers looked at for one id; ids that upstreams draw have one.
MOST_ANSWERS = 8


class ItemsKept(Protocol):
    """See the module docstring."""

    async def answers_with(
        self, namespace: str, items: Sequence[str], after: bytes | None = None
    ) -> Mapping[str, Sequence[bytes]]:
        """The bodies of answers we relayed that hold an item of this id, for each id that is known.

        With `after`, of those alone that answer the message of this chain. None, where more than
        `MOST_ANSWERS` of them share an id.
        """

    async def items_of(self, namespace: str, session: str) -> Sequence[str]:
        """The ids of the items of a session's answers, at most 4096; some characters are spelled out."""
