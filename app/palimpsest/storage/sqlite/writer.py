"""Commits the units of all callers together (group commit), on its own thread or, for one caller, inline.

It owns the only write connection and all checkpoints: SQLite before 3.51.3 can corrupt a WAL when two
connections write or checkpoint at once (sqlite.org/wal).
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from palimpsest.errors import StoreUnavailable
from palimpsest.storage.database import Pace
from palimpsest.storage.sqlite.commits import Busy, Commits, Waiting, Work, fail
from palimpsest.storage.sqlite.driver import Connection, driver
from palimpsest.storage.sqlite.files import FileCondition, Reserve

# The most units per commit, so that a commit stays well below the deadline.
_GROUP_UNITS = 512
# The wait for further units in a crowd: a commit writes some twenty pages, many of which they share.
_GATHER_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class _Scrubbing:
    """A request to empty the log, and to zero the unused room of the pages at these offsets."""

    pages: Sequence[int]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[bool]


class Writer:
    """Runs units in order. `connect` is called on the writer's thread; `wal` is the log's path.

    `busy_seconds` bounds the wait for another process that writes.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        wal: Path,
        busy_seconds: float,
        condition: FileCondition,
        reserve: Reserve,
    ) -> None:
        self._connect = connect
        self._wal = wal
        self._condition = condition
        self._reserve = reserve
        self._busy_seconds = busy_seconds
        # None wakes the thread to look for a due checkpoint, a scrub or the end.
        self._waiting: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._scrubs: queue.SimpleQueue[_Scrubbing] = queue.SimpleQueue()
        self._commits: Commits | None = None
        self._in_use = threading.Lock()
        self._pending = 0
        self._closed = False
        self._ready: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)

    def start(self) -> None:
        """Start the thread and open the connection; StoreUnavailable when that fails."""
        self._thread.start()
        failure = self._ready.get()
        if failure is not None:
            raise StoreUnavailable(f"the database cannot be opened: {failure}") from failure

    def submit(self, work: Work, pace: Pace = "usual") -> asyncio.Future[tuple[int, ...]]:
        """A future of the running loop: the rows each step touched, once they are durable.

        A commit that is "alone" runs on the calling thread if recent commits were quick: a hop to the
        writer's thread and back costs as much as the commit (docs/decisions/0006).
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[int, ...]] = loop.create_future()
        commits = self._commits
        if self._closed or commits is None or commits.broken:
            why = commits.broken if commits else None
            future.set_exception(StoreUnavailable(why or "the store is closed"))
            return future
        waiting = Waiting(work, loop, future, pace)
        if pace == "alone" and not self._pending and self._committed_here(commits, waiting):
            _deliver([waiting])
            return future
        self._pending += 1
        future.add_done_callback(self._ended)
        self._waiting.put(waiting)
        return future

    def scrub(self, pages: Sequence[int] = ()) -> asyncio.Future[bool]:
        """A future of the running loop: True once the log is empty and the unused room of `pages` is zero.

        False: a reader or another process kept the log in use. StoreUnavailable when it failed.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        if self._closed:
            future.set_exception(StoreUnavailable("the store is closed"))
            return future
        self._scrubs.put(_Scrubbing(pages, loop, future))
        self._waiting.put(None)
        return future

    def close(self) -> None:
        """Everything submitted is durable or has failed; the WAL is emptied. Blocks; idempotent."""
        self._closed = True
        self._waiting.put(None)
        self._thread.join()

    def _ended(self, _: asyncio.Future[tuple[int, ...]]) -> None:
        self._pending -= 1

    def _committed_here(self, commits: Commits, waiting: Waiting) -> bool:
        """Commit on the calling thread; False when that would have to wait for anything but a quick disk."""
        if not commits.is_quick or not self._in_use.acquire(blocking=False):
            return False
        try:
            commits.run([waiting], wait_seconds=0.0)
        except Busy:
            return False
        finally:
            self._in_use.release()
        if commits.is_checkpoint_due:
            self._waiting.put(None)
        return True

    def _run(self) -> None:
        try:
            connection = self._connect()
        except (driver.Error, OSError) as failure:
            self._ready.put(failure)
            return
        commits = self._commits = Commits(connection, self._wal, self._condition, self._reserve)
        self._ready.put(None)
        try:
            self._serve(commits)
        finally:
            # However the thread ended, no caller may wait for it.
            commits.broken = commits.broken or "the store is closed"
            connection.close()

    def _serve(self, commits: Commits) -> None:
        """Commit units until the writer is closed and the queue is empty."""
        open_ = True
        while open_:
            group = self._next_group()
            open_ = bool(group) or not self._closed or not self._waiting.empty()
            with self._in_use:
                if group:
                    self._commit(commits, group)
                    _resolve(group)
                # What was written may be erased next: it is not held until then.
                group = []
                if commits.is_checkpoint_due:
                    commits.checkpoint("PASSIVE")
                self._scrub(commits)
        commits.checkpoint("TRUNCATE")

    def _scrub(self, commits: Commits) -> None:
        while not self._scrubs.empty():
            asked = self._scrubs.get()
            outcome = commits.scrubbed(asked.pages)
            if not asked.loop.is_closed():
                asked.loop.call_soon_threadsafe(_tell, asked.future, outcome)

    def _commit(self, commits: Commits, group: list[Waiting]) -> None:
        try:
            commits.run(group, self._busy_seconds)
        except Busy as locked:
            fail(group, f"the database cannot write: {locked}")

    def _next_group(self) -> list[Waiting]:
        """All units in the queue; none when the thread was only woken."""
        group: list[Waiting] = []
        item = self._waiting.get()
        if item is not None and item.pace == "crowded":
            time.sleep(_GATHER_SECONDS)
        while item is not None:
            if not item.future.done():
                group.append(item)
            if len(group) >= _GROUP_UNITS:
                return group
            try:
                item = self._waiting.get_nowait()
            except queue.Empty:
                return group
        if group:
            # The wake-up is for the next round.
            self._waiting.put(None)
        return group


def _tell(future: asyncio.Future[bool], outcome: bool | Exception) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _resolve(group: list[Waiting]) -> None:
    """Each loop is woken once for all its units."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Waiting]] = {}
    for waiting in group:
        by_loop.setdefault(waiting.loop, []).append(waiting)
    for loop, done in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_deliver, done)


def _deliver(done: list[Waiting]) -> None:
    for waiting in done:
        if waiting.future.done():
            continue
        if isinstance(waiting.outcome, Exception):
            waiting.future.set_exception(waiting.outcome)
        else:
            waiting.future.set_result(waiting.outcome)
