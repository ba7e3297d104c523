"""The page of the command line names every command, and no other."""

from __future__ import annotations

import re
from typing import Any

from palimpsest.cli.main import app
from typer.main import get_command

from tests.house.sources import ROOT

PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
# A command at the beginning of a shown line, or first in a code span of the table.
_SHOWN = re.compile(r"^    palimpsest ([a-z]+)", re.MULTILINE)
_ROW = re.compile(r"^\| (`[^|]+) \|", re.MULTILINE)


# In prose: a code span. Shown lines of other pages have arguments that only a shell reads.
_SPAN = re.compile(r"`palimpsest ([a-z]+)(?: ([a-z]+))?")
_REQUEST = re.compile(r"`(?:GET|POST|PATCH|DELETE) ((?:/api|/ui)[^`?]*)`|`(/ui[^`?]*)`")


def test_pages_name_commands_that_exist() -> None:
    commands: Any = get_command(app).commands  # type: ignore[attr-defined]
    wrong = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for name, inner in _SPAN.findall(page.read_text(encoding="utf-8")):
            group = getattr(commands.get(name), "commands", None)
            if name not in commands or (group is not None and inner and inner not in group):
                wrong.append((page.name, name, inner))
    assert wrong == []


def test_what_people_ask_for_is_answered_by_endpoints_that_exist() -> None:
    described = (ROOT / "docs" / "http-api.md").read_text(encoding="utf-8")
    asked = {path or page for path, page in _REQUEST.findall((ROOT / "docs" / "expected.md").read_text())}
    assert len(asked) > 5
    assert [path for path in asked if f" {path}`" not in described and path not in ("/ui",)] == []


def test_the_page_names_every_command_and_no_other() -> None:
    rows = [re.findall(r"`([a-z]+)", row) for row in _ROW.findall(PAGE)]
    named = {*_SHOWN.findall(PAGE), *(name for row in rows for name in row)}
    commands = set(get_command(app).commands)  # type: ignore[attr-defined]
    assert named == commands
    assert "erase" in named
