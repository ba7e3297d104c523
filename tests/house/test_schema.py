"""The JSON Schema accepts what the loader accepts, and refuses what it refuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from palimpsest.errors import SettingsError
from palimpsest.settings.fields import keys_of, section_of, value_at
from palimpsest.settings.load import LISTS, load_settings
from palimpsest.settings.reference import EXAMPLE, SCHEMA
from palimpsest.settings.settings import Settings

from tests.house.schema import CONTENT, refusals_of
from tests.house.sources import ROOT

SECTIONS = [key for key, field in Settings.model_fields.items() if section_of(field.annotation)]
# What pages show of a file: an indented block that begins with a section, or a list of entries.
_SHOWN = re.compile(rf"(?m)^    (?:{'|'.join(Settings.model_fields)}):.*\n(?: {{4}}.*\n)*")


def test_it_is_a_schema_that_refuses_unknown_keys_everywhere() -> None:
    Draft202012Validator.check_schema(CONTENT)
    for there in (CONTENT, *CONTENT["$defs"].values()):
        assert there["additionalProperties"] is False


def test_the_example_is_valid_and_names_the_schema() -> None:
    text = (ROOT / EXAMPLE).read_text(encoding="utf-8")
    assert refusals_of(yaml.safe_load(text)) == []
    (named,) = re.findall(r"\A# yaml-language-server: \$schema=(\S+)\n", text)
    assert (ROOT / EXAMPLE).parent / named == ROOT / SCHEMA


def test_what_pages_show_of_a_file_is_valid() -> None:
    shown = {
        f"{page.name}: {block.strip().splitlines()[0]}": yaml.safe_load(block)
        for page in sorted((ROOT / "docs").rglob("*.md"))
        for block in _SHOWN.findall(page.read_text(encoding="utf-8"))
    }
    assert len(shown) >= 5
    assert {name: found for name, content in shown.items() if (found := refusals_of(content))} == {}


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_has_its_settings_with_their_defaults_and_a_reason(section: str) -> None:
    for key, field in keys_of(Settings).items():
        if not key.startswith(f"{section}."):
            continue
        made = _property(key)
        assert str(field.description) in made["description"]
        assert " Why: " in made["description"]
        assert made["default"] == value_at(Settings().model_dump(mode="json"), key) or key == "database.url"
    assert refusals_of({section: None}) == []
    assert refusals_of({section: {"none_such": 1}})


def _property(key: str) -> Any:
    *sections, leaf = key.split(".")
    there = CONTENT
    for section in sections:
        found = there["properties"][section]
        (reference,) = (each["$ref"] for each in found.get("anyOf", [found]) if "$ref" in each)
        there = CONTENT["$defs"][reference.rpartition("/")[2]]
    return there["properties"][leaf]


@pytest.mark.parametrize(
    "text",
    [
        "server: {port: 99999}",
        "server: {port: eighty}",
        "server: 5",
        "serve: {port: 1}",
        "policy: {trigger_ratio: 0.99}",
        "policy: {name: best}",
        "policy: {advanced: {tail_ratio: 0.9}}",
        "models: [{window_tokens: 4096}]",
        "models: [{match: a, policy: {trigger: 0.8}}]",
        "models: [{match: a, prices: {inptu: 1}}]",
        "routes: [{match: a}]",
        "upstream: {headers: [a]}",
        "database: {synchronous: sometimes}",
        "limits: {messages: null}",
    ],
)
def test_what_a_start_refuses_an_editor_marks(text: str, tmp_path: Path) -> None:
    file = tmp_path / "palimpsest.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError):
        load_settings(file, {}, {})
    assert refusals_of(yaml.safe_load(text))


def test_it_has_no_secret() -> None:
    """Of what may be secret only the defaults are there."""
    secret = [key for key in keys_of(Settings) if "writeOnly" in str(_property(key))]
    assert {"upstream.api_key", "database.url", "telemetry.metrics_key"} <= set(secret)
    allowed: tuple[Any, ...] = (None, {}, Settings().database.url.get_secret_value())
    assert [key for key in secret if _property(key)["default"] not in allowed] == []
    assert set(LISTS) <= CONTENT["properties"].keys()
