"""Commits everybody's units together (group commit), on a thread of its own or, for a single caller, at once.

Must not know statements' meaning. It owns the only write connection and all checkpoints: SQLite
before 3.51.3 can corrupt a WAL when two connections write or checkpoint at once (sqlite.org/wal).
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from app.errors import Conflict, StoreError, StoreUnavailable
from app.storage.database import After, is_due
from app.storage.sqlite.driver import WAL_BYTES, Connection, Failure, driver, is_busy, is_disk_error

# The statement's text, the positional rows it is run for, and when it is run.
Work: TypeAlias = list[tuple[str, Sequence[Sequence[object]], After]]
Outcome: TypeAlias = "tuple[int, ...] | Exception"

# Units between two checkpoints: some twenty pages each make a WAL of 16 MB, which is copied in some 20 ms.
# Long units are noticed by the size of the file, which is looked at now and then.
_CHECKPOINT_UNITS = 200
_LOOK_UNITS = 10
# How SQLite says that a unique index is violated; `pysqlite3` does not give the extended code.
_UNIQUE = "UNIQUE constraint failed"
# What refuses a unit; ValueError and the like: a number too large, or half of a character.
_REFUSALS = (driver.Error, ValueError, TypeError, OverflowError)
# Units committed together at most, so that one commit stays well below a deadline.
_GROUP_UNITS = 512
# What a quick commit takes at most, and how many in a row prove a disk that will not hold up a caller.
_QUICK_SECONDS = 0.002
_QUICK_COMMITS = 8
# Seconds between two attempts while another process has the database locked.
_RETRY_SECONDS = 0.005


@dataclass(slots=True)
class _Waiting:
    """A unit, and the future of the loop that waits for it."""

    work: Work
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[tuple[int, ...]]
    outcome: Outcome = field(default=())


class Writer:
    """Runs units in the order they came. `connect` is called on the writer's thread, `wal` is its log.

    `busy_seconds` bounds the wait for another process that writes.
    """

    def __init__(self, connect: Callable[[], Connection], wal: Path, busy_seconds: float) -> None:
        self._connect = connect
        self._wal = wal
        self._busy_seconds = busy_seconds
        # None asks the thread to see whether a checkpoint is due, or whether it is to end.
        self._waiting: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._commits: _Commits | None = None
        self._in_use = threading.Lock()
        self._pending = 0
        self._closed = False
        self._ready: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)

    def start(self) -> None:
        """The connection is open; StoreUnavailable when it cannot be."""
        self._thread.start()
        failure = self._ready.get()
        if failure is not None:
            raise StoreUnavailable(f"the database cannot be opened: {failure}") from failure

    def submit(self, work: Work, *, alone: bool = False) -> asyncio.Future[tuple[int, ...]]:
        """A future of the running loop: the rows each step touched, once they are durable.

        `alone`: nobody else is being served. The commit is then made here if commits have been quick:
        a hop to the writer's thread and back costs as much as the commit (docs/decisions/0006).
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[int, ...]] = loop.create_future()
        commits = self._commits
        if self._closed or commits is None or commits.broken:
            why = commits.broken if commits else None
            future.set_exception(StoreUnavailable(why or "the store is closed"))
            return future
        waiting = _Waiting(work, loop, future)
        if alone and not self._pending and self._committed_here(commits, waiting):
            _deliver([waiting])
            return future
        self._pending += 1
        future.add_done_callback(self._ended)
        self._waiting.put(waiting)
        return future

    def close(self) -> None:
        """Everything submitted is durable or has failed; the WAL is emptied. Blocks; idempotent."""
        self._closed = True
        self._waiting.put(None)
        self._thread.join()

    def _ended(self, _: asyncio.Future[tuple[int, ...]]) -> None:
        self._pending -= 1

    def _committed_here(self, commits: _Commits, waiting: _Waiting) -> bool:
        """False when it would have to wait for anything but a quick disk."""
        if not commits.is_quick or not self._in_use.acquire(blocking=False):
            return False
        try:
            commits.run([waiting], wait_seconds=0.0)
        except _Busy:
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
        commits = self._commits = _Commits(connection, self._wal)
        self._ready.put(None)
        try:
            self._serve(commits)
        finally:
            # Whatever ended the thread, nobody shall wait for it.
            commits.broken = commits.broken or "the store is closed"
            connection.close()

    def _serve(self, commits: _Commits) -> None:
        """Units are committed until the sign to end comes."""
        open_ = True
        while open_:
            group = self._next_group()
            open_ = bool(group) or not self._closed or not self._waiting.empty()
            with self._in_use:
                if group:
                    self._commit(commits, group)
                    _resolve(group)
                if commits.is_checkpoint_due:
                    commits.checkpoint("PASSIVE")
        commits.checkpoint("TRUNCATE")

    def _commit(self, commits: _Commits, group: list[_Waiting]) -> None:
        try:
            commits.run(group, self._busy_seconds)
        except _Busy as locked:
            _fail(group, f"the database cannot write: {locked}")

    def _next_group(self) -> list[_Waiting]:
        """All units that wait now; none when only a sign came."""
        group: list[_Waiting] = []
        item = self._waiting.get()
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
            # The sign is for the next round.
            self._waiting.put(None)
        return group


class _Busy(Exception):
    """Another process has the database locked; nothing was done."""


