"""What is left of a word in the files of a folder, however it is spelled there.

The files are read by a process of their own: closing a database file ends every lock that this process has on
it (POSIX), and whoever closes the database next takes away the log under a server that runs in this process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import json, pathlib, sys
wanted = [bytes.fromhex(word) for word in sys.argv[2:]]
files = (path for path in sorted(pathlib.Path(sys.argv[1]).rglob("*")) if path.is_file())
held = {path.name: path.read_bytes() for path in files}
counts = {name: sum(data.count(word) for word in wanted) for name, data in held.items()}
print(json.dumps({name: count for name, count in counts.items() if count}))
"""


def spellings(word: str) -> set[bytes]:
    """The word as UTF-8 and as JSON escapes, in capitals and without; as far as they differ."""
    plain = {word, word.lower(), word.upper()}
    escaped = {json.dumps(one)[1:-1] for one in plain}
    return {one.encode() for one in plain | escaped}


def remains(folder: Path, *words: str) -> dict[str, int]:
    """How often one of the words is found in each file below `folder` that holds any."""
    wanted = sorted({spelling.hex() for word in words for spelling in spellings(word)})
    command = [sys.executable, "-c", _PROGRAM, str(folder), *wanted]
    found: dict[str, int] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found
