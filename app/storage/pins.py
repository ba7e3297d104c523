"""The part of the store's contract about messages pinned by hand.

Part of `app.storage.contract`, which holds the promises. Must not know what a pin keeps from being folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PinRow:
    """A message pinned by hand."""

    chain: bytes
    created_at: float


class Pinned(Protocol):
    """See the module docstring."""

    async def pins(self, namespace: str, session: str) -> Sequence[PinRow]:
        """In order of arrival."""

    async def add_pin(self, namespace: str, session: str, chain: bytes, now: float) -> None:
        """The message is pinned; once."""

    async def remove_pin(self, namespace: str, session: str, chain: bytes) -> bool:
        """False when it was not pinned."""
