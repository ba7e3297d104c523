"""`python scripts/release_notes.py 0.2.0`: what CHANGELOG.md says of a version, for its release.

The version may be written as its tag, `v0.2.0`. Exits with 1 where the section is missing or empty.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def notes(changelog: str, version: str) -> str | None:
    """The section of a version without its heading; None where there is none, or nothing in it."""
    heading = rf"^## \[{re.escape(version.removeprefix('v'))}\](?: - \d{{4}}-\d\d-\d\d)?\s*$"
    found = re.search(heading + r"(.*?)(?=^## \[|^\[[^\]]+\]: |\Z)", changelog, re.MULTILINE | re.DOTALL)
    return (found[1].strip() or None) if found else None


def main(version: str) -> int:
    """Prints it."""
    text = notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    if text is None:
        sys.stderr.write(f"CHANGELOG.md says nothing of {version}.\n")
        return 1
    sys.stdout.write(f"{text}\n")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} VERSION")
    sys.exit(main(sys.argv[1]))
