"""The declaration of a setting: its default, effect, reason, unit and bounds.

`settings/fields.py` uses the same declarations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

_T = TypeVar("_T")
_KEY = "declared"


@dataclass(frozen=True, slots=True)
class Declaration:
    """The unit of a value ("seconds", "tokens", "share of the window"), and its bounds.

    Bounds use pydantic's names: `ge`, `le`, `gt` (exclusive), `min_length`, `max_length`, `pattern`.
    """

    unit: str
    bounds: Mapping[str, Any]


def within(unit: str, **bounds: Any) -> Declaration:
    """A unit with bounds."""
    return Declaration(unit, bounds)


@dataclass(frozen=True, slots=True)
class Declared:
    """What is documented of a field: its effect, its reason, and its unit and bounds.

    `measure` is only the unit where there are no bounds, and empty where the type lists every value.
    `is_advanced`: hardly anybody sets it.
    """

    what: str
    why: str
    measure: Declaration | str
    is_advanced: bool


def setting(default: _T, what: str, why: str, measure: Declaration | str = "") -> _T:
    """A dataclass field that users set."""
    return field(default=default, metadata={_KEY: Declared(what, why, measure, is_advanced=False)})


def advanced(default: _T, what: str, why: str, measure: Declaration | str = "") -> _T:
    """A dataclass field that few users set."""
    return field(default=default, metadata={_KEY: Declared(what, why, measure, is_advanced=True)})


def declared_in(kind: type) -> dict[str, tuple[Any, Declared]]:
    """Default and declaration of each field that has one, in order."""
    found = {each.name: (each.default, each.metadata.get(_KEY)) for each in fields(kind)}
    return {
        name: (default, declaration)
        for name, (default, declaration) in found.items()
        if declaration is not None
    }
