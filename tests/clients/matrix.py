"""The matrix of clients and checks: gathered while the tests run, written as a table.

Knows nothing of how the tests are run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.clients.roster import Client

BEGIN, END = "<!-- matrix -->\n", "<!-- end of the matrix -->\n"
COLUMNS = {
    "test_same_results": "same results",
    "test_same_bytes": "same bytes",
    "test_valid_prompts": "valid prompts",
    "test_whole_archive": "whole archive",
    "test_own_session": "own session",
    "test_no_other_host": "no other host",
}


class Matrix:
    """A pytest plugin that keeps how each check of each client ended, and each further test.

    Those are named by what their docstrings say.
    """

    def __init__(self) -> None:
        self._asked: dict[str, tuple[str, str]] = {}
        self._passed: dict[str, bool] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Which test asks what of whom."""
        for item in items:
            name = getattr(item, "originalname", item.name)
            if name in COLUMNS and isinstance(item, pytest.Function):
                client: Any = item.callspec.params["client"]
                self._asked[item.nodeid] = client.name, COLUMNS[name]
            elif isinstance(item, pytest.Function):
                self._asked[item.nodeid] = "", (item.function.__doc__ or name).rstrip(".")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Setup, call and teardown must all pass."""
        self._passed[report.nodeid] = self._passed.get(report.nodeid, True) and report.passed

    def text(self, clients: Sequence[Client]) -> str:
        """Two tables in Markdown: every client against every check, and the further tests."""
        ended: dict[tuple[str, str], bool] = {}
        for node, passed in self._passed.items():
            asked = self._asked[node]
            ended[asked] = ended.get(asked, True) and passed
        rows = [["client", "version", *COLUMNS.values()]]
        for client in clients:
            cells = [_cell(ended.get((client.name, title))) for title in COLUMNS.values()]
            rows.append([client.name, client.version, *cells])
        further = [[name, _cell(passed)] for (client_name, name), passed in ended.items() if not client_name]
        tables = [_table(rows)]
        if further:
            tables.append(_table([["further checks", ""], *sorted(further)]))
        return "\n".join(tables)


def _cell(passed: bool | None) -> str:
    return {True: "yes", False: "NO", None: "-"}[passed]


def _table(rows: list[list[str]]) -> str:
    head, *rest = rows
    lines = [head, ["---"] * len(head), *rest]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def block_of(page: Path) -> str:
    """What stands on the page between the two markers; empty without them."""
    text = page.read_text(encoding="utf-8")
    return text.partition(BEGIN)[2].partition(END)[0]


def write(page: Path, tables: str) -> None:
    """The tables stand on the page in place of the earlier ones."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(before + BEGIN + tables + END + after, encoding="utf-8")
