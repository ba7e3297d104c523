"""Renders the settings as text: `config.example.yaml`, the tables of docs/configuration.md, the JSON Schema.

`python -m palimpsest.settings.reference` writes all three in the working folder; a test compares them.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from palimpsest.settings.fields import extra_of, keys_of, section_of, unit_of
from palimpsest.settings.load import LISTS, variable_of
from palimpsest.settings.settings import Settings
from palimpsest.settings.upstreams import PriceSettings

EXAMPLE = Path("config.example.yaml")
PAGE = Path("docs/configuration.md")
SCHEMA = Path("docs/palimpsest.schema.json")
# Everything after this line of the page is generated.
MARK = "<!-- Generated: python -m palimpsest.settings.reference -->\n"
_HEAD = """\
# yaml-language-server: $schema={schema}
# The common settings of Palimpsest with their defaults. Copy what you change into palimpsest.yaml.
# For all others (limits, timeouts, the numbers under policy.advanced) see docs/configuration.md.
#
# A value is taken from the first of these that sets it:
#   1. the command line       palimpsest serve --port 9000
#   2. the environment        {port}=9000
#   3. the file               --config FILE, else PALIMPSEST_CONFIG, else ./palimpsest.yaml
#   4. the default below
# Keys are merged one by one, lists are replaced whole. In environment variables lists are JSON, and an
# empty variable counts as not set. An unknown key in any source prevents the start.
# This file is generated: python -m palimpsest.settings.reference
"""
_WIDTH = 100
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Sample values for required keys of list entries.
_SAMPLES: Mapping[str, Mapping[str, str]] = {
    "models": {"match": '"gpt-4o*"'},
    "routes": {"match": '"claude-*"', "base_url": "https://api.anthropic.com/v1"},
}


def example() -> str:
    """The text of config.example.yaml, which sets only defaults when it is loaded."""
    blocks = [_HEAD.format(schema=SCHEMA, port=variable_of("server.port"))]
    for name, field in Settings.model_fields.items():
        if section := section_of(field.annotation):
            every = keys_of(section)
            shown = {key: inner for key, inner in every.items() if not extra_of(inner)["is_advanced"]}
            if not shown:
                continue
            lines = [f"# {section.__doc__}", f"{name}:"]
            for key, inner in shown.items():
                lines += [*_comment(inner, "  "), f"  {key}: {_value(inner.default)}"]
            if len(shown) < len(every):
                lines.append("  # Further settings of this section: docs/configuration.md.")
        else:
            lines = [*_comment(field, ""), f"{name}: {_value(field.default)}", *_entry(name)]
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def tables() -> str:
    """Every setting in Markdown, one table per section and per kind of list entry."""
    found: dict[str, type[BaseModel]] = {}
    for key in keys_of(Settings):
        place = key.rpartition(".")[0]
        found |= {place: _section_at(place)} if place else {f"{key}[]": LISTS[key]}
    found["models[].prices"] = PriceSettings
    head = "| setting | default | what, in what unit, and why |\n|---|---|---|"
    blocks: list[str] = []
    for name, section in found.items():
        rows = [
            _row(f"{name}.{key}", field) for key, field in section.model_fields.items() if key != "advanced"
        ]
        blocks.append("\n".join([f"### `{name}`", "", section.__doc__ or "", "", head, *rows]))
    return "\n\n".join(blocks)


def schema() -> str:
    """The JSON Schema of the file: each setting's meaning, default and bounds; an unknown key is an error."""
    made = Settings.model_json_schema()
    del made["description"]
    for kind in _classes(Settings):
        there = made if kind is Settings else made["$defs"][kind.__name__]
        del there["title"]
        for key, field in kind.model_fields.items():
            there["properties"][key] = _described(there["properties"][key], field)
    for key, field in Settings.model_fields.items():
        if section_of(field.annotation):
            # As for the loader, a section whose keys are all commented out.
            made["properties"][key] = {"anyOf": [made["properties"][key], {"type": "null"}]}
    head = {"$schema": _DIALECT, "title": "palimpsest.yaml", "description": "Configuration of Palimpsest."}
    return json.dumps(head | made, indent=1, ensure_ascii=False) + "\n"


def _classes(kind: type[BaseModel]) -> list[type[BaseModel]]:
    """The class and those of its sections and entries."""
    found = [kind]
    for name, field in kind.model_fields.items():
        inner = section_of(field.annotation) or (LISTS.get(name) if kind is Settings else None)
        found += [each for each in _classes(inner) if each not in found] if inner else []
    return found


def _described(made: dict[str, Any], field: FieldInfo) -> dict[str, Any]:
    """What pydantic made of a field, with the words of docs/configuration.md."""
    ours = extra_of(field) if field.description else {}
    kept = {key: value for key, value in made.items() if key != "title" and key not in ours}
    if isinstance(field.default, SecretStr):
        kept["default"] = field.default.get_secret_value()
    if isinstance(field.default, BaseModel):
        del kept["default"]
    if field.description:
        kept["description"] = f"{_said(field)} Why: {extra_of(field)['why']}"
    return kept


def page(text: str) -> str:
    """The page with its generated part replaced."""
    return text.partition(MARK)[0] + MARK + "\n" + tables() + "\n"


def _section_at(name: str) -> type[BaseModel]:
    section: type[BaseModel] = Settings
    for step in name.split("."):
        section = section_of(section.model_fields[step].annotation) or section
    return section


def _row(name: str, field: FieldInfo) -> str:
    default = "" if field.default is PydanticUndefined else f"`{_value(field.default)}`"
    text = f"{_said(field)} Why: {extra_of(field)['why']}".replace("*", "\\*").replace("|", "\\|")
    return f"| `{name}` | {default} | {text} |"


def _entry(name: str) -> Iterator[str]:
    """One entry of a list, commented out."""
    opening = "#  - "
    for key, field in LISTS[name].model_fields.items():
        yield from _comment(field, "#    ")
        value = _SAMPLES[name][key] if field.default is PydanticUndefined else _value(field.default)
        yield f"{opening}{key}: {value}"
        opening = "#    "


def _comment(field: FieldInfo, indent: str) -> Iterator[str]:
    for text in (_said(field), f"Why: {extra_of(field)['why']}"):
        yield from textwrap.wrap(
            text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}#   "
        )


def _said(field: FieldInfo) -> str:
    """What the setting does, its unit, and its bounds in words."""
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    bounds = [
        f", {word} {getattr(item, name)}"
        for item in field.metadata
        for name, word in words.items()
        if getattr(item, name, None) is not None
    ]
    return f"{field.description} Unit: {unit_of(field)}{''.join(bounds)}."


def _value(default: Any) -> str:
    """The default as YAML in one line."""
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    if isinstance(default, BaseModel):
        default = default.model_dump(exclude_unset=True)
    text = yaml.safe_dump(to_jsonable_python(default), default_flow_style=True, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...")


if __name__ == "__main__":
    EXAMPLE.write_text(example(), encoding="utf-8")
    SCHEMA.write_text(schema(), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
