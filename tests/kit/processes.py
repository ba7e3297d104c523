"""`palimpsest` in processes of its own: commands, and servers that can be killed.

The processes are forked from one that has imported the program and loaded what every server loads. That takes
most of a start's CPU, is the same each time, and tests start three hundred. `tests/cli/test_cli.py` starts
it as a shell does.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

# A process that says nothing for so long is stuck.
PATIENCE_SECONDS = 60
# What commands import when they run, and what servers load behind that.
_IMPORTED = ("backups", "doctor", "main", "serve")


class Process:
    """A running `palimpsest`. Its environment is that of the tests, less their settings, and `settings`."""

    def __init__(self, folder: Path, *words: str, settings: Mapping[str, str], out: Path, err: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PALIMPSEST_")}
        given = (words, folder, {**kept, **settings}, (out, err))
        self._process: ForkServerProcess = _context().Process(target=_palimpsest, args=given)
        self._process.start()

    @property
    def pid(self) -> int:
        """Its number."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """As it has ended; None while it runs."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """It gets the signal, if it still runs."""
        # It may have ended, and whose child it is may not have said so yet.
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """It is asked to stop."""
        self.send_signal(signal.SIGTERM)

    def join(self) -> int:
        """As it has ended, which this thread waits for."""
        self._process.join(PATIENCE_SECONDS)
        assert self.returncode is not None, "it does not end"
        return self.returncode

    async def wait(self) -> int:
        """As it has ended."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(self._process.sentinel, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._process.sentinel)
        return self.join()


def ran(folder: Path, *words: str, settings: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """What `palimpsest` says to these words in `folder`, and its exit code."""
    with tempfile.TemporaryDirectory() as said:
        out, err = Path(said, "out"), Path(said, "err")
        code = Process(folder, *words, settings=settings, out=out, err=err).join()
        return subprocess.CompletedProcess(words, code, out.read_text(), err.read_text())


@cache
def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    modules = [f"palimpsest.cli.{name}" for name in _IMPORTED]
    modules.append("tests.kit.preloaded")
    # A module that is not there would be passed over without a word.
    assert all(map(find_spec, modules))
    context.set_forkserver_preload(modules)
    return context


def _palimpsest(
    words: tuple[str, ...], folder: Path, environment: dict[str, str], said: tuple[Path, Path]
) -> None:
    """What the new process does: all that it has of its parent's is as a shell would have made it."""
    from palimpsest.cli.main import main

    sys.argv = ["palimpsest", *words]
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    os.umask(0o022)
    for number, file in enumerate(said, start=1):
        os.dup2(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND), number)
    main()
