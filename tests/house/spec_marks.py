"""A pytest plugin that records, row by row, which tests marked `spec` passed.

The record is `.spec-results.json` beside pyproject.toml. A run of some tests updates their entries,
a run of all of them replaces the record. Where the tests run in several processes, each test's rows travel
with its reports to the one that writes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypedDict

import pytest

from tests.house.spec import RESULTS, specification_rows

_PROPERTY = "spec"


class Result(TypedDict):
    """One test: the rows it is meant to prove, and whether every phase of it passed."""

    rows: list[str]
    passed: bool


class SpecRecorder:
    """Collects results while the tests run and writes them at the end, unless another process does."""

    def __init__(self, file: Path, *, writes: bool = True) -> None:
        self._file = file
        self._writes = writes
        self._results: dict[str, Result] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """A mark that names no row of the specification is an error of the test."""
        known = specification_rows()
        for item in items:
            rows = [str(row) for mark in item.iter_markers("spec") for row in mark.args]
            if strangers := [row for row in rows if row not in known]:
                raise pytest.UsageError(f"{item.nodeid}: not rows of docs/specification.md: {strangers}")
            if rows:
                item.user_properties.append((_PROPERTY, rows))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test passes when setup, call and teardown do; a skipped one proves nothing."""
        carried: dict[str, Any] = dict(report.user_properties)
        if rows := carried.get(_PROPERTY):
            result = self._results.setdefault(report.nodeid, {"rows": rows, "passed": True})
            result["passed"] = result["passed"] and report.passed

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """The record is on disk."""
        if not self._results or not self._writes:
            return
        whole = session.config.args_source is pytest.Config.ArgsSource.TESTPATHS
        filtered = any(map(session.config.getoption, ("keyword", "markexpr", "quick")))
        earlier = {} if whole and not filtered else _read(self._file)
        text = json.dumps(earlier | self._results, indent=1, sort_keys=True)
        self._file.write_text(text + "\n", encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """The recorder is at work, unless only a list of tests was asked for."""
    if not config.getoption("collectonly"):
        writes = not hasattr(config, "workerinput")
        config.pluginmanager.register(SpecRecorder(config.rootpath / RESULTS, writes=writes), "spec-recorder")


def _read(file: Path) -> dict[str, Result]:
    try:
        content: dict[str, Result] = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return content
