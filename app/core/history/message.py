"""One chat message: its original bytes and the few facts the rest of the program decides by.

Knows nothing of sessions, windows, storage or HTTP. A message is never re-encoded: `raw` is what
the client (or the upstream) sent, and it is what is stored and forwarded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

INSTRUCTION_ROLES = frozenset({"system", "developer"})


@dataclass(frozen=True, slots=True)
class Message:
    """A chat message as sent.

    `digest` is the sha256 (32 bytes) of `raw`, the identity under which the bytes are stored.
    `canonical` is the sha256 (32 bytes) of the canonical form (rules 1 and 2): equal for two
    spellings of the same message, different for any other pair. `tokens` is the exact count in the
    request's encoding, framing included, images by estimate, at least 1. `calls` are the ids of the
    tool calls an assistant message opens, in order; `answers` the id a tool message answers.
    """

    raw: bytes
    digest: bytes
    role: str
    canonical: bytes
    tokens: int
    fields: Mapping[str, Any]
    calls: tuple[str, ...] = ()
    answers: str | None = None

    @property
    def is_instruction(self) -> bool:
        """True for system and developer messages, wherever they stand."""
        return self.role in INSTRUCTION_ROLES

    @property
    def can_stand_cut(self) -> bool:
        """True for an answer that can be gone on from though it was cut: text, no open calls (rule 11)."""
        return bool(self.fields.get("content")) and not self.calls
