"""Says why settings were refused: where the value was set, what is wrong with it, what to do.

A value is never repeated, since it may be a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from app.settings.models import ModelSettings
from app.settings.routes import Route
from app.settings.settings import Settings

Tree = dict[str, Any]
# The settings that are lists, and what stands in them.
LISTS: Mapping[str, type[BaseModel]] = {"models": ModelSettings, "routes": Route}
# pydantic's kinds of errors in words of a person who has never seen Python; the rest is said as it says it.
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
    "dict_type": "must be names with values, such as {name: value}",
    "mapping_type": "must be names with values, such as {name: value}",
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
# Settings of former versions, by the last part of the name, and what does their work now.
REMOVED: Mapping[str, str] = {
    "user_wording_share": (
        "was removed: the user's rules, what is open and what was changed stay word for word without a share "
        "of their own; `policy.summary_share` and `policy.summary_max_tokens` bound the block."
    ),
    "identifier_share": (
        "was removed: paths, ids and numbers stand in the lines that say what was done with them; "
        "`policy.summary_share` and `policy.summary_max_tokens` bound the block."
    ),
}
_SECTION_KINDS = ("model_type", "model_attributes_type", "dataclass_type")


class Source(NamedTuple):
    """Where values come from, how a key is spelt there, and the values."""

    name: str
    spelt: Callable[[str], str]
    tree: Tree


def explained(error: ValidationError, sources: Sequence[Source]) -> str:
    """A line for each thing that is wrong."""
    return "\n".join(_one(detail, sources) for detail in error.errors(include_input=False, include_url=False))


def known_keys(section: type[BaseModel] = Settings, prefix: str = "") -> list[str]:
    """Every setting as a dotted name, in order of declaration; sections themselves are left out."""
    keys: list[str] = []
    for name, field in section.model_fields.items():
        inner = section_of(field.annotation)
        keys += known_keys(inner, f"{prefix}{name}.") if inner else [prefix + name]
    return keys


def section_of(annotation: Any) -> type[BaseModel] | None:
    """The section that a field is; None for a single setting."""
    is_section = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation if is_section else None


def takes_json(annotation: Any) -> bool:
    """True for lists and mappings, which the environment holds as JSON."""
    kinds = [annotation, getattr(annotation, "__origin__", None), *get_args(annotation)]
    return any(getattr(kind, "__origin__", kind) in (tuple, Mapping) for kind in kinds)


def nearest(name: str, known: Sequence[str], spelt: Callable[[str], str] = str) -> str:
    """The remedy: a key like the whole name, else one whose last part is alike, else where all stand."""
    by_leaf = {key.rsplit(".", 1)[-1]: key for key in reversed(known)}
    whole = get_close_matches(name, known, n=1, cutoff=0.75)
    leaf = get_close_matches(name.rsplit(".", 1)[-1], by_leaf, n=1, cutoff=0.6)
    found = whole or [by_leaf[part] for part in leaf]
    return f" Did you mean {spelt(found[0])}?" if found else " See config.example.yaml for all of them."


def not_a_section(name: str, value: object, spelt: Callable[[str], str] = str) -> str:
    """What to write where a single value stands in the place of a section."""
    keys = known_keys(section_of(Settings.model_fields[name].annotation) or Settings)
    is_address = isinstance(value, str) and "://" in value
    url = next((key for key in keys if key in ("base_url", "url")), None)
    if is_address and url:
        return f"is a section, not a value. Did you mean {spelt(f'{name}.{url}')}?"
    return f"is a section, not a value. Set its keys, such as {spelt(f'{name}.{url or keys[0]}')}."


def _one(detail: ErrorDetails, sources: Sequence[Source]) -> str:
    location = detail["loc"]
    if not location:
        return f"settings: {detail['msg'].removeprefix('Value error, ')}."
    key = ".".join(map(str, location))
    given = location[:-1] if detail["type"] == "missing" else location
    where, spelt = next(((s.name, s.spelt) for s in sources if _holds(s.tree, given)), ("settings", str))
    if detail["type"] == "extra_forbidden":
        if (removed := REMOVED.get(str(location[-1]))) is not None:
            return f"{where}: {spelt(key)} {removed}"
        return f"{where}: {spelt(key)} is not a setting.{_remedy(key, location, spelt)}"
    return f"{where}: {spelt(key)} {_said(detail)}. See config.example.yaml."


def _said(detail: ErrorDetails) -> str:
    if detail["type"] in _SECTION_KINDS:
        return "must be an entry or a section with keys of its own"
    words = _WORDS.get(detail["type"])
    if words is None:
        said = detail["msg"].removeprefix("Value error, ").rstrip(".")
        return said if said.startswith(("must", "is ", "has ", "model ")) else f"cannot be used: {said}"
    return words.format(**detail.get("ctx", {}))


def _remedy(key: str, location: Sequence[str | int], spelt: Callable[[str], str]) -> str:
    if len(location) == 1 and key in known_keys():
        section, _, leaf = key.partition(".")
        return f" Write `{section}:` on a line of its own, and `{leaf}:` indented below it."
    return nearest(key, _alternatives(location), spelt)


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
    if (entry := LISTS.get(str(location[0]))) is not None:
        return [f"{location[0]}.{location[1]}.{key}" for key in known_keys(entry)]
    return sorted(known_keys(), key=lambda key: not key.startswith(f"{location[0]}."))
