"""`python -m tests.clients [--write docs/clients.md]`: installs the clients and runs their tests.

The exit code is 0 when every check passed and docs/clients.md says what this run found. With `--write` the
page is made to say it; `-k` chooses tests as pytest's does, and the page is left alone.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from tests.clients.install import install
from tests.clients.matrix import Matrix, block_of, write
from tests.clients.roster import CLIENTS, HERE
from tests.house.sources import ROOT

PAGE = ROOT / "docs" / "clients.md"


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients")
    parser.add_argument("--write", type=Path, help="the page whose matrix is to be written")
    parser.add_argument("-k", dest="keyword", help="only tests that match, as pytest's -k")
    given = parser.parse_args()
    install()
    matrix = Matrix()
    chosen = ["-k", given.keyword] if given.keyword else []
    code = int(pytest.main(["-q", str(HERE), *chosen], plugins=[matrix]))
    tables = matrix.text(CLIENTS)
    sys.stdout.write(f"\n{tables}\n")
    if code or given.keyword:
        return code
    if given.write:
        write(given.write, tables)
    elif block_of(PAGE) != tables:
        sys.stdout.write(f"{PAGE} says something else. python -m tests.clients --write {PAGE}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
