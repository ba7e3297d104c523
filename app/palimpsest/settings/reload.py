"""What a reload makes of changed settings: which apply at once, and which wait for a restart.

A setting says itself whether it needs a restart (`fields.setting`). Pure: reading the sources is `load`'s.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypedDict

from palimpsest.errors import SettingsError
from palimpsest.settings.fields import extra_of, keys_of
from palimpsest.settings.load import Source, nested, settings_of
from palimpsest.settings.settings import DEFAULT, Settings, known_keys

NEEDS_RESTART = frozenset(key for key, field in keys_of(Settings).items() if extra_of(field)["needs_restart"])


class Reloaded(TypedDict):
    """What a reload has done: names of settings that are applied, and of those that wait for a restart."""

    applied: list[str]
    needs_restart: list[str]


# Reads the settings again and applies them. SettingsError when they are refused: nothing has changed then.
Reload = Callable[[], Awaitable[Reloaded]]


@dataclass(frozen=True, slots=True)
class Change:
    """The settings after a reload, and the names of those that differ: applied, and not applied yet."""

    settings: Settings
    applied: Sequence[str]
    needs_restart: Sequence[str]


def change_of(used: Settings, sources: Sequence[Source]) -> Change:
    """What the sources, the strongest first, change about the settings in use.

    SettingsError when they are refused, also if only together with what stays as it is until a restart.
    """
    wanted = settings_of(sources)
    waiting = [key for key in changed(used, wanted) if key in NEEDS_RESTART]
    if not waiting:
        return Change(wanted, changed(used, wanted), ())
    kept = Source("in use", str, nested({key: _value(used, key) for key in waiting}))
    try:
        settings = settings_of([kept, *sources])
    except SettingsError as refused:
        raise SettingsError(
            f"{refused.message} Until a restart these stay as they are: {', '.join(waiting)}."
        ) from None
    return Change(settings, changed(used, settings), waiting)


def changed(used: Settings, now: Settings) -> Sequence[str]:
    """The settings that differ, as dotted names without values, which may be secret."""
    return [key for key in known_keys() if _mark(used, key) != _mark(now, key)]


def _mark(settings: Settings, key: str) -> Any:
    """The value; of a policy also whether it is set, since a preset has numbers of its own."""
    is_set = key.startswith("policy.") and settings.source_of(key) != DEFAULT
    return _value(settings, key), is_set


def _value(settings: Settings, key: str) -> Any:
    return reduce(getattr, key.split("."), settings)
