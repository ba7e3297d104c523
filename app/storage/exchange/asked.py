"""The part of the store's contract about finished requests: how large each one was, by whose count.

Part of `app.storage.contract`, which holds the promises. Must not know what a session is to be called
large for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Asked:
    """A finished request: its last message, its model, and its whole prompt in our count, tools included.

    `tokens_forwarded` is the prompt that went out, in our count, `prompt_tokens` the same in the upstream's,
    under `compaction`; None when unknown, or when there was none. `finished_at` is in seconds since 1970.
    """

    head: bytes
    model: str
    tokens_full: int
    tokens_forwarded: int | None = None
    prompt_tokens: int | None = None
    compaction: str | None = None
    finished_at: float | None = None


class FinishedRequests(Protocol):
    """See the module docstring."""

    async def asked(self, namespace: str, session: str, heads: Sequence[bytes]) -> Asked | None:
        """The newest finished request that ended at one of `heads` (at most 8), None when there is none."""

    async def newest_asked(self, namespace: str, sessions: Sequence[str]) -> Mapping[str, Asked]:
        """The newest finished request of each of `sessions` (at most 50); those without one are left out.

        Requests that were marked as beside a conversation do not count.
        """
