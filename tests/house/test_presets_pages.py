"""Every preset has a page, and the table of their numbers has the presets' own."""

from __future__ import annotations

import dataclasses
import json

import pytest
from palimpsest.core.presets import PRESETS
from palimpsest.settings.settings import known_keys

from tests.house.sources import ROOT

PAGE = ROOT / "docs" / "presets.md"


def numbers() -> str:
    """A row for each setting that some preset sets otherwise than `auto`; empty where it does not."""
    rows = [f"| setting | {' | '.join(f'`{name}`' for name in PRESETS)} |", "|---" * (1 + len(PRESETS)) + "|"]
    for field in dataclasses.fields(PRESETS["auto"]):
        keys = {f"policy.{field.name}", f"policy.advanced.{field.name}"} & set(known_keys())
        values = [getattr(preset, field.name) for preset in PRESETS.values()]
        if keys and field.name != "name" and len(set(values)) > 1:
            shown = [json.dumps(value) if value != values[0] else "" for value in values[1:]]
            rows.append(
                f"| `{keys.pop()}` | {json.dumps(values[0])} | {' | '.join(shown)} |".replace("|  |", "| |")
            )
    return "\n".join(rows).replace("|  |", "| |") + "\n"


def test_the_table_has_the_numbers_of_the_presets() -> None:
    assert numbers() in PAGE.read_text(encoding="utf-8"), numbers()


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_a_page_that_says_what_one_wants_to_know(name: str) -> None:
    text = (PAGE.parent / "presets" / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}\n")
    for heading in ("When to use it", "What the model sees", "Settings", "What it costs"):
        assert f"\n## {heading}\n" in text
