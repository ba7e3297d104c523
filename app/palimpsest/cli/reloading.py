"""Reloads settings on SIGHUP, or when it is asked for: reads and checks them, and has them applied.

What is refused changes nothing. With several workers the process that started them reads first, passes the
signal on if it finds nothing to refuse, and starts further workers with what it has read.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from palimpsest.cli.logs import configure_logs
from palimpsest.errors import PalimpsestError, SettingsError
from palimpsest.main.start_checks import check_start
from palimpsest.settings.load import Source
from palimpsest.settings.reload import Change, Reloaded, change_of
from palimpsest.settings.settings import Settings

_log = structlog.get_logger("palimpsest.server")


@dataclass(slots=True)
class UsedSettings:
    """The settings in use in one process, and how to read them again: `read` returns their sources.

    `demo_url`: the base URL of the demo model, which answers while no upstream is set; None if it is not run.
    `hung_up`: a SIGHUP came before anybody could heed it.
    """

    settings: Settings
    read: Callable[[], Sequence[Source]]
    demo_url: str | None = None
    hung_up: bool = False

    def hang_up(self, *_: object) -> None:
        """Handle a SIGHUP during the start, which must not end the process."""
        self.hung_up = True

    def change(self) -> Change:
        """What reading them again would change. SettingsError when it is refused. Reads files."""
        found = change_of(self.settings, self.read())
        check_start(self.with_demo(found.settings))
        return found

    def take(self, found: Change) -> None:
        """These are in use now: configure the log, and write the names of what has changed to it."""
        self.settings = found.settings
        configure_logs(found.settings.logging)
        _log.info("reloaded", settings=list(found.applied))
        if found.needs_restart:
            _log.warning("reload_needs_restart", settings=list(found.needs_restart))

    def with_demo(self, settings: Settings) -> Settings:
        """The settings, with the demo model as the upstream where none is set. SettingsError without it."""
        if settings.upstream.base_url is not None:
            return settings
        if self.demo_url is None:
            raise SettingsError(
                "upstream.base_url: no upstream is set. The demo model is run only if none was set at the "
                "start: set one, or start the proxy anew."
            )
        upstream = settings.upstream.model_copy(update={"base_url": self.demo_url})
        return settings.model_copy(update={"upstream": upstream})


class Reloader:
    """Reloads the settings of this process. `renew` uses settings for new requests."""

    def __init__(self, used: UsedSettings, renew: Callable[[Settings], Awaitable[None]]) -> None:
        self.used = used
        self._renew = renew
        self._one_at_a_time = asyncio.Lock()
        self._parent = os.getppid()

    async def reload(self) -> Reloaded:
        """Read the settings again and apply them. PalimpsestError when they are refused; nothing changes."""
        async with self._one_at_a_time:
            found = await asyncio.to_thread(self.used.change)
            await self._renew(self.used.with_demo(found.settings))
            self.used.take(found)
        return _told(found)

    async def on_hangup(self) -> None:
        """Reload; a refusal is logged."""
        self.used.hung_up = False
        try:
            await self.reload()
        except PalimpsestError as refused:
            log_refusal(refused)

    async def through_parent(self) -> Reloaded:
        """Have all workers reload; what each of them will apply. SettingsError when it is refused."""
        found = await asyncio.to_thread(self.used.change)
        if os.getppid() != self._parent:
            raise SettingsError("The process that started this worker is gone, and the worker ends, too.")
        os.kill(self._parent, signal.SIGHUP)
        return _told(found)


def reloaded_by_parent(used: UsedSettings) -> bool:
    """In the process that starts workers: read the settings again; False, and logged, when refused."""
    used.hung_up = False
    try:
        used.take(used.change())
    except SettingsError as refused:
        log_refusal(refused)
        return False
    return True


def log_refusal(refused: PalimpsestError) -> None:
    """The settings stay as they are."""
    _log.error("reload_refused", reason=refused.message)


def _told(found: Change) -> Reloaded:
    return {"applied": list(found.applied), "needs_restart": list(found.needs_restart)}
