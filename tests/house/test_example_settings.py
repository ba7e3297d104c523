"""`config.example.yaml` and the code say the same: the same keys, defaults, units and reasons."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from app.settings.example import example
from app.settings.load import load_settings
from app.settings.models import ModelSettings
from app.settings.refusal import known_keys
from app.settings.routes import Route
from app.settings.settings import Settings
from tests.house.sources import ROOT, sources

EXAMPLE = ROOT / "config.example.yaml"
# A time, a size or a share carries its unit at the end of its name.
UNITS = re.compile(r"_(seconds|tokens|bytes|chars|ratio|share)(_per_day)?$")
NUMBERS_OF_THINGS = re.compile(
    r"^(port|depth|\w*messages|max_connections|concurrent_\w+|waiting_appends|overflow_retries|rounds|summary_attempts"
    r"|breaker_failures|rebuild_every|max_tool_results|event_streams|import_events)$"
)
LEAVES = known_keys()


def test_the_file_is_what_the_code_renders() -> None:
    assert EXAMPLE.read_text(encoding="utf-8") == example(), (
        "python -m app.settings.example > config.example.yaml"
    )


def test_the_file_sets_every_default() -> None:
    assert load_settings(EXAMPLE, {}, {}) == Settings()


def test_the_file_has_every_setting_and_no_other() -> None:
    content = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    flat = [
        f"{section}.{key}" if isinstance(inner, dict) else section
        for section, inner in content.items()
        for key in (inner if isinstance(inner, dict) else [None])
    ]
    assert flat == LEAVES


@pytest.mark.parametrize("key", LEAVES)
def test_every_setting_says_what_it_does_in_what_unit_and_why(key: str) -> None:
    *sections, leaf = key.split(".")
    model: type[BaseModel] = Settings
    for section in sections:
        inner = model.model_fields[section].annotation
        assert isinstance(inner, type)
        model = inner
    field = model.model_fields[leaf]
    extra = field.json_schema_extra
    assert isinstance(extra, dict)
    assert field.description
    assert field.description.endswith(".")
    assert str(extra["why"]).endswith(".")
    assert extra["unit"]


@pytest.mark.parametrize("key", LEAVES)
def test_a_number_names_its_unit(key: str) -> None:
    *sections, leaf = key.split(".")
    default: object = Settings()
    for part in (*sections, leaf):
        default = getattr(default, part)
    is_number = isinstance(default, int | float) and not isinstance(default, bool)
    assert not is_number or UNITS.search(leaf) or NUMBERS_OF_THINGS.match(leaf)


@pytest.mark.parametrize(("section", "entry"), [("models", ModelSettings), ("routes", Route)])
def test_the_commented_entry_of_a_list_can_be_used(
    section: str, entry: type[BaseModel], tmp_path: Path
) -> None:
    lines = EXAMPLE.read_text(encoding="utf-8").split(f"\n{section}: []\n")[1].split("\n\n")[0].splitlines()
    options = [line[1:] for line in lines if not line[1:].strip().startswith("#")]
    file = tmp_path / "list.yaml"
    file.write_text(f"{section}:\n" + "\n".join(options), encoding="utf-8")
    (made,) = getattr(load_settings(file, {}, {}), section)
    assert isinstance(made, entry)
    assert {line.split(":")[0].strip(" -") for line in options} == set(entry.model_fields)


def test_every_setting_is_used() -> None:
    """A setting that nothing reads is a promise nobody keeps."""
    code = "\n".join(s.text for s in sources("app") if not s.name.startswith("app/settings/"))
    in_policy = {key for key in LEAVES if key.startswith("policy.")}
    windows = {"window.window_tokens", "window.default_window_tokens"}
    used_by_settings = {"database.data_folder", "models", "server.host", *windows}
    unused = [
        key
        for key in LEAVES
        if key not in in_policy | used_by_settings and not re.search(rf"\.{key.rsplit('.', 1)[-1]}\b", code)
    ]
    assert unused == []
