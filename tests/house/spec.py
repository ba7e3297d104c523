"""Reads the specification's rows and tells which of them no passing test proves (`make spec`).

A row is proved on the running program: what stands below `tests/core` and the like belongs to its row, and
must pass, but proves it to nobody. `make spec ROWS=H` lists the tests of the rows that begin so instead.
"""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SPECIFICATION = ROOT / "docs" / "specification.md"
RESULTS = ".spec-results.json"

# Where tests run the program: its sockets, its database, its commands.
PROVING = (
    *("tests/api/", "tests/browser/", "tests/cli/", "tests/clients/", "tests/e2e/", "tests/faults/"),
    *("tests/realmodel/", "tests/wire/"),
    # S16 is about lists, ten thousand of them; C09 about the database.
    *("tests/core/view/test_random_histories.py", "tests/storage/test_recall_schema.py"),
    # C14 on both databases.
    "tests/storage/test_recall_order.py",
)

_RELEASE = re.compile(r"^## (.+)$")
_ROW = re.compile(r"^\| ([A-FHPSW]\d{1,2}) \| (.+) \|$")


def releases() -> dict[str, dict[str, str]]:
    """Release -> row -> what must hold, in the document's order."""
    found: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for line in SPECIFICATION.read_text(encoding="utf-8").splitlines():
        if heading := _RELEASE.match(line):
            current = found[heading[1]] = {}
        elif row := _ROW.match(line):
            current[row[1]] = row[2]
    return found


def specification_rows() -> frozenset[str]:
    """Every row there is."""
    return frozenset(row for rows in releases().values() for row in rows)


def proved_rows(results: Path) -> frozenset[str]:
    """Rows with at least one test of the running program, all of whose tests passed when last run."""
    try:
        entries = json.loads(results.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return frozenset()
    passed = {row for test, entry in entries.items() if test.startswith(PROVING) for row in entry["rows"]}
    failed = {row for entry in entries.values() if not entry["passed"] for row in entry["rows"]}
    return frozenset(passed - failed)


def carriers(row: str) -> list[str]:
    """The files that run the program and mark a test with the row, whether it was run or not."""
    return [name for name, text in _marked().items() if f'"{row}"' in text]


@cache
def _marked() -> dict[str, str]:
    names = {path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "tests").rglob("test_*.py"))}
    texts = {name: names[name].read_text(encoding="utf-8") for name in names if name.startswith(PROVING)}
    return {name: text for name, text in texts.items() if "mark.spec" in text}


def report(proved: frozenset[str]) -> str:
    """One block a release: how many rows are proved, then those that are not, and who would prove them."""
    blocks = []
    for release, rows in releases().items():
        missing = {row: text for row, text in rows.items() if row not in proved}
        head = f"{release}: {len(rows) - len(missing)} of {len(rows)} rows proved"
        lines = [
            f"  {row:4} {text} [{', '.join(carriers(row)) or 'no test'}]" for row, text in missing.items()
        ]
        blocks.append("\n".join([head, *lines]))
    return "\n\n".join(blocks)


def proofs(results: Path, beginning: str) -> str:
    """Each row whose name begins so, and under it the tests that are meant to prove it, by file."""
    try:
        entries = json.loads(results.read_text(encoding="utf-8"))
    except FileNotFoundError:
        entries = {}
    lines = []
    rows = {row: text for release in releases().values() for row, text in release.items()}
    for row in sorted(row for row in rows if row.startswith(beginning)):
        named = [(test, entry["passed"]) for test, entry in entries.items() if row in entry["rows"]]
        # One line for all the cases of a test.
        tests = {test.partition("[")[0] for test, _ in named}
        failed = {test.partition("[")[0] for test, passed in named if not passed}
        lines.append(f"{row} {rows[row]}")
        lines += [f"     {test}{'  FAILED' if test in failed else ''}" for test in sorted(tests)]
    return "\n".join(lines)


if __name__ == "__main__":
    record = ROOT / RESULTS
    told = proofs(record, sys.argv[1]) if len(sys.argv) > 1 else report(proved_rows(record))
    sys.stdout.write(told + "\n")
