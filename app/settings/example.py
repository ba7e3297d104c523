"""Renders every setting, with its default, unit and reason, as the text of `config.example.yaml`.

Knows nothing of files: `python -m app.settings.example` prints it, a test compares it.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from app.settings.load import variable_of
from app.settings.models import ModelSettings
from app.settings.routes import Route
from app.settings.settings import Settings

_HEAD = """\
# Every setting of Palimpsest with its default. Copy what you change into palimpsest.yaml.
#
# A value is taken from the first of these that has it:
#   1. the command line       palimpsest serve --port 9000
#   2. the environment        {port}=9000
#   3. the file               --config FILE, else PALIMPSEST_CONFIG, else ./palimpsest.yaml
#   4. the default below
# Single keys are merged, lists are replaced whole. In the environment lists are JSON and an empty
# variable counts as not set. An unknown key, here or there, refuses to start.
# This file is generated: python -m app.settings.example > config.example.yaml
"""
_WIDTH = 100
# What stands in each list, and what is written where there is no default.
_ENTRIES: Mapping[str, tuple[type[BaseModel], Mapping[str, str]]] = {
    "models": (ModelSettings, {"match": '"gpt-4o*"'}),
    "routes": (Route, {"match": '"claude-*"', "base_url": "https://api.anthropic.com/v1"}),
}


def example() -> str:
    """The whole text; it can be loaded, and then sets every default."""
    blocks = [_HEAD.format(port=variable_of("server.port"))]
    for name, field in Settings.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            lines = [f"# {section.__doc__}", f"{name}:"]
            for key, inner in section.model_fields.items():
                lines += [*_comment(inner, "  "), f"  {key}: {_value(inner.default)}"]
            blocks.append("\n".join(lines) + "\n")
        else:
            blocks.append(
                "\n".join([*_comment(field, ""), f"{name}: {_value(field.default)}", *_entry(name)]) + "\n"
            )
    return "\n".join(blocks)


def _entry(name: str) -> Iterator[str]:
    """One entry of a list, commented out."""
    opening = "#  - "
    entry, samples = _ENTRIES[name]
    for key, field in entry.model_fields.items():
        yield from _comment(field, "#    ")
        value = samples[key] if field.default is PydanticUndefined else _value(field.default)
        yield f"{opening}{key}: {value}"
        opening = "#    "


def _comment(field: FieldInfo, indent: str) -> Iterator[str]:
    extra = field.json_schema_extra
    if not isinstance(extra, dict) or not field.description:
        raise TypeError("a setting without description, reason and unit")
    for text in (f"{field.description} Unit: {extra['unit']}{_bounds(field)}.", f"Why: {extra['why']}"):
        yield from textwrap.wrap(
            text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}#   "
        )


def _bounds(field: FieldInfo) -> str:
    """Bounds in words, from pydantic's own metadata."""
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    found = [
        f"{word} {getattr(item, name)}"
        for item in field.metadata
        for name, word in words.items()
        if getattr(item, name, None) is not None
    ]
    return f", {', '.join(found)}" if found else ""


def _value(default: Any) -> str:
    """The default as YAML in one line."""
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    if isinstance(default, BaseModel):
        default = default.model_dump(exclude_unset=True)
    if isinstance(default, Path):
        default = str(default)
    if isinstance(default, tuple):
        default = list(default)
    if isinstance(default, Mapping):
        default = dict(default)
    text = yaml.safe_dump(default, default_flow_style=True, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...")


if __name__ == "__main__":
    sys.stdout.write(example())
