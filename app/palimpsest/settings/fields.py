"""Declaring a setting, and reading declarations back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from palimpsest.core.declared import Declaration

# No address, path, key or text has them: control characters but tab and line break, and halves of characters.
_UNUSABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


class Section(BaseModel):
    """A group of settings: frozen, and an undeclared key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _is_text(cls, value: Any, info: ValidationInfo) -> Any:
        is_section = section_of(cls.model_fields[str(info.field_name)].annotation) is not None
        if not is_section and any(map(_UNUSABLE.search, _texts_in(value))):
            raise ValueError("must not hold a control character or half of a character")
        return value


def setting(
    default: Any,
    what: str,
    why: str,
    measure: Declaration | str = "",
    *,
    is_advanced: bool = False,
) -> Any:
    """A field with its description, reason, unit and bounds; `measure` as in `Declared`."""
    unit, bounds = (measure, {}) if isinstance(measure, str) else (measure.unit, measure.bounds)
    extra: dict[str, Any] = {"why": why, "unit": unit, "is_advanced": is_advanced}
    return Field(default=default, description=what, json_schema_extra=extra, **bounds)


def split_url(url: str) -> SplitResult:
    """The parts of a URL. ValueError, which repeats none: a slash in a password ends up in the port."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ValueError(
            "must be a whole URL, with a port of at most 65535; in a password / is written %2F, @ is %40,"
            " # is %23"
        ) from None
    return parts


def _texts_in(value: Any) -> Iterator[str]:
    """The texts of a value, but for those of entries with settings of their own, which are checked there."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for pair in value.items() for text in pair if isinstance(text, str))
    elif isinstance(value, list | tuple):
        yield from (text for text in value if isinstance(text, str))


# A rarely used setting: documented in docs/configuration.md, left out of the example.
advanced = partial(setting, is_advanced=True)


def extra_of(field: FieldInfo) -> dict[str, Any]:
    """Reason, unit and the flag; TypeError for a field that was not declared by `setting`."""
    if not isinstance(field.json_schema_extra, dict) or not field.description:
        raise TypeError("a setting without description, reason and unit")
    return field.json_schema_extra


def unit_of(field: FieldInfo) -> str:
    """The unit of a value, or its possible values."""
    kind = next(arg for arg in (*_alternatives(field.annotation), None) if arg is not type(None))
    if kind is bool:
        return "true or false"
    if get_origin(kind) is Literal:
        *others, last = get_args(kind)
        return f"{', '.join(others)} or {last}"
    return str(extra_of(field)["unit"])


def keys_of(section: type[BaseModel], prefix: str = "") -> dict[str, FieldInfo]:
    """Every setting by its dotted name, in order of declaration, without the sections themselves."""
    keys: dict[str, FieldInfo] = {}
    for name, field in section.model_fields.items():
        inner = section_of(field.annotation)
        keys |= keys_of(inner, f"{prefix}{name}.") if inner else {prefix + name: field}
    return keys


def section_of(annotation: Any) -> type[BaseModel] | None:
    """The section class of a field; None for a single setting."""
    is_section = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation if is_section else None


def value_at(tree: Any, key: str) -> Any:
    """The value at a dotted name; None where there is none."""
    for step in key.split("."):
        tree = tree.get(step) if isinstance(tree, dict) else None
    return tree


def takes_json(annotation: Any) -> bool:
    """True for lists and mappings, which environment variables hold as JSON."""
    kinds = [annotation, getattr(annotation, "__origin__", None), *get_args(annotation)]
    return any(getattr(kind, "__origin__", kind) in (tuple, Mapping) for kind in kinds)


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
