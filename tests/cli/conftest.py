"""A terminal in a folder of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kit.terminal import Terminal, variables_of


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    for name in os.environ:
        if name.startswith("PALIMPSEST_"):
            monkeypatch.delenv(name)
    for name, value in variables_of(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return Terminal(tmp_path, capsys)
