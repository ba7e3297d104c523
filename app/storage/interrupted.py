"""What the store keeps of answers that are still coming, so that a killed process does not take them along.

A part of the store's contract, with its promises. Must not know streams, or what becomes of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Interrupted:
    """An exchange that a dead process left open, and its answer as far as it was saved.

    `partial` is the answer's message as it was given. `depth` and `answers` are those of `head`, the
    request's last message: an answer to it has one more of each. `is_followed`: the conversation has gone on
    from there already.
    """

    namespace: str
    session: str
    exchange: str
    head: bytes
    base: bytes
    model: str
    partial: bytes
    depth: int
    answers: int
    is_followed: bool = False


class PartialAnswers(Protocol):
    """See the module docstring: it is a part of the contract."""

    async def save_partial(self, namespace: str, session: str, exchange: str, body: bytes) -> None:
        """The answer so far is durable, in place of the earlier one; `close_exchange` erases it.

        Nothing happens when the exchange is not open.
        """

    async def interrupted(self) -> Sequence[Interrupted]:
        """Every exchange, of all namespaces, that counts as failed and still has a partial answer.

        That is what a killed server leaves: of a SQLite file from the next start on, of a PostgreSQL database
        that it shared with others from their `give_up` on, until `close_exchange`.
        """
