"""`palimpsest config`: the values that a start would use, where each comes from, and what it refuses.

Opens no database and asks no server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from palimpsest.core.urls import without_password, without_query
from palimpsest.errors import SettingsError
from palimpsest.settings.fields import value_at
from palimpsest.settings.load import Source, settings_of, sources_of
from palimpsest.settings.settings import known_keys


class Effective(NamedTuple):
    """A setting by its dotted name, its value as JSON holds it, and its source; secrets are masked."""

    key: str
    value: Any
    source: str


class SetThere(NamedTuple):
    """A key that a source sets, as it is spelt there; `instead` is the stronger source that is used."""

    key: str
    spelt: str
    instead: str | None


class Check(NamedTuple):
    """What a start would do: the sources that set something, what it would warn about, and refuse."""

    sources: Mapping[str, Sequence[SetThere]]
    warnings: Sequence[str]
    problems: Sequence[str]


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


def checked(config: Path | None, options: Mapping[str, Any]) -> Check:
    """What a start with this file and these options would do."""
    # Imported here: `config show` needs neither the upstream's client nor a store.
    from palimpsest.cli.start_checks import start_problems, start_warnings

    try:
        sources = sources_of(config, options)
        settings = settings_of(sources)
    except SettingsError as refused:
        return Check({}, (), refused.message.splitlines())
    return Check(_set_by(sources), [*start_warnings(settings)], [*start_problems(settings)])


def _set_by(sources: Sequence[Source]) -> dict[str, list[SetThere]]:
    """By source, the strongest first; a file that was read and sets nothing is named, too."""
    used: dict[str, str] = {}
    found = {}
    for source in sources:
        keys = [key for key in known_keys() if value_at(source.tree, key) is not None]
        if keys or Path(source.name).is_file():
            found[source.name] = [SetThere(key, source.spelt(key), used.get(key)) for key in keys]
        used = {key: source.place_of(key) for key in keys} | used
    return found


def lines_of(check: Check) -> Iterator[str]:
    """For people, where there are no problems."""
    yield f"ok: {', '.join(check.sources) or 'nothing is set, every value is its default'}"
    for source, keys in check.sources.items():
        yield f"{source}:" if keys else f"{source}: sets nothing"
        for one in keys:
            yield f"  {one.spelt}" + (f"  # not used: {one.instead}" if one.instead else "")


def fields_of(check: Check) -> dict[str, Any]:
    """As JSON."""
    sources = [
        {"source": source, "settings": [one._asdict() for one in keys]}
        for source, keys in check.sources.items()
    ]
    return {
        "ok": not check.problems,
        "sources": sources,
        "warnings": list(check.warnings),
        "problems": list(check.problems),
    }
