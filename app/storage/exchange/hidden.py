"""The part of the store's contract about hidden rounds: what a model was told and the client was not.

Part of `app.storage.contract`, which holds the promises. They are written with the answer that they belong
to, by `close_exchange`, and stand outside every path and transcript. Must not know what they are kept for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from app.core.recall.rounds.hidden import HiddenRounds


class HiddenKept(Protocol):
    """See the module docstring."""

    async def hidden_rounds(
        self, namespace: str, session: str, chains: Sequence[bytes]
    ) -> Mapping[bytes, HiddenRounds]:
        """The rounds of those of the answers at `chains` that have any."""

    async def add_hidden_results(
        self, namespace: str, session: str, chain: bytes, results: Sequence[bytes], tokens: int
    ) -> bool:
        """What our calls in the answer at `chain` found, once; `tokens` are those of the answer and of these.

        False, and nothing stored, where something follows the answer already: a conversation that went on
        without them goes on so.
        """
