"""Reads the settings at start: the command line, then the environment, then a YAML file, then the defaults.

The only module that reads the environment. What is wrong is refused with the place, the key and the
remedy; a value is never repeated, since it may be a secret.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource
from pydantic_settings import SettingsError as UnreadableVariable

from app.errors import SettingsError
from app.settings.file import read_yaml
from app.settings.refusal import (
    LISTS,
    Source,
    Tree,
    explained,
    known_keys,
    nearest,
    not_a_section,
    section_of,
    takes_json,
)
from app.settings.settings import Settings

PREFIX = "PALIMPSEST_"
CONFIG_VARIABLE = "PALIMPSEST_CONFIG"
TEST_PREFIX = "PALIMPSEST_TEST_"
DEFAULT_FILE = Path("palimpsest.yaml")


def load_settings(
    config: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """All sources merged, the strongest winning key by key; lists are replaced whole.

    `overrides` are dotted names ("server.port"); those that are None do not count. `config` names
    the file; without it PALIMPSEST_CONFIG does, else `palimpsest.yaml` in the working folder is read
    if it is there. An empty variable counts as not set. Raises SettingsError.
    """
    environ = os.environ if environ is None else environ
    _refuse_unknown_variables(environ)
    file, content = _read_file(config, environ)
    sources = [
        Source("command line", str, _nested(overrides or {})),
        Source("environment", variable_of, _read_environment(environ)),
        Source(str(file), str, content),
    ]
    merged: Tree = {}
    for source in reversed(sources):
        merged = _merge(merged, source.tree)
    try:
        return Settings.model_validate(merged)
    except ValidationError as error:
        raise SettingsError(explained(error, sources)) from None


def variable_of(key: str) -> str:
    """The environment variable that sets a dotted key; entries of a list stand in one, as JSON."""
    section, _, inside = key.partition(".")
    if section in LISTS and inside:
        return f"{variable_of(section)}: {inside}"
    return PREFIX + key.upper().replace(".", "__")


class _Declared(Settings, BaseSettings):  # type: ignore[misc]
    """The settings in the form the environment reader wants to see."""


class _Environment(EnvSettingsSource):
    """Reads a given mapping in place of the process's environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._given = environ
        super().__init__(_Declared, env_prefix=PREFIX, env_nested_delimiter="__", env_ignore_empty=True)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): value for name, value in self._given.items() if value}


def _read_environment(environ: Mapping[str, str]) -> Tree:
    for name, problem in _unreadable(environ):
        raise SettingsError(f"environment: {name} {problem}")
    try:
        return _Environment(environ)()
    except (UnreadableVariable, ValueError):
        raise SettingsError("environment: a variable cannot be read; lists and mappings are JSON") from None


def _unreadable(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Variables whose text is not of the form that the environment's reader can take apart, and why."""
    given = {name.upper(): value for name, value in environ.items() if value}
    for section, field in Settings.model_fields.items():
        inner = section_of(field.annotation)
        name = variable_of(section)
        if inner is None or name not in given:
            continue
        if not isinstance(_json(given[name]), dict):
            yield name, not_a_section(section, given[name], variable_of)
    for key in known_keys():
        name = variable_of(key)
        if name in given and takes_json(_annotation(key)) and not isinstance(_json(given[name]), list | dict):
            example = """'["one", "two"]'"""
            yield name, f"must be JSON, such as {example}; see config.example.yaml"


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _annotation(key: str) -> Any:
    """The declared type of a dotted key."""
    section: type[BaseModel] = Settings
    *sections, leaf = key.split(".")
    for name in sections:
        section = section_of(section.model_fields[name].annotation) or section
    return section.model_fields[leaf].annotation


def _refuse_unknown_variables(environ: Mapping[str, str]) -> None:
    """A variable with our prefix that names no section is a slip of the pen; some belong to the tests."""
    for name in sorted(environ):
        if not name.upper().startswith(PREFIX) or name == CONFIG_VARIABLE:
            continue
        if name.startswith(TEST_PREFIX):
            continue
        if name[len(PREFIX) :].split("__")[0].lower() not in Settings.model_fields:
            known = [CONFIG_VARIABLE, *map(variable_of, known_keys())]
            raise SettingsError(f"environment: {name} is not a setting.{nearest(name.upper(), known)}")


def _read_file(config: Path | None, environ: Mapping[str, str]) -> tuple[Path, Tree]:
    named = config or (Path(environ[CONFIG_VARIABLE]) if environ.get(CONFIG_VARIABLE) else None)
    file = named or DEFAULT_FILE
    try:
        content = read_yaml(file)
    except FileNotFoundError:
        if named is None:
            return file, {}
        raise SettingsError(f"{file}: no such file; copy config.example.yaml there") from None
    # A section whose keys are all commented out reads as None: it sets nothing.
    given = {str(key): value for key, value in content.items() if value is not None}
    for name, value in given.items():
        field = Settings.model_fields.get(name)
        if field is not None and section_of(field.annotation) and not isinstance(value, dict):
            raise SettingsError(f"{file}: {name} {not_a_section(name, value)}")
    return file, given


def _nested(dotted: Mapping[str, Any]) -> Tree:
    tree: Tree = {}
    for key, value in dotted.items():
        if value is None:
            continue
        *sections, leaf = key.split(".")
        branch = tree
        for section in sections:
            branch = branch.setdefault(section, {})
        branch[leaf] = value
    return tree


def _merge(weak: Tree, strong: Tree) -> Tree:
    both = {
        key: _merge(weak[key], strong[key])
        for key in weak.keys() & strong.keys()
        if isinstance(weak[key], dict) and isinstance(strong[key], dict)
    }
    return weak | strong | both
