"""What is left of a word in the files of a folder, however it is spelled there.

Knows nothing of who wrote it.
"""

from __future__ import annotations

import json
from pathlib import Path


def spellings(word: str) -> set[bytes]:
    """The word as UTF-8 and as JSON escapes, in capitals and without; as far as they differ."""
    plain = {word, word.lower(), word.upper()}
    escaped = {json.dumps(one)[1:-1] for one in plain}
    return {one.encode() for one in plain | escaped}


def remains(folder: Path, *words: str) -> dict[str, int]:
    """How often one of the words is found in each file below `folder` that holds any."""
    wanted = {spelling for word in words for spelling in spellings(word)}
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        held = path.read_bytes()
        count = sum(held.count(spelling) for spelling in wanted)
        if count:
            found[path.name] = count
    return found
