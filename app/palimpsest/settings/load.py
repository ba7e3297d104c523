"""Reads the settings at start: the command line, then the environment, then a YAML file, then the defaults.

The only module that reads the environment. Errors name the source, the key and the remedy, and never repeat a
value, which may be a secret.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource
from pydantic_settings import SettingsError as UnreadableVariable

from palimpsest.errors import SettingsError
from palimpsest.settings.fields import keys_of, section_of, takes_json, value_at
from palimpsest.settings.removed import why_removed
from palimpsest.settings.settings import Settings, known_keys
from palimpsest.settings.upstreams import ModelSettings, Route

PREFIX = "PALIMPSEST_"
CONFIG_VARIABLE = "PALIMPSEST_CONFIG"
TEST_PREFIX = "PALIMPSEST_TEST_"
# The file, and where commands find a running proxy.
_NO_SETTINGS = (CONFIG_VARIABLE, "PALIMPSEST_URL")
DEFAULT_FILE = Path("palimpsest.yaml")
Tree = dict[str, Any]
# The settings that are lists, and the class of their entries.
LISTS: Mapping[str, type[BaseModel]] = {"models": ModelSettings, "routes": Route}
# Messages for pydantic's kinds of errors that a reader without Python understands; others keep pydantic's.
_WORDS: Mapping[str, str] = {
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be text; put it in quotes",
    "path_type": "must be a path",
    "dict_type": "must be names with values, such as {{name: value}}",
    "mapping_type": "must be names with values, such as {{name: value}}",
    "tuple_type": "must be a list, such as [one, two]",
    "missing": "must be set",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "greater_than": "must be above {gt}",
    "less_than": "must be below {lt}",
    "literal_error": "must be {expected}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
}
# A dotted name, and no part of one.
_KEY = re.compile(r"(?<![\w.\]])[a-z_]+(?:\.[a-z_]+)*")
_SECTION_KINDS = ("model_type", "model_attributes_type", "dataclass_type")


class Source(NamedTuple):
    """A source of values: its name, how a key is spelt there, and the values."""

    name: str
    spelt: Callable[[str], str]
    tree: Tree

    def place_of(self, key: str) -> str:
        """Where a key is set: the source, and how the key is spelt there if that is another word."""
        return self.name if self.spelt is str else f"{self.name}, {self.spelt(key)}"


def load_settings(
    config: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """The merged settings of all sources, key by key; lists are replaced whole.

    `overrides` are dotted names ("server.port"); values of None are ignored. `config` names the file; without
    it PALIMPSEST_CONFIG does, else `palimpsest.yaml` in the working folder is read if it exists. An empty
    variable counts as not set. Raises SettingsError.
    """
    return settings_of(sources_of(config, overrides, environ))


def sources_of(
    config: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> list[Source]:
    """What the command line, the environment and the file set, the strongest first. As `load_settings`.

    Where something cannot be read, the SettingsError also has what is wrong in the rest.
    """
    environ = os.environ if environ is None else environ
    variables, unreadable = _read_environment(environ)
    file, content, refused = _read_file(config, environ)
    sources = [
        Source("command line", str, nested(overrides or {})),
        Source("environment", variable_of, variables),
        Source(str(file), str, content),
    ]
    if problems := [*_unknown_variables(environ), *unreadable, *refused]:
        try:
            Settings.model_validate(_all_of(sources))
        except ValidationError as error:
            # What is missing may be what could not be read.
            wrong = [one for one in _details(error) if one["loc"] and one["type"] != "missing"]
            problems += [line for detail in wrong for line in _explained(detail, sources)]
        raise SettingsError("\n".join(problems))
    return sources


def settings_of(sources: Sequence[Source]) -> Settings:
    """The sources merged, the strongest first. Raises SettingsError."""
    try:
        settings = Settings.model_validate(_all_of(sources))
    except ValidationError as error:
        raise SettingsError(explained(error, sources)) from None
    # The strongest last.
    return settings.loaded_from(
        {
            key: source.place_of(key)
            for source in reversed(sources)
            for key in known_keys()
            if value_at(source.tree, key) is not None
        }
    )


def _all_of(sources: Sequence[Source]) -> Tree:
    return reduce(_merge, (source.tree for source in reversed(sources)), {})


def variable_of(key: str) -> str:
    """The environment variable that sets a dotted key; a list is one variable, as JSON."""
    section, _, inside = key.partition(".")
    if section in LISTS and inside:
        return f"{variable_of(section)}: {inside}"
    return PREFIX + key.upper().replace(".", "__")


class _Declared(Settings, BaseSettings):  # type: ignore[misc]
    """The settings as the base class that pydantic's environment reader requires."""


