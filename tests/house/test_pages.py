"""Every file, link and setting that the documentation names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from palimpsest.settings.removed import REMOVED
from palimpsest.settings.settings import Settings, known_keys
from palimpsest.settings.upstreams import ModelSettings

from tests.house.sources import ROOT, sources

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
_PATH = re.compile(r"`((?:app|tests|migrations|docs|scripts|benchmarks)/[\w./-]*)`")
# The one page whose paths are relative to the package: a name with a folder, or that of a Python file.
_ARCHITECTURE = ROOT / "docs" / "architecture.md"
_PACKAGE = ROOT / "app" / "palimpsest"
_RELATIVE = re.compile(r"`((?:\w+/)+(?:\w+\.\w+)?|\w+\.py)`")
_SETTING = re.compile(rf"`((?:{'|'.join(Settings.model_fields)})\.[a-z_.]+)(?:[:=`]| )")
# Entries of a list, and the section within a section.
_MORE = {"policy.advanced", *(f"models.{name}" for name in ModelSettings.model_fields)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_names_is_there(page: Path) -> None:
    # What a released version was called stays as it was.
    text = page.read_text(encoding="utf-8").partition("\n## [0.")[0]
    links = [name for name in _LINK.findall(text) if not (page.parent / name).exists()]
    paths = [name for name in _PATH.findall(text) if not (ROOT / name).exists()]
    # What was removed is named by history alone.
    is_history = page.name == "CHANGELOG.md" or page.parent.name == "decisions"
    known = {*known_keys(), *_MORE, *(REMOVED if is_history else ())}
    assert (links, paths, sorted({*_SETTING.findall(text)} - known)) == ([], [], [])


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 650


def test_the_paths_of_the_architecture_are_there() -> None:
    paths = _RELATIVE.findall(_ARCHITECTURE.read_text(encoding="utf-8"))
    assert len(paths) > 50
    assert [path for path in paths if not any((base / path).exists() for base in (_PACKAGE, ROOT))] == []


def test_the_architecture_names_every_room() -> None:
    text = _ARCHITECTURE.read_text(encoding="utf-8")
    rooms = {path.parent for path in _PACKAGE.rglob("__init__.py")} - {_PACKAGE}
    assert [str(room) for room in sorted(rooms) if not re.search(rf"\b{room.name}/", text)] == []


def test_the_patterns_see_what_they_should() -> None:
    """The control."""
    assert _LINK.findall("[a](b.md) [c](https://d) [e](f.md#g)") == ["b.md", "f.md"]
    assert _PATH.findall("`app/main.py`, `app.py`") == ["app/main.py"]
    assert _RELATIVE.findall("`core/a.py`, `b.py`, `api/`, `x.y`, `api`") == ["core/a.py", "b.py", "api/"]
    assert _SETTING.findall("`access.mode: keys` `policy.no_such`") == ["access.mode", "policy.no_such"]


def test_every_setting_has_an_effect() -> None:
    """A setting has an effect when something reads an attribute of its name."""
    read = {n.attr for s in sources("app") for n in ast.walk(s.tree) if isinstance(n, ast.Attribute)}
    assert [key for key in known_keys() if key.rsplit(".", 1)[-1] not in read] == []
