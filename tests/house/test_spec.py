"""The record of proved rows says no more than the tests proved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.house.spec import proofs, proved_rows, releases, report, specification_rows
from tests.house.spec_marks import SpecRecorder

SIZES = {"A": 47, "B": 18, "C": 23, "D": 25, "E": 12, "F": 38, "H": 20, "P": 11, "S": 16, "W": 56}


def test_the_specification_has_every_row_once() -> None:
    rows = [row for release in releases().values() for row in release]
    wanted = [
        f"{kind}{n:02d}" if kind not in "PS" else f"{kind}{n}"
        for kind, size in SIZES.items()
        for n in range(1, size + 1)
    ]
    assert sorted(rows) == sorted(wanted)


def test_every_release_owes_something() -> None:
    assert [name for name, rows in releases().items() if not rows] == []


def test_a_row_is_proved_by_the_running_program_when_all_its_tests_passed(tmp_path: Path) -> None:
    record = {
        "tests/e2e/t.py::one": {"rows": ["A01", "A02"], "passed": True},
        "tests/core/t.py::two": {"rows": ["A02"], "passed": False},
        "tests/wire/t.py::three": {"rows": ["P1"], "passed": True},
        "tests/core/t.py::four": {"rows": ["P1", "P2"], "passed": True},
    }
    file = tmp_path / "results.json"
    file.write_text(json.dumps(record), encoding="utf-8")
    assert proved_rows(file) == {"A01", "P1"}


def test_a_row_without_proof_says_who_would_prove_it() -> None:
    lines = {line.split()[0]: line for line in report(frozenset()).split("\n") if line.startswith("  ")}
    assert lines["W25"].endswith("[tests/clients/test_clients.py]")
    assert lines["E12"].endswith("[no test]")
    assert [row for row, line in lines.items() if line.endswith("[no test]")] == ["E12"]


def test_the_tests_of_a_row_are_listed_once_each(tmp_path: Path) -> None:
    record = {
        "t::one[a]": {"rows": ["H01"], "passed": True},
        "t::one[b]": {"rows": ["H01"], "passed": True},
        "t::two": {"rows": ["H01", "H02"], "passed": False},
    }
    file = tmp_path / "results.json"
    file.write_text(json.dumps(record), encoding="utf-8")
    lines = proofs(file, "H01").split("\n")
    assert lines[0].startswith("H01 ")
    assert lines[1:] == ["     t::one", "     t::two  FAILED"]


def test_without_a_record_nothing_is_proved(tmp_path: Path) -> None:
    assert proved_rows(tmp_path / "none.json") == frozenset()


def test_the_report_lists_what_is_missing_by_release() -> None:
    nothing, everything = report(frozenset()), report(specification_rows())
    assert "  A01 " in nothing
    assert [name for name in releases() if name not in nothing] == []
    assert "  A01 " not in everything


def test_a_test_that_fails_in_teardown_or_is_skipped_proves_nothing(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    recorder = SpecRecorder(tmp_path / "results.json")
    folder = "tests/e2e/t.py::"
    rows = {f"{folder}torn": ["A01"], f"{folder}skipped": ["A02"], f"{folder}fine": ["A03"]}
    for name, phases in {
        f"{folder}torn": ("passed", "passed", "failed"),
        f"{folder}skipped": ("skipped", "passed"),
        f"{folder}fine": ("passed", "passed", "passed"),
    }.items():
        for phase, outcome in zip(("setup", "call", "teardown"), phases, strict=False):
            recorder.pytest_runtest_logreport(_report(name, rows[name], phase, outcome))
    recorder.pytest_sessionfinish(request.session)
    assert proved_rows(tmp_path / "results.json") == {"A03"}


def _report(name: str, rows: list[str], phase: str, outcome: str) -> pytest.TestReport:
    carried = [("spec", rows)]
    return pytest.TestReport(name, ("t", 0, name), {}, outcome, None, phase, user_properties=carried)  # type: ignore[arg-type]