class _Environment(EnvSettingsSource):
    """Reads a given mapping in place of the process's environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._given = environ
        super().__init__(_Declared, env_prefix=PREFIX, env_nested_delimiter="__", env_ignore_empty=True)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): value for name, value in self._given.items() if value}


def _read_environment(environ: Mapping[str, str]) -> tuple[Tree, list[str]]:
    """What the variables set, and a line for each that cannot be read."""
    wrong = dict(_unreadable(environ))
    problems = [f"environment: {name} {problem}" for name, problem in wrong.items()]
    try:
        tree = _Environment({name: text for name, text in environ.items() if name.upper() not in wrong})()
    except (UnreadableVariable, ValueError):
        return {}, [*problems, "environment: a variable cannot be read; lists and mappings are JSON"]
    return tree, problems


def _unreadable(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Variables whose text the environment reader cannot parse, and why."""
    given = {name.upper(): value for name, value in environ.items() if value}
    every = keys_of(Settings)
    for section in dict.fromkeys(key.rpartition(".")[0] for key in every if "." in key):
        name = variable_of(section)
        if name in given and not isinstance(_json(given[name]), dict):
            yield name, not_a_section(section, given[name], variable_of)
    for key, field in every.items():
        name = variable_of(key)
        if name in given and takes_json(field.annotation) and not isinstance(_json(given[name]), list | dict):
            example = """'["one", "two"]'"""
            yield name, f"must be JSON, such as {example}; see docs/configuration.md"


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _unknown_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """A line for each variable with our prefix that names no section, except those of the tests."""
    for name in sorted(environ):
        if not name.upper().startswith(PREFIX) or name in _NO_SETTINGS or name.startswith(TEST_PREFIX):
            continue
        if name[len(PREFIX) :].split("__")[0].lower() not in Settings.model_fields:
            known = [CONFIG_VARIABLE, *map(variable_of, known_keys())]
            yield f"environment: {name} is not a setting.{nearest(name.upper(), known)}"


def _read_file(config: Path | None, environ: Mapping[str, str]) -> tuple[Path, Tree, list[str]]:
    """The file, what it sets, and a line for each thing that cannot be read."""
    named = config or (Path(environ[CONFIG_VARIABLE]) if environ.get(CONFIG_VARIABLE) else None)
    file = named or DEFAULT_FILE
    try:
        content = _read_yaml(file)
    except FileNotFoundError:
        return file, {}, [f"{file}: no such file; copy config.example.yaml there"] if named else []
    except SettingsError as refused:
        return file, {}, [refused.message]
    # A section whose keys are all commented out is None: it sets nothing.
    given = {str(key): value for key, value in content.items() if value is not None}
    sections = {name for name, field in Settings.model_fields.items() if section_of(field.annotation)}
    values = {name for name, value in given.items() if name in sections and not isinstance(value, dict)}
    problems = [f"{file}: {name} {not_a_section(name, given[name])}" for name in given if name in values]
    return file, {name: value for name, value in given.items() if name not in values}, problems


def nested(dotted: Mapping[str, Any]) -> Tree:
    """Values by dotted names as a tree, without those that are None."""
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


class _RefusedNode(yaml.constructor.ConstructorError):
    """YAML that is well formed and no value here; its `problem` is a sentence of ours."""

    problem: str


class _Loader(yaml.SafeLoader):
    """Refuses duplicate keys, of which PyYAML's own loader silently keeps the last."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """The value; PyYAML's own errors for what has the form of a date or a number, and is none."""
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, KeyError, IndexError, AttributeError, ArithmeticError):
            said = "what looks like a date or a number here is none; put text in quotes"
            raise _RefusedNode(None, None, said, node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        lines: dict[str, int] = {}
        # PyYAML says of another node with the tag of a mapping that it is none.
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in lines:
                said = f"{key.value} stands twice, first in line {lines[key.value]}; keep one of them"
                raise _RefusedNode(None, None, said, key.start_mark)
            lines[key.value] = key.start_mark.line + 1
        return super().construct_mapping(node, deep=deep)


def _read_yaml(file: Path) -> dict[str, Any]:
    """The file's content, empty for an empty file. FileNotFoundError; SettingsError for all other errors."""
    try:
        # Skips a byte order mark.
        content = yaml.load(file.read_text(encoding="utf-8-sig"), _Loader)  # noqa: S506  # a SafeLoader
    except FileNotFoundError:
        raise
    except IsADirectoryError:
        raise SettingsError(f"{file}: is a folder; name a file in it, such as palimpsest.yaml") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{file}: is not text in UTF-8; save it as UTF-8") from None
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read ({error.strerror}); is it yours to read?") from None
    except RecursionError:
        raise SettingsError(f"{file}: is nested too deeply; see docs/configuration.md") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        problem = error.problem or "it breaks off"
        if "'\\t'" in problem:
            problem = "indented with a tab, which YAML does not take; use spaces"
        elif not isinstance(error, _RefusedNode):
            problem = f"not YAML: {problem}"
        raise SettingsError(f"{file}, line {line}: {problem}") from None
    except yaml.YAMLError:
        raise SettingsError(f"{file}: holds a character that YAML does not allow") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"{file}: must hold sections such as `server:` at the top level")
    return content


