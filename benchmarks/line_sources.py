"""How often a line of a summary leads to the message that it was written from.

The lines are those that code writes from recorded conversations: their messages are known. The finder is
told nothing of them. A line about a tool's result that leads to its call counts as found, since the two stand
side by side; so does one that leads to another message with the same words.

python -m benchmarks.line_sources FILE...: JSON lines with `messages` each, of the OpenAI chat format.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from palimpsest.core.history.read import read_message
from palimpsest.core.notes.choice import line_of
from palimpsest.core.notes.reader import notes_of
from palimpsest.core.summary.line_sources import lines_of
from palimpsest.core.text.message_text import text_with_calls

# Conversations of each file, and messages of each.
_MOST, _MESSAGES = 25, 60


def measured(path: Path) -> tuple[int, int, int]:
    """The lines of a file, those that lead to their message, and those that lead nowhere."""
    lines = found = nowhere = 0
    with path.open(encoding="utf-8") as rows:
        for _, row in zip(range(_MOST), rows, strict=False):
            said = json.loads(row)["messages"][1 : 1 + _MESSAGES]
            messages = [read_message(json.dumps(message).encode(), lambda _: 1) for message in said]
            texts = [text_with_calls(message) for message in messages]
            for note in notes_of(messages).notes:
                told = " ".join(line_of(note).split())
                for line in lines_of(told, texts)[:1]:
                    near = {note.place, *(at for at in range(len(texts)) if note.text in texts[at])}
                    lines += 1
                    nowhere += not line.sources
                    found += any(abs(at - place) <= 1 for at in line.sources for place in near)
    return lines, found, nowhere


def main() -> None:
    """Print a line for each file, and one for all."""
    total = (0, 0, 0)
    for name in sys.argv[1:]:
        counts = measured(Path(name))
        total = tuple(map(sum, zip(total, counts, strict=True)))  # type: ignore[assignment]
        print(_told(Path(name).stem, *counts))
    print(_told("all", *total))


def _told(name: str, lines: int, found: int, nowhere: int) -> str:
    return f"{name}: {lines:,} lines, {found / max(1, lines):.2f} found, {nowhere:,} nowhere"


if __name__ == "__main__":
    main()
