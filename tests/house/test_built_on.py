"""Every dependency of pyproject.toml has a row that says what it does here, and no other has."""

from __future__ import annotations

import re
import tomllib

from tests.house.sources import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_ROW = re.compile(r"^\| `([\w-]+)` \| \S", re.MULTILINE)


def names(requirements: list[str]) -> list[str]:
    return sorted(re.match(r"[\w-]+", each)[0] for each in requirements)  # type: ignore[index]


def rows(heading: str) -> list[str]:
    text = (ROOT / "docs" / "built-on.md").read_text(encoding="utf-8")
    return sorted(_ROW.findall(text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]))


def test_every_dependency_has_its_row() -> None:
    extras = dict(PROJECT["optional-dependencies"])
    assert rows("Always installed") == names(PROJECT["dependencies"])
    assert rows("Development only") == names(extras.pop("dev"))
    assert rows("Extras") == names([each for extra in extras.values() for each in extra])


def test_a_missing_row_would_be_noticed() -> None:
    """The control."""
    assert rows("Always installed") != names([*PROJECT["dependencies"], "one-more>=1"])
    assert names(["sqlalchemy[asyncio]>=2.1", "uvloop>=0.23; sys_platform != 'win32'"]) == [
        "sqlalchemy",
        "uvloop",
    ]