def explained(error: ValidationError, sources: Sequence[Source]) -> str:
    """One line per error."""
    return "\n".join(line for detail in _details(error) for line in _explained(detail, sources))


def _details(error: ValidationError) -> list[ErrorDetails]:
    return error.errors(include_input=False, include_url=False)


def nearest(name: str, known: Sequence[str], spelt: Callable[[str], str] = str) -> str:
    """The remedy: a key like the whole name, else one with a similar last part, else a link to the page."""
    by_leaf = {key.rsplit(".", 1)[-1]: key for key in reversed(known)}
    whole = get_close_matches(name, known, n=1, cutoff=0.75)
    leaf = get_close_matches(name.rsplit(".", 1)[-1], by_leaf, n=1, cutoff=0.6)
    found = whole or [by_leaf[part] for part in leaf]
    return f" Did you mean {spelt(found[0])}?" if found else " See docs/configuration.md for all of them."


def not_a_section(name: str, value: object, spelt: Callable[[str], str] = str) -> str:
    """The remedy for a single value in place of a section."""
    keys = [key for key in known_keys() if key.startswith(f"{name}.")]
    is_address = isinstance(value, str) and "://" in value
    url = next((key for key in keys if key in (f"{name}.base_url", f"{name}.url")), None)
    if is_address and url:
        return f"is a section, not a value. Did you mean {spelt(url)}?"
    return f"is a section, not a value. Set its keys, such as {spelt(url or keys[0])}."


def _explained(detail: ErrorDetails, sources: Sequence[Source]) -> Iterator[str]:
    location = detail["loc"]
    if not location:
        for contradiction in detail["msg"].removeprefix("Value error, ").splitlines():
            yield f"settings: {contradiction}.{_set_by(contradiction, sources)}"
        return
    key = ".".join(map(str, location))
    given = location[:-1] if detail["type"] == "missing" else location
    where, spelt = next(((s.name, s.spelt) for s in sources if _holds(s.tree, given)), ("settings", str))
    what = f"{where}: {spelt(key)}"
    if detail["type"] != "extra_forbidden":
        yield f"{what} {_said(detail)}. See docs/configuration.md."
    elif said := why_removed(location):
        yield f"{what} {said}"
    elif len(location) == 1 and key in known_keys():
        section, _, leaf = key.partition(".")
        remedy = f"Write `{section}:` on a line of its own, and `{leaf}:` indented below it."
        yield f"{what} is not a setting. {remedy}"
    else:
        yield f"{what} is not a setting.{nearest(key, _alternatives(location), spelt)}"


def _set_by(contradiction: str, sources: Sequence[Source]) -> str:
    """Where each of the settings that a contradiction names is set, for those that are."""
    named = [key for key in dict.fromkeys(_KEY.findall(contradiction)) if key in known_keys()]
    places = [
        f"{key} ({strongest[0]})"
        for key in named
        if (strongest := [s.place_of(key) for s in sources if value_at(s.tree, key) is not None])
    ]
    return f" From: {', '.join(places)}." if places else ""


def _said(detail: ErrorDetails) -> str:
    if detail["type"] in _SECTION_KINDS:
        return "must be an entry or a section with keys of its own"
    words = _WORDS.get(detail["type"])
    if words is None:
        said = detail["msg"].removeprefix("Value error, ").rstrip(".")
        return said if said.startswith(("must", "is ", "has ", "model ")) else f"cannot be used: {said}"
    return words.format(**detail.get("ctx", {}))


def _holds(tree: Any, location: Sequence[str | int]) -> bool:
    for step in location:
        try:
            tree = tree[step]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def _alternatives(location: Sequence[str | int]) -> list[str]:
    """Candidates for a misspelt key, those of the same section first."""
    if len(location) == 1:
        return list(Settings.model_fields)
    if (entry := LISTS.get(str(location[0]))) is not None:
        return [f"{location[0]}.{location[1]}.{key}" for key in keys_of(entry)]
    return sorted(known_keys(), key=lambda key: not key.startswith(f"{location[0]}."))
