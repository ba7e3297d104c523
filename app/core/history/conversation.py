"""What one request is about: its preamble, its messages in order, and the digest that names each past.

Pure value. Knows nothing of where the messages came from (the request, or the store in append
mode) nor of what will be sent upstream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.core.history.message import Message


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages of one request.

    `preamble` holds the leading system and developer messages; they stand outside the chain
    (rule 1). `chains[i]` is the 32-byte digest that names `messages[: i + 1]`; it is seeded with
    the namespace, so equal digests never occur in two namespaces. `names[i]` is the digest under which
    `messages[i]` is stored, where that is known: another one where the client's list jumped (rule 4).
    """

    preamble: tuple[Message, ...]
    messages: tuple[Message, ...]
    chains: tuple[bytes, ...]
    names: tuple[bytes, ...] = ()
    _positions: Mapping[bytes, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", self.names or self.chains)
        object.__setattr__(self, "_positions", {c: i for i, c in enumerate(self.chains)})

    def position(self, chain: bytes) -> int | None:
        """Index in `messages` of the message that `chain` names here; None when not on this path."""
        return self._positions.get(chain)

    @property
    def head(self) -> bytes:
        """The digest of the whole past; empty when there are no messages."""
        return self.chains[-1] if self.chains else b""
