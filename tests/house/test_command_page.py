"""The page of the command line names every command, and no other."""

from __future__ import annotations

import re

from palimpsest.cli.main import app
from typer.main import get_command

from tests.house.sources import ROOT

PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
# A command at the beginning of a shown line, or first in a code span of the table.
_SHOWN = re.compile(r"^    palimpsest ([a-z]+)", re.MULTILINE)
_ROW = re.compile(r"^\| (`[^|]+) \|", re.MULTILINE)


def test_the_page_names_every_command_and_no_other() -> None:
    rows = [re.findall(r"`([a-z]+)", row) for row in _ROW.findall(PAGE)]
    named = {*_SHOWN.findall(PAGE), *(name for row in rows for name in row)}
    commands = set(get_command(app).commands)  # type: ignore[attr-defined]
    assert named == commands
    assert "erase" in named
