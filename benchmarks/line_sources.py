"""How often a line of a summary leads to the message that it was written from.

The lines are those that code writes from conversations: their messages are known. The finder is not told
them. Printed are the share that leads to the message itself, the share that leads to it, to the one beside
it (a call and its result) or to one with the same words, and how many lead nowhere.

python -m benchmarks.line_sources FILE...: JSON lines with `messages` each, of the OpenAI chat format.
"""

from __future__ import annotations

import json
import sys
from dataclasses import astuple, dataclass
from pathlib import Path

from palimpsest.core.history.read import read_message
from palimpsest.core.notes.choice import line_of
from palimpsest.core.notes.reader import notes_of
from palimpsest.core.summary.line_sources import lines_of
from palimpsest.core.text.message_text import text_with_calls

# Conversations of each file, and messages of each.
_MOST, _MESSAGES = 25, 60


@dataclass
class Counts:
    """Conversations, their lines, and where these lead."""

    conversations: int = 0
    lines: int = 0
    itself: int = 0
    beside: int = 0
    nowhere: int = 0

    def __str__(self) -> str:
        exact, near = (count / max(1, self.lines) for count in (self.itself, self.beside))
        found = f"{exact:.2f} to the message, {near:.2f} to it or beside it, {self.nowhere:,} nowhere"
        return f"{self.conversations:,} conversations, {self.lines:,} lines: {found}"


def measured(path: Path) -> Counts:
    """The counts of a file."""
    counts = Counts()
    with path.open(encoding="utf-8") as rows:
        for _, row in zip(range(_MOST), rows, strict=False):
            counts.conversations += 1
            said = json.loads(row)["messages"][1 : 1 + _MESSAGES]
            messages = [read_message(json.dumps(message).encode(), lambda _: 1) for message in said]
            texts = [text_with_calls(message) for message in messages]
            for note in notes_of(messages).notes:
                for line in lines_of(" ".join(line_of(note).split()), texts)[:1]:
                    near = {note.place, *(at for at in range(len(texts)) if note.text in texts[at])}
                    counts.lines += 1
                    counts.nowhere += not line.sources
                    counts.itself += note.place in line.sources
                    counts.beside += any(abs(at - place) <= 1 for at in line.sources for place in near)
    return counts


def main() -> None:
    """Print a line for each file, and one for all."""
    found = {Path(name).stem: measured(Path(name)) for name in sys.argv[1:]}
    for name, counts in found.items():
        print(f"{name}: {counts}")
    print(f"all: {Counts(*map(sum, zip(*map(astuple, found.values()), strict=True)))}")


if __name__ == "__main__":
    main()
