"""Work behind the answers in a process of its own, so that the event loop keeps the interpreter to itself.

Reading messages for the index of words and for checkpoints is plain computation: in a thread it holds the
interpreter's lock, for which the loop and the store's writer then wait. The process gets a function and its
arguments and sends back the result. It has a low priority, and neither keys nor a connection to the database:
what is behind is known to the store, so that nothing is lost with it.

Run as a program, this module is that process.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import structlog

from palimpsest.errors import BackgroundFailed
from palimpsest.proxy.jobs import Jobs

P = ParamSpec("P")
T = TypeVar("T")

# The process is started when so many bytes were to be read in so many seconds. A start takes 0.3 s of a
# processor and 30 MB; a thread reads a megabyte in about as long.
START_BYTES = 1_000_000
WINDOW_SECONDS = 10.0
# It ends when it had nothing to do for so long.
IDLE_SECONDS = 60.0
# Added to the process's niceness.
NICENESS = 10
_SIZE_BYTES = 8
# Over the same work; then it is given up.
_MOST_DEATHS = 2
_log = structlog.get_logger("palimpsest.background")


class Background:
    """Runs functions in the process, one at a time; in a thread while there is little to do."""

    def __init__(
        self, jobs: Jobs, start_bytes: int = START_BYTES, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self._jobs = jobs
        self._start_bytes = start_bytes
        self._idle_seconds = idle_seconds
        self._process: Process | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._turn = asyncio.Lock()
        self._since = self._bytes = 0.0

    @property
    def pid(self) -> int | None:
        """The id of the process, None while there is none."""
        return self._process.pid if self._process else None

    async def run(self, weight: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `work`, a function of a module, on values that can be pickled.

        `weight`: the bytes that it reads. BackgroundFailed when it raised, or the process died over it.
        """
        if self._process is None:
            now = time.monotonic()
            if now - self._since > WINDOW_SECONDS:
                self._since, self._bytes = now, 0
            self._bytes += weight
            if self._bytes < self._start_bytes:
                return await asyncio.to_thread(work, *args, **kwargs)
        try:
            return cast(T, await self._jobs.finish(self._answered(pickle.dumps((work, args, kwargs)))))
        except OSError as error:
            _log.warning("background_process_not_started", error=type(error).__name__)
            return await asyncio.to_thread(work, *args, **kwargs)

    def forget(self) -> None:
        """End the process, whose caches hold words of what it read (P6); what it was doing is begun again."""
        if (process := self._killed()) is not None:
            self._jobs.start(process.wait())

    async def close(self) -> None:
        """End the process."""
        if self._idle is not None:
            self._idle.cancel()
        if (process := self._killed()) is not None:
            await process.wait()

    def _killed(self) -> Process | None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
        return process

    async def _answered(self, asked: bytes) -> Any:
        async with self._turn:
            if self._idle is not None:
                self._idle.cancel()
            try:
                deaths = 0
                while deaths < _MOST_DEATHS:
                    if self._process is None:
                        # Without -P it would import what lies in the current folder.
                        command = (sys.executable, "-P", "-m", "palimpsest.proxy.background")
                        self._process = await asyncio.create_subprocess_exec(
                            *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
                        )
                    process = self._process
                    writer, reader = process.stdin, process.stdout
                    assert writer is not None
                    assert reader is not None
                    try:
                        writer.write(len(asked).to_bytes(_SIZE_BYTES) + asked)
                        await writer.drain()
                        size = int.from_bytes(await reader.readexactly(_SIZE_BYTES))
                        answer = await reader.readexactly(size)
                        is_done, result = pickle.loads(answer)  # noqa: S301 - written by our own process
                        if not is_done:
                            raise BackgroundFailed(f"work in the background raised {result}")
                        return result
                    except asyncio.CancelledError:
                        # Its answer would be taken for the next one.
                        self.forget()
                        raise
                    except (BrokenPipeError, ConnectionResetError, asyncio.IncompleteReadError):
                        status = await process.wait()
                    if process is self._process:
                        # Nobody has ended it.
                        self._process = None
                        deaths += 1
                        _log.warning("background_process_died", status=status)
                raise BackgroundFailed("the process for work in the background died over the same work again")
            finally:
                self._idle = asyncio.get_running_loop().call_later(self._idle_seconds, self.forget)


def _serve() -> None:
    """Run what is asked on the standard input, until its end: the server has ended, too."""
    # A Ctrl-C in a terminal is for the server, which ends this process in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    asked, answers = sys.stdin.buffer, sys.stdout.buffer

    def answer(value: object) -> None:
        told = pickle.dumps(value)
        answers.write(len(told).to_bytes(_SIZE_BYTES) + told)
        answers.flush()

    # The server begins a new process; of the error only the type is told, since texts may be in it.
    sys.excepthook = lambda kind, *_: answer((False, kind.__name__))
    while len(size := asked.read(_SIZE_BYTES)) == _SIZE_BYTES:
        work, args, kwargs = pickle.loads(asked.read(int.from_bytes(size)))  # noqa: S301 - the server's
        answer((True, work(*args, **kwargs)))


if __name__ == "__main__":
    _serve()
