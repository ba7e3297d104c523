"""What happens behind a client's back in one request, gathered for the record while it goes on.

Knows nothing of how rounds are asked for, nor of how they are told again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.core.recall.rounds.hidden import HiddenRounds
from app.core.wire.json_text import decoded
from app.core.wire.responses.items import as_chat

Json = Mapping[str, Any]


class Happening:
    """One for each try of a request. `room_tokens`: how much longer its prompt may become, in our count."""

    def __init__(self, count: Callable[[Json], int], room_tokens: int) -> None:
        self._count = count
        self._left = room_tokens
        self._before: list[bytes] = []
        self._tokens = 0
        self._written: bytes | None = None
        self._differs = False

    @property
    def rounds(self) -> HiddenRounds | None:
        """What there is to be kept; None where nothing was hidden."""
        if not self._before and self._written is None and not self._differs:
            return None
        written = self.tokens_of([self._written]) if self._written is not None else 0
        return HiddenRounds(tuple(self._before), self._tokens, self._written, None, written)

    @property
    def left_tokens(self) -> int:
        """The room that is left in the prompt, at least 0."""
        return max(0, self._left)

    def tokens_of(self, messages: Sequence[bytes]) -> int:
        """What the messages take in a prompt."""
        return sum([self._count(as_chat(decoded(message))) for message in messages])

    def told(self, messages: Sequence[bytes]) -> None:
        """These went upstream behind everything before."""
        tokens = self.tokens_of(messages)
        self._before += messages
        self._tokens += tokens
        self._left -= tokens

    def forgotten(self) -> None:
        """The model was asked once more as if nothing had been looked up."""
        self._before.clear()
        self._tokens = 0

    def differs(self) -> None:
        """What the client has as its answer is not what the upstream keeps under the id of it."""
        self._differs = True

    def answered(self, message: bytes) -> None:
        """The answer, as the model wrote it, calls the client's tools and ours."""
        self._written = message
