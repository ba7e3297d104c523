"""`palimpsest settings`: the values that a start would use, and where each comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from palimpsest.cli.schema import without_password
from palimpsest.settings.fields import value_at
from palimpsest.settings.load import Source, settings_of
from palimpsest.settings.settings import known_keys
from palimpsest.upstream.address import without_query


class Effective(NamedTuple):
    """A setting by its dotted name, its value as JSON holds it, and its source; secrets are masked."""

    key: str
    value: Any
    source: str


def effective(sources: Sequence[Source]) -> list[Effective]:
    """Every setting, in order of declaration. Raises SettingsError as a start would."""
    settings = settings_of(sources)
    shown = settings.model_dump(mode="json")
    # Of entries of lists only what is set: their defaults are those of the section they stand for.
    for name in ("models", "routes"):
        shown[name] = [entry.model_dump(mode="json", exclude_unset=True) for entry in getattr(settings, name)]
    shown["database"]["url"] = without_password(settings.database.url.get_secret_value())
    # Some servers take their key in the query.
    for there in (shown["upstream"], *shown["routes"]):
        there["base_url"] = there["base_url"] and without_query(there["base_url"])
    return [Effective(key, value_at(shown, key), settings.source_of(key)) for key in known_keys()]
