"""Snippets of configuration in the docs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import yaml

_PAGE = Path(__file__).parents[2] / "docs" / "presets.md"


def snippet(name: str) -> dict[str, Any]:
    """The settings under `# name` in docs/presets.md, by their dotted names."""
    text = _PAGE.read_text(encoding="utf-8")
    (found,) = re.findall(rf"^    # {name}\b.*\n((?:    .+\n)+)", text, re.MULTILINE)
    return dict(_dotted(yaml.safe_load(dedent(found))))


def _dotted(tree: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{before}{key}.")
        else:
            yield before + key, value
