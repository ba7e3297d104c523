"""The part of the store's contract about messages pinned by hand, and pins taken back.

Part of `app.storage.contract`, which holds the promises. Must not know what a pin keeps from being folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PinRow:
    """A message pinned by hand; or with `is_lifted`, one whose own text pins it, which was taken back."""

    chain: bytes
    created_at: float
    is_lifted: bool = False


class Pinned(Protocol):
    """See the module docstring."""

    async def pins(self, namespace: str, session: str) -> Sequence[PinRow]:
        """In order of arrival."""

    async def add_pin(self, namespace: str, session: str, chain: bytes, now: float) -> None:
        """The message is pinned; once. It is taken back no longer."""

    async def lift_pin(self, namespace: str, session: str, chain: bytes, now: float) -> None:
        """The pin in the message's own text is taken back, and one by hand is gone."""

    async def remove_pin(self, namespace: str, session: str, chain: bytes) -> bool:
        """False when it was not pinned."""
