"""A running `palimpsest serve` whose settings are in a file, and are reloaded by a SIGHUP.

async with reloadable(tmp_path, upstream={"base_url": one}) as proxy:
    await proxy.reload(upstream={"base_url": other})
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from benchmarks.kill_loop import Server, server
from tests.kit.chat import Chat

Json = dict[str, Any]
# Read from the file: the command line and the environment would win.
WINDOW = {"window_tokens": 1_000_000}
_REPORTS = frozenset({"reloaded", "reload_refused"})
_LOOK_SECONDS = 0.005
_LOOKS = 6_000


@dataclass
class Reloadable:
    """The process, a client of it, and the folder with its settings, database and log."""

    running: Server
    http: httpx.AsyncClient
    folder: Path
    _read: int = 0
    _reported: list[Json] = field(default_factory=list)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.running.url.rpartition(":")[2])

    def chat(self, **options: Any) -> Chat:
        """A client that resends its whole history; options as in `Chat`."""
        return Chat(self.http, **options)

    def log(self) -> list[Json]:
        """Everything that was logged so far."""
        return [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]

    def write(self, **sections: Any) -> None:
        """The settings file holds these sections from now on, and nothing else."""
        written(self.folder, **sections)

    async def reload(self, **sections: Any) -> Json:
        """The log line of a reload of these sections."""
        self.write(**sections)
        return await self.hang_up()

    async def hang_up(self) -> Json:
        """The log line that answers a SIGHUP."""
        before = len(self._news())
        self.running.process.send_signal(signal.SIGHUP)
        return (await self.reports(before + 1))[-1]

    async def reports(self, count: int) -> Sequence[Json]:
        """The log lines of reloads, once there are so many."""
        for _ in range(_LOOKS):
            if len(found := self._news()) >= count:
                return found
            await asyncio.sleep(_LOOK_SECONDS)
        raise AssertionError(f"no reload: {self.log()}")

    def _news(self) -> Sequence[Json]:
        """The log lines of reloads so far; reads what was not read before."""
        with (self.folder / "log").open("rb") as log:
            log.seek(self._read)
            whole = log.read().rpartition(b"\n")[0]
        self._read += len(whole) + 1 if whole else 0
        lines = [json.loads(line) for line in whole.splitlines() if b"reload" in line]
        self._reported += [line for line in lines if line["event"] in _REPORTS]
        return self._reported


def written(folder: Path, **sections: Any) -> None:
    """Write the settings file, with a log that tests can read."""
    text = yaml.safe_dump({"window": WINDOW, "logging": {"format": "json"}, **sections})
    (folder / "palimpsest.yaml").write_text(text, encoding="utf-8")


@asynccontextmanager
async def reloadable(
    folder: Path, environment: dict[str, str] | None = None, **sections: Any
) -> AsyncIterator[Reloadable]:
    """The proxy on a SQLite file in `folder`; settings in `environment` cannot be changed by a reload."""
    written(folder, **sections)
    async with (
        server(folder, None, None, **(environment or {})) as running,
        httpx.AsyncClient(base_url=running.url, timeout=60, trust_env=False, verify=False) as http,
    ):
        yield Reloadable(running, http, folder)
