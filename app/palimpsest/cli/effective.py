"""`palimpsest settings`: the values that a start would use, and where each comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from palimpsest.cli.schema import without_password
from palimpsest.settings.load import Source, settings_of
from palimpsest.settings.settings import known_keys
from palimpsest.upstream.address import without_query

DEFAULT = "default"


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
    return [Effective(key, _at(shown, key), _source_of(key, sources)) for key in known_keys()]


def _source_of(key: str, sources: Sequence[Source]) -> str:
    for source in sources:
        if _at(source.tree, key) is not None:
            return source.name if source.spelt is str else f"{source.name}, {source.spelt(key)}"
    return DEFAULT


def _at(tree: Any, key: str) -> Any:
    """The value at a dotted name; None where there is none."""
    for step in key.split("."):
        tree = tree.get(step) if isinstance(tree, dict) else None
    return tree
