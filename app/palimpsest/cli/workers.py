"""Runs several server processes on one socket, and starts those anew that end by themselves.

They are forked from one process that has loaded the program and accepts no request itself, so that they share
its memory. A worker whose parent is gone stops.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import TypeAlias

import structlog

from palimpsest.errors import PalimpsestError

_log = structlog.get_logger("palimpsest.workers")
_FORKING = get_context("fork")
_STOPS = (signal.SIGTERM, signal.SIGINT)
# A worker that ends sooner than this after its start, in seconds, is replaced only then: what ends at once
# must not take the whole processor.
_LIFE_SECONDS = 2.0
# The exit code of a server whose application does not start; uvicorn's.
FAILED_START = 3


# Serves until a stop signal: calls the first when it answers, or the second with why it cannot start. The
# number is the worker's place, from 0; a replacement has that of the worker that died.
Work: TypeAlias = Callable[[Callable[[], None], Callable[[PalimpsestError], None], int], None]


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    reports: Connection
    began: float
    has_started: bool = False

    @property
    def has_ended(self) -> bool:
        """Its end was noted. Whether the process is alive may change between two questions."""
        return self.reports.closed


class Workers:
    """`count` processes that each do `work`. `started` is called once, when all of them answer."""

    def __init__(self, count: int, work: Work, *, started: Callable[[], None]) -> None:
        self._count = count
        self._work = work
        self._started = started
        self._workers: dict[int, _Worker] = {}
        self._is_up = False
        self._stopped_by: int | None = None
        # Signals wake the wait for workers.
        self._woken, self._wakes = socket.socketpair()
        self._woken.setblocking(False)
        self._wakes.setblocking(False)

    def run(self) -> None:
        """Run until a stop signal. Raises what kept a worker from its first start.

        SystemExit: a worker failed before it could say why.
        """
        with self._woken, self._wakes, self._signals_handled():
            try:
                while self._stopped_by is None:
                    self._start_missing()
                    self._wait()
                    self._take_reports()
            finally:
                self._stop()
        if self._stopped_by == signal.SIGTERM:
            # As a single server ends: of the signal.
            os.kill(os.getpid(), signal.SIGTERM)

    @contextmanager
    def _signals_handled(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._on_signal) for number in _STOPS}
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._stopped_by = self._stopped_by or number

    def _start_missing(self) -> None:
        now = time.monotonic()
        for place in range(self._count):
            worker = self._workers.get(place)
            if worker is None or (worker.has_ended and now - worker.began >= _LIFE_SECONDS):
                self._workers[place] = self._forked(place)

    def _forked(self, place: int) -> _Worker:
        reports, parent = _FORKING.Pipe()
        process = _FORKING.Process(target=self._in_worker, args=(reports, parent, place), daemon=False)
        # A signal between the fork and the worker's own handlers waits.
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
        # The worker's copy is the only one, so that its end is noticed.
        parent.close()
        return _Worker(process, reports, time.monotonic())

    def _in_worker(self, reports: Connection, parent: Connection, place: int) -> None:
        """In the new process."""
        signal.set_wakeup_fd(-1)
        for number in _STOPS:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
        for sock in (self._woken, self._wakes):
            sock.close()
        reports.close()
        for other in self._workers.values():
            other.reports.close()

        def started() -> None:
            parent.send(None)
            asyncio.get_running_loop().add_reader(parent.fileno(), orphaned)

        def orphaned() -> None:
            # Whoever would restart and stop this process is gone.
            asyncio.get_running_loop().remove_reader(parent.fileno())
            os.kill(os.getpid(), signal.SIGTERM)

        with suppress(KeyboardInterrupt):
            self._work(started, parent.send, place)

    def _wait(self) -> None:
        """Until a worker reports or ends, a signal arrives, or an ended worker may be replaced."""
        alive = [worker for worker in self._workers.values() if not worker.has_ended]
        ended = [worker for worker in self._workers.values() if worker.has_ended]
        next_at = min((worker.began + _LIFE_SECONDS for worker in ended), default=None)
        seconds = None if next_at is None else max(0.0, next_at - time.monotonic())
        sentinels = [worker.process.sentinel for worker in alive]
        reports = [worker.reports for worker in alive if not worker.has_started]
        connection.wait([self._woken, *sentinels, *reports], seconds)
        with suppress(BlockingIOError):
            self._woken.recv(4096)

    def _take_reports(self) -> None:
        for worker in self._workers.values():
            if worker.has_ended:
                continue
            if not worker.has_started and worker.reports.poll():
                with suppress(EOFError):
                    refusal = worker.reports.recv()
                    worker.has_started = refusal is None
                    if refusal is not None and not self._is_up:
                        raise refusal
                    if refusal is not None:
                        _log.error("worker_refused", pid=worker.process.pid, reason=str(refusal))
            if not worker.process.is_alive():
                worker.reports.close()
                _log.error("worker_ended", pid=worker.process.pid, exit_code=worker.process.exitcode)
                # During the first start it ends the others too.
                if not self._is_up:
                    sys.exit(FAILED_START)
        if not self._is_up and all(worker.has_started for worker in self._workers.values()):
            self._is_up = True
            self._started()

    def _stop(self) -> None:
        """Stop all workers and wait: each has its own deadline for open answers."""
        stopped_by, self._stopped_by = self._stopped_by, None
        # Not SIGINT, which a terminal has sent to the workers already: a second one cuts their answers.
        self._send(signal.SIGTERM)
        while alive := [worker.process for worker in self._workers.values() if worker.process.is_alive()]:
            connection.wait([self._woken, *(process.sentinel for process in alive)])
            with suppress(BlockingIOError):
                self._woken.recv(4096)
            if self._stopped_by is not None:
                self._send(signal.Signals(self._stopped_by))
                self._stopped_by = None
        self._stopped_by = stopped_by

    def _send(self, number: signal.Signals) -> None:
        for worker in self._workers.values():
            if worker.process.is_alive() and worker.process.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(worker.process.pid, number)
