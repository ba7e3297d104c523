"""What a SIGHUP does: the settings are read anew, and those of the log take effect at once.

All else is used from the start on by parts that hold connections and files; it is named, and left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from app.cli.logs import configure_logs
from app.errors import SettingsError
from app.settings.settings import Settings

_LIVE = "logging."
_log = structlog.get_logger("palimpsest.server")


class Reloading:
    """`used` are the settings in use, `read` reads those that would be used now."""

    def __init__(self, used: Settings, read: Callable[[], Settings]) -> None:
        self._used = used
        self._read = read

    def reload(self) -> None:
        """The log's settings are those of now; what else has changed is said. Never raises for settings."""
        try:
            now = self._read()
        except SettingsError as refused:
            _log.error("reload_refused", reason=refused.message)
            return
        differ = changed(self._used, now)
        self._used = self._used.model_copy(update={"logging": now.logging})
        configure_logs(now.logging)
        live = [name for name in differ if name.startswith(_LIVE)]
        _log.info("reloaded", settings=live)
        if needs_restart := [name for name in differ if name not in live]:
            _log.warning("reload_needs_restart", settings=needs_restart)


def changed(used: Settings, now: Settings) -> list[str]:
    """The settings that differ, as dotted names; their values are nobody's to log."""
    before, after = _leaves("", used.model_dump()), _leaves("", now.model_dump())
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _leaves(prefix: str, tree: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict) and not prefix:
            found |= _leaves(f"{name}.", value)
        else:
            found[prefix + name] = value
    return found
