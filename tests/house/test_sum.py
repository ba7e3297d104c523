"""The gate: no sum of the house is above its ceiling, and no ceiling was ever raised (`ledger.toml`)."""

from __future__ import annotations

import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from tests.house.calls import SCENES, calls_of
from tests.house.ledger import LEDGER, ledger, lowered, over, sums, surface
from tests.house.sources import ROOT


def test_no_sum_is_above_its_ceiling() -> None:
    assert list(over(sums() | surface(), ledger())) == []


@pytest.mark.parametrize("scene", SCENES)
def test_no_turn_calls_more_than_its_ceiling(scene: str) -> None:
    assert list(over({f"calls.{scene}": calls_of(scene)}, ledger())) == []


def test_no_ceiling_was_raised() -> None:
    file = LEDGER.relative_to(ROOT).as_posix()
    commits = _git("log", "--format=%H", "--", file).split()
    versions = [tomllib.loads(_git("show", f"{commit}:{file}")) for commit in commits]
    assert _raised([ledger(), *versions]) == []


def test_the_gate_sees_a_module_too_many(tmp_path: Path) -> None:
    """The control: a hundred lines more are seen in the package and in their room, and so is a new room."""
    package = tmp_path / "app" / "palimpsest"
    (package / "storage").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (package / "storage" / "rows.py").write_text('"""Rows."""\n\nROWS = 1\n', encoding="utf-8")
    before = {name: {"ceiling": number} for name, number in sums(tmp_path).items()}
    assert list(over(sums(tmp_path), before)) == []

    lines = [f"NUMBER_{i} = {i}  # Not counted." for i in range(100)]
    (package / "storage" / "more.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    after = sums(tmp_path)
    assert [after[n] - before[n]["ceiling"] for n in ("tokens", "lines", "files")] == [300, 100, 1]
    assert len(list(over(after, before))) == len(("tokens", "lines", "files")) * 2 + len(["head_lines"])
    (package / "cellar.py").write_text("A = 1\n", encoding="utf-8")
    assert "room.cellar.tokens is 3 and stands in no row of ledger.toml" in list(over(sums(tmp_path), before))


def test_a_raised_ceiling_is_seen() -> None:
    """The control of the other: from the newest version to the oldest."""
    versions = [{"lines": {"ceiling": n}, "files": {"ceiling": 9 - n}} for n in (5, 4, 5)]
    assert _raised(versions) == ["files: 4 to 5", "lines: 4 to 5"]


def test_lowering_takes_the_lower_of_both() -> None:
    rows = {"lines": {"ceiling": 9, "goal": 4}, "files": {"ceiling": 2}, "room.cellar.lines": {"ceiling": 1}}
    assert lowered({"lines": 7, "files": 3}, rows).splitlines()[-2:] == [
        "lines = { ceiling = 7, goal = 4 }",
        "files = { ceiling = 2 }",
    ]


def _raised(versions: list[dict[str, dict[str, int]]]) -> list[str]:
    return sorted(
        f"{name}: {older[name]['ceiling']} to {row['ceiling']}"
        for newer, older in pairwise(versions)
        for name, row in newer.items()
        if name in older and row["ceiling"] > older[name]["ceiling"]
    )


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout
