"""One thing worth knowing of a conversation, and all of those that were read from it. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "rule",
    "request",
    "change",
    "command",
    "failure",
    "task",
    "open",
    "outcome",
    "read",
    "fact",
    "picture",
]
Speaker = Literal["user", "assistant", "system", "tool"]


@dataclass(frozen=True, slots=True)
class Note:
    """A line of a block.

    `text` is what it says, on one line but for a user's own words; `place` the index of the message it was
    read from, `turn` the user's turn (from 1, 0 before the first). `binds`: it stands in every block while it
    holds (a floor). `subject` is what it is about: the path of a change, the line of a command ("" where the
    changes of files tell all that it did).
    """

    kind: Kind
    text: str
    place: int
    turn: int
    by: Speaker = "user"
    binds: bool = False
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Notes:
    """What was read, in the order in which it was said.

    `running` is the place of the user's request that the last message read still works on, None where it
    was answered.
    """

    notes: tuple[Note, ...] = ()
    running: int | None = None

    def of(self, *kinds: Kind) -> tuple[Note, ...]:
        """Those of these kinds, in order."""
        return tuple(note for note in self.notes if note.kind in kinds)
