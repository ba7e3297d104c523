"""How one setting is declared: its default, what it does, why the default is what it is, and its unit.

Knows nothing of which settings exist nor of where values come from.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """A group of settings: frozen, and a key that is not declared is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def setting(default: Any, what: str, why: str, *, unit: str, **bounds: Any) -> Any:
    """A field with everything `config.example.yaml` says of it.

    `unit` is what a person counts the value in ("seconds", "tokens", "share of the window"), `bounds`
    are pydantic's own (`ge`, `le`, `gt`, `max_length`, `pattern`).
    """
    return Field(default=default, description=what, json_schema_extra={"why": why, "unit": unit}, **bounds)
