"""The example, the page of settings and the code say the same: the same keys, defaults, units and reasons."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from palimpsest.core.declared import declared_in
from palimpsest.core.policy import Policy
from palimpsest.settings.fields import extra_of, keys_of, unit_of
from palimpsest.settings.load import load_settings
from palimpsest.settings.reference import EXAMPLE, PAGE, SCHEMA, example, page, schema
from palimpsest.settings.settings import Settings, known_keys
from palimpsest.settings.upstreams import ModelSettings, Route
from pydantic import BaseModel

from tests.house.sources import ROOT, sources

# A time, a size or a share carries its unit at the end of its name.
UNITS = re.compile(r"_(seconds|tokens|bytes|chars|ratio|share|folds)(_per_day)?$")
NUMBERS_OF_THINGS = re.compile(
    r"^(port|json_depth|\w*messages|\w*_results|max_connections|concurrent_\w+|overflow_retries"
    r"|max_rounds|breaker_failures|workers"
    r"|days)$"
)
FIELDS = keys_of(Settings)
# What the example may name, the entries of its lists included.
NAMED = 70


def test_the_files_are_what_the_code_renders() -> None:
    example_text, page_text, schema_text = (
        (ROOT / file).read_text(encoding="utf-8") for file in (EXAMPLE, PAGE, SCHEMA)
    )
    assert example_text == example(), "python -m palimpsest.settings.reference"
    assert page_text == page(page_text), "python -m palimpsest.settings.reference"
    assert schema_text == schema(), "python -m palimpsest.settings.reference"


def test_the_example_sets_defaults_only() -> None:
    assert load_settings(ROOT / EXAMPLE, {}, {}).model_dump() == Settings().model_dump()


def test_the_example_has_every_setting_that_people_set_and_no_other() -> None:
    content = yaml.safe_load((ROOT / EXAMPLE).read_text(encoding="utf-8"))
    flat = [
        f"{section}.{key}" if isinstance(inner, dict) else section
        for section, inner in content.items()
        for key in (inner if isinstance(inner, dict) else [None])
    ]
    assert flat == [key for key, field in FIELDS.items() if not extra_of(field)["is_advanced"]]
    assert len(flat) + len(ModelSettings.model_fields) + len(Route.model_fields) <= NAMED


def test_the_page_has_every_setting() -> None:
    rows = re.findall(r"^\| `([a-z_.]+)` \|", (ROOT / PAGE).read_text(encoding="utf-8"), re.MULTILINE)
    lists = {"routes", "models"}
    assert sorted(rows) == sorted(key for key in FIELDS if key not in lists)


@pytest.mark.parametrize("key", FIELDS)
def test_every_setting_says_what_it_does_in_what_unit_and_why(key: str) -> None:
    field = FIELDS[key]
    assert field.description
    assert field.description.endswith(".")
    assert extra_of(field)["why"].endswith(".")
    assert unit_of(field)


@pytest.mark.parametrize("key", FIELDS)
def test_a_number_names_its_unit(key: str) -> None:
    leaf, default = key.rpartition(".")[2], FIELDS[key].default
    is_number = isinstance(default, int | float) and not isinstance(default, bool)
    assert not is_number or UNITS.search(leaf) or NUMBERS_OF_THINGS.match(leaf)


def test_every_number_of_the_core_is_declared_there_but_those_of_presets_alone() -> None:
    names = [field.name for field in fields(Policy)]
    plain = [name for name in names if name not in declared_in(Policy)]
    assert plain == names[: names.index("assumed_window_tokens") + 1]


@pytest.mark.parametrize(("section", "entry"), [("models", ModelSettings), ("routes", Route)])
def test_the_commented_entry_of_a_list_can_be_used(
    section: str, entry: type[BaseModel], tmp_path: Path
) -> None:
    text = (ROOT / EXAMPLE).read_text(encoding="utf-8")
    lines = text.split(f"\n{section}: []\n")[1].split("\n\n")[0].splitlines()
    options = [line[1:] for line in lines if not line[1:].strip().startswith("#")]
    file = tmp_path / "list.yaml"
    file.write_text(f"{section}:\n" + "\n".join(options), encoding="utf-8")
    (made,) = getattr(load_settings(file, {}, {}), section)
    assert isinstance(made, entry)
    assert {line.split(":")[0].strip(" -") for line in options} == set(entry.model_fields)


def test_every_setting_is_used() -> None:
    """A setting that nothing reads is a promise nobody keeps."""
    code = "\n".join(s.text for s in sources("app") if not s.name.startswith("app/palimpsest/settings/"))
    in_policy = {key for key in known_keys() if key.startswith("policy.")}
    windows = {"window.window_tokens", "window.default_window_tokens"}
    used_by_settings = {"database.data_folder", "models", "server.host", *windows}
    unused = [
        key
        for key in known_keys()
        if key not in in_policy | used_by_settings and not re.search(rf"\.{key.rsplit('.', 1)[-1]}\b", code)
    ]
    assert unused == []
