"""Reads the settings at start: the command line, then the environment, then a YAML file, then the defaults.

The only module that reads the environment. What is wrong is refused with the place, the key and the
remedy; a value is never repeated, since it may be a secret.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource
from pydantic_settings import SettingsError as UnreadableVariable

from app.errors import SettingsError
from app.settings.models import ModelSettings
from app.settings.routes import Route
from app.settings.settings import Settings

PREFIX = "PALIMPSEST_"
CONFIG_VARIABLE = "PALIMPSEST_CONFIG"
TEST_PREFIX = "PALIMPSEST_TEST_"
DEFAULT_FILE = Path("palimpsest.yaml")

Tree = dict[str, Any]
# The settings that are lists, and what stands in them.
_LISTS: Mapping[str, type[BaseModel]] = {"models": ModelSettings, "routes": Route}
# Where values come from, how a key is spelt there, and the values.
Source = tuple[str, Callable[[str], str], Tree]


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
    sources: list[Source] = [
        ("command line", str, _nested(overrides or {})),
        ("environment", variable_of, _read_environment(environ)),
        (str(file), str, content),
    ]
    merged: Tree = {}
    for _, _, tree in reversed(sources):
        merged = _merge(merged, tree)
    try:
        return Settings.model_validate(merged)
    except ValidationError as error:
        raise SettingsError(_explained(error, sources)) from None


def known_keys(section: type[BaseModel] = Settings, prefix: str = "") -> list[str]:
    """Every setting as a dotted name, in order of declaration; sections themselves are left out."""
    keys: list[str] = []
    for name, field in section.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            keys += known_keys(inner, f"{prefix}{name}.")
        else:
            keys.append(prefix + name)
    return keys


def variable_of(key: str) -> str:
    """The environment variable that sets a dotted key; entries of a list stand in one, as JSON."""
    section, _, inside = key.partition(".")
    if section in _LISTS and inside:
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
    try:
        return _Environment(environ)()
    except (UnreadableVariable, ValueError) as error:
        raise SettingsError(f"environment: {error}; lists and mappings are written as JSON") from None


def _refuse_unknown_variables(environ: Mapping[str, str]) -> None:
    """A variable with our prefix that names no section is a slip of the pen; some belong to the tests."""
    for name in sorted(environ):
        if not name.upper().startswith(PREFIX) or name == CONFIG_VARIABLE:
            continue
        if name.startswith(TEST_PREFIX):
            continue
        if name[len(PREFIX) :].split("__")[0].lower() not in Settings.model_fields:
            known = [CONFIG_VARIABLE, *map(variable_of, known_keys())]
            raise SettingsError(f"environment: {name} is not a setting.{_nearest(name.upper(), known)}")


def _read_file(config: Path | None, environ: Mapping[str, str]) -> tuple[Path, Tree]:
    named = config or (Path(environ[CONFIG_VARIABLE]) if environ.get(CONFIG_VARIABLE) else None)
    file = named or DEFAULT_FILE
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if named is None:
            return file, {}
        raise SettingsError(f"{file}: no such file; copy config.example.yaml there") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: cannot be read ({error})") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise SettingsError(f"{file}, line {line}: not YAML: {error.problem}") from None
    if content is None:
        return file, {}
    if not isinstance(content, dict):
        raise SettingsError(f"{file}: must hold sections such as `server:` at the top level")
    # A section whose keys are all commented out reads as None: it sets nothing.
    return file, {key: value for key, value in content.items() if value is not None}


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


def _explained(error: ValidationError, sources: Sequence[Source]) -> str:
    return "\n".join(_one(detail, sources) for detail in error.errors(include_input=False, include_url=False))


def _one(detail: ErrorDetails, sources: Sequence[Source]) -> str:
    location = detail["loc"]
    message = detail["msg"].removeprefix("Value error, ")
    if not location:
        return f"settings: {message}."
    key = ".".join(map(str, location))
    given = location[:-1] if detail["type"] == "missing" else location
    where, spelt = next(((w, s) for w, s, tree in sources if _holds(tree, given)), ("settings", str))
    if detail["type"] == "extra_forbidden":
        return f"{where}: {spelt(key)} is not a setting.{_nearest(key, _alternatives(location), spelt)}"
    return f"{where}: {spelt(key)}: {message}. See config.example.yaml."


def _holds(tree: Any, location: Sequence[str | int]) -> bool:
    for step in location:
        try:
            tree = tree[step]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def _alternatives(location: Sequence[str | int]) -> list[str]:
    """The keys that could have been meant, those of the same section first."""
    if len(location) == 1:
        return list(Settings.model_fields)
    if (entry := _LISTS.get(str(location[0]))) is not None:
        return [f"{location[0]}.{location[1]}.{key}" for key in known_keys(entry)]
    return sorted(known_keys(), key=lambda key: not key.startswith(f"{location[0]}."))


def _nearest(name: str, known: Sequence[str], spelt: Callable[[str], str] = str) -> str:
    """The remedy: a key like the whole name, else one whose last part is alike, else where all stand."""
    by_leaf = {key.rsplit(".", 1)[-1]: key for key in reversed(known)}
    whole = get_close_matches(name, known, n=1, cutoff=0.75)
    leaf = get_close_matches(name.rsplit(".", 1)[-1], by_leaf, n=1, cutoff=0.6)
    found = whole or [by_leaf[part] for part in leaf]
    return f" Did you mean {spelt(found[0])}?" if found else " See config.example.yaml for all of them."
