"""No test is skipped where something is missing: it fails (C23)."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.house.sources import ROOT, Source, sources

TESTS = sources("tests")
SKIPS = frozenset(
    {"skip", "skipif", "skip_if", "skipIf", "skipUnless", "skipTest", "SkipTest", "xfail", "importorskip"}
)
# What a test of the tools names.
TOOLS = re.compile(r"context_(?:grep|describe)|/api/context/|kit\.recalls")
# It proves no row: the run below must not enter a failure for one.
ON_POSTGRES = "tests/storage/test_recall.py::test_a_stretch_is_added_once[postgresql]"


def skips_in(source: Source) -> Iterator[str]:
    """Each place where a test may be left out, as it is written."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Attribute | ast.Name):
            continue
        if (node.attr if isinstance(node, ast.Attribute) else node.id) in SKIPS:
            line = source.text.splitlines()[node.lineno - 1]
            yield line.strip()


@pytest.mark.spec("C23")
def test_no_test_is_skipped() -> None:
    assert {source.name: found for source in TESTS if (found := list(skips_in(source)))} == {}


@pytest.mark.spec("C23")
def test_the_tests_of_the_tools_are_among_those_looked_at() -> None:
    named = {source.name for source in TESTS if TOOLS.search(source.text)}
    assert {"tests/api/test_recall.py", "tests/e2e/test_recall_rounds.py"} <= named


@pytest.mark.parametrize(
    "line",
    [
        "pytest.skip('no FTS5 here')",
        "mark = pytest.mark.skipif(True, reason='FTS5')",
        "from pytest import xfail\nxfail()",
    ],
)
def test_a_skip_is_seen(line: str) -> None:
    source = Source(ROOT / "tests/storage/test_x.py")
    vars(source).update(text=line, tree=ast.parse(line))
    assert list(skips_in(source))


@pytest.mark.spec("C23")
def test_a_missing_database_server_fails_the_tests() -> None:
    """On a PostgreSQL that is not there a test neither passes nor is skipped."""
    environ = {**os.environ, "PALIMPSEST_TEST_POSTGRES": "postgresql://nobody@127.0.0.1:1/postgres"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", ON_POSTGRES]
    run = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=100)
    assert run.returncode == 1, run.stdout + run.stderr
    assert re.search(r"^1 error in", run.stdout, re.MULTILINE), run.stdout
    assert "skipped" not in run.stdout


@pytest.mark.spec("C23")
def test_the_check_of_a_change_runs_every_test_with_a_database_server() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(r"^set -euo pipefail$", script, re.MULTILINE)
    assert script.index("\nstart_postgresql\n") < script.index("\nmake test-all\n")
    recipe = re.search(r"^test: .*\n\t(.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert recipe is not None
    assert not re.search(r"\s(?:-k|-m (?!pytest)|--deselect|--maxfail)|\|\|", recipe[1])