class _Commits:
    """The connection's transactions, one at a time. `broken` says why nothing is written any more."""

    def __init__(self, connection: Connection, wal: Path) -> None:
        self.broken: str | None = None
        self._connection = connection
        self._wal = wal
        self._units = 0
        self._quick = 0

    @property
    def is_quick(self) -> bool:
        """True when the last commits took no time to speak of."""
        return self._quick >= _QUICK_COMMITS

    @property
    def is_checkpoint_due(self) -> bool:
        """True when about as much has been written since the last one as the WAL should hold."""
        many = self._units >= _CHECKPOINT_UNITS
        return many or (self._units % _LOOK_UNITS == 0 and self._wal_bytes() > WAL_BYTES)

    def run(self, group: list[_Waiting], wait_seconds: float) -> None:
        """Each unit's outcome is set; what succeeded is durable. Raises _Busy: no outcome is set."""
        if self.broken:
            _fail(group, self.broken)
            return
        try:
            self._begin(wait_seconds)
            began = time.perf_counter()
            _run_group(self._connection, group)
            self._connection.execute("COMMIT")
        except driver.Error as failure:
            self._quick = 0
            self._judge(failure)
            _fail(group, f"the database cannot write: {failure}")
            if self._connection.in_transaction:
                self._roll_back()
            return
        self._quick = self._quick + 1 if time.perf_counter() - began < _QUICK_SECONDS else 0
        self._units += len(group)

    def checkpoint(self, mode: str) -> None:
        """The WAL is copied into the database, as far as readers let it."""
        self._units = 0
        if self.broken:
            return
        try:
            self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        except driver.Error as failure:
            self._judge(failure)

    def _wal_bytes(self) -> int:
        try:
            return self._wal.stat().st_size
        except FileNotFoundError:
            return 0

    def _begin(self, wait_seconds: float) -> None:
        """A write transaction. SQLite's own wait would hold up a caller's thread: we wait ourselves."""
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except driver.OperationalError as failure:
                if not is_busy(failure):
                    raise
                if time.monotonic() >= deadline:
                    raise _Busy(str(failure)) from failure
                time.sleep(_RETRY_SECONDS)
            else:
                return

    def _judge(self, failure: Failure) -> None:
        """After an I/O error the kernel may have dropped pages that a later fsync would call safe.

        Nothing written afterwards could be called durable, so the writer stays broken until the
        process starts again and SQLite recovers from what the disk really holds.
        """
        if is_disk_error(failure):
            self.broken = f"the disk failed: {failure}; restart to recover"

    def _roll_back(self) -> None:
        try:
            self._connection.execute("ROLLBACK")
        except driver.Error as failure:
            self.broken = f"a failed commit could not be undone: {failure}; restart to recover"


def _run_group(connection: Connection, group: list[_Waiting]) -> None:
    """Each unit's outcome is set. Units rarely fail: only then is each put into a savepoint of its own."""
    try:
        for waiting in group:
            waiting.outcome = _run_steps(connection, waiting.work)
    except _REFUSALS as failure:
        if _ends_all(connection, failure):
            raise
        connection.execute("ROLLBACK")
        connection.execute("BEGIN IMMEDIATE")
        for waiting in group:
            waiting.outcome = _run_unit(connection, waiting.work)


def _run_unit(connection: Connection, work: Work) -> Outcome:
    """What the unit did, or why it did nothing; the other units of the group are not touched.

    Raises when the failure ended the whole transaction, or the disk is at fault.
    """
    connection.execute("SAVEPOINT unit")
    try:
        touched = _run_steps(connection, work)
    except _REFUSALS as failure:
        if _ends_all(connection, failure):
            raise
        connection.execute("ROLLBACK TO unit")
        connection.execute("RELEASE unit")
        return _unit_failure(failure)
    connection.execute("RELEASE unit")
    return touched


def _ends_all(connection: Connection, failure: Exception) -> bool:
    """True when the failure ended the whole transaction, or the disk is at fault."""
    return isinstance(failure, driver.Error) and (is_disk_error(failure) or not connection.in_transaction)


def _run_steps(connection: Connection, work: Work) -> tuple[int, ...]:
    """Rows touched by each step."""
    touched, last = [], 0
    for sql, rows, after in work:
        due = is_due(after, last)
        if due and len(rows) == 1:
            last = connection.execute(sql, rows[0]).rowcount
        elif due:
            last = connection.executemany(sql, rows).rowcount
        touched.append(last if due else 0)
    return tuple(touched)


def _unit_failure(failure: Exception) -> Exception:
    if _UNIQUE in str(failure):
        return Conflict(f"another session took the name: {failure}")
    if isinstance(failure, driver.OperationalError):
        return StoreUnavailable(f"the database cannot write: {failure}")
    return StoreError(f"the database refused a row: {failure}")


def _fail(group: list[_Waiting], why: str) -> None:
    for waiting in group:
        waiting.outcome = StoreUnavailable(why)


def _resolve(group: list[_Waiting]) -> None:
    """Each loop is woken once for all its units."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Waiting]] = {}
    for waiting in group:
        by_loop.setdefault(waiting.loop, []).append(waiting)
    for loop, done in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_deliver, done)


def _deliver(done: list[_Waiting]) -> None:
    for waiting in done:
        if waiting.future.done():
            continue
        if isinstance(waiting.outcome, Exception):
            waiting.future.set_exception(waiting.outcome)
        else:
            waiting.future.set_result(waiting.outcome)
