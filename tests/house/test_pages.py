"""Every file, link and setting that the documentation names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from app.settings.models import ModelSettings
from app.settings.refusal import known_keys
from app.settings.settings import Settings
from tests.house.sources import ROOT, sources

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
_PATH = re.compile(r"`((?:app|tests|migrations|docs|scripts|benchmarks)/[\w./-]*)`")
_SETTING = re.compile(rf"`((?:{'|'.join(Settings.model_fields)})\.[a-z_]+)(?:[:=`]| )")
_MODEL_SETTING = {f"models.{name}" for name in ModelSettings.model_fields}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [name for name in _LINK.findall(text) if not (page.parent / name).exists()]
    paths = [name for name in _PATH.findall(text) if not (ROOT / name).exists()]
    named = set(_SETTING.findall(text))
    assert (links, paths, sorted(named - _MODEL_SETTING - set(known_keys()))) == ([], [], [])


def test_the_patterns_see_what_they_should() -> None:
    """The control."""
    assert _LINK.findall("[a](b.md) [c](https://d) [e](f.md#g)") == ["b.md", "f.md"]
    assert _PATH.findall("`app/main.py`, `app.py`") == ["app/main.py"]
    assert _SETTING.findall("`access.mode: keys` `policy.no_such`") == ["access.mode", "policy.no_such"]


def test_every_setting_has_an_effect() -> None:
    """A setting has an effect when something reads an attribute of its name."""
    read = {n.attr for s in sources("app") for n in ast.walk(s.tree) if isinstance(n, ast.Attribute)}
    assert [key for key in known_keys() if key.rsplit(".", 1)[-1] not in read] == []
