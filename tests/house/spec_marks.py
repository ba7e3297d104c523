"""A pytest plugin that records, row by row, which tests marked `spec` passed.

The record is `.spec-results.json` beside pyproject.toml. A run of some tests updates their entries,
a run of all of them replaces the record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

import pytest

from tests.house.spec import RESULTS, specification_rows


class Result(TypedDict):
    """One test: the rows it is meant to prove, and whether every phase of it passed."""

    rows: list[str]
    passed: bool


class SpecRecorder:
    """Collects results while the tests run and writes them at the end."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._rows: dict[str, list[str]] = {}
        self._results: dict[str, Result] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """A mark that names no row of the specification is an error of the test."""
        known = specification_rows()
        for item in items:
            rows = [str(row) for mark in item.iter_markers("spec") for row in mark.args]
            if strangers := [row for row in rows if row not in known]:
                raise pytest.UsageError(f"{item.nodeid}: not rows of docs/specification.md: {strangers}")
            if rows:
                self.rows_of({item.nodeid: rows})

    def rows_of(self, rows: Mapping[str, list[str]]) -> None:
        """These tests are meant to prove these rows."""
        self._rows |= rows

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test passes when setup, call and teardown do; a skipped one proves nothing."""
        if rows := self._rows.get(report.nodeid):
            result = self._results.setdefault(report.nodeid, {"rows": rows, "passed": True})
            result["passed"] = result["passed"] and report.passed

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """The record is on disk."""
        if not self._results:
            return
        whole = session.config.args_source is pytest.Config.ArgsSource.TESTPATHS
        filtered = session.config.getoption("keyword") or session.config.getoption("markexpr")
        earlier = {} if whole and not filtered else _read(self._file)
        text = json.dumps(earlier | self._results, indent=1, sort_keys=True)
        self._file.write_text(text + "\n", encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """The recorder is at work, unless only a list of tests was asked for."""
    if not config.getoption("collectonly"):
        config.pluginmanager.register(SpecRecorder(config.rootpath / RESULTS), "spec-recorder")


def _read(file: Path) -> dict[str, Result]:
    try:
        content: dict[str, Result] = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return content
