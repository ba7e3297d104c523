"""docs/palimpsest.schema.json, as an editor holds a configuration against it."""

from __future__ import annotations

import json
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from palimpsest.settings.reference import SCHEMA

from tests.house.sources import ROOT

CONTENT: dict[str, Any] = json.loads((ROOT / SCHEMA).read_text(encoding="utf-8"))
_VALIDATOR = Draft202012Validator(CONTENT)


def refusals_of(configuration: Any) -> list[str]:
    """What the schema says against a configuration; empty where it is valid."""
    return [error.message for error in _VALIDATOR.iter_errors(configuration)]
