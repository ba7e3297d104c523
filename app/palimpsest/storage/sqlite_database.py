"""Executes units and readings on SQLite: one writer thread, one inline reader, a few reader threads.

A bounded indexed read costs 7 to 11 us on the calling thread, a hop to another thread and back 60 to 100.
So `read_bounded` runs on the calling thread (see docs/decisions); `read_snapshot` never does.

The units of all callers are committed together (group commit), on the writer's thread or, for one caller,
inline. The writer owns the only write connection and all checkpoints: SQLite before 3.51.3 can corrupt a WAL
when two connections write or checkpoint at once (sqlite.org/wal).
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

from sqlalchemy.dialects import sqlite

from palimpsest.errors import Conflict, StoreError, StoreUnavailable
from palimpsest.storage.database import (
    After,
    Pace,
    Params,
    Reading,
    Reason,
    Scrub,
    StoreFault,
    Unit,
    compiler_of,
    is_due,
)
from palimpsest.storage.sqlite_files import (
    WAL_BYTES,
    Connection,
    Failure,
    FileCondition,
    Reserve,
    Synchronous,
    driver,
    fault_of,
    is_busy,
    readonly,
    size_of,
    writable,
)

# The statement's text, its rows (positional, or beside what makes them so), the condition for running it, and
# whether the unit needs it. Many rows are made positional on the writer's thread.
Work: TypeAlias = list[tuple[str, Sequence[Any], Callable[[Params], Sequence[object]] | None, After, bool]]
Outcome: TypeAlias = "tuple[int, ...] | Exception"

# Units between two checkpoints: at some twenty pages each they make a WAL of 16 MB, copied in some 20 ms.
# Long units are noticed by the file's size, checked every `_LOOK_UNITS` units.
_CHECKPOINT_UNITS = 200
_LOOK_UNITS = 10
# How SQLite says that a unique index is violated; `pysqlite3` does not give the extended code.
_UNIQUE = "UNIQUE constraint failed"
# Errors that refuse a unit; ValueError and the like: a number too large, or a lone surrogate.
_REFUSALS = (driver.Error, ValueError, TypeError, OverflowError)
# The longest quick commit in seconds, and how many in a row prove a disk fast enough for inline commits.
_QUICK_SECONDS = 0.002
_QUICK_COMMITS = 8
# Seconds between two attempts while another process has the database locked.
_RETRY_SECONDS = 0.005
# The most units per commit, so that a commit stays well below the deadline.
_GROUP_UNITS = 512
# The wait for further units in a crowd: a commit writes some twenty pages, many of which they share.
_GATHER_SECONDS = 0.001


@dataclass(slots=True)
class Waiting:
    """A unit and the future that its caller awaits."""

    work: Work
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[tuple[int, ...]]
    pace: Pace = "usual"
    outcome: Outcome = field(default=())


class Busy(Exception):
    """Another process has the database locked; nothing was done."""


class Commits:
    """The connection's transactions, one at a time. `broken` says why writing has stopped for good."""

    def __init__(self, connection: Connection, wal: Path, condition: FileCondition, reserve: Reserve) -> None:
        self.broken: str | None = None
        self._connection = connection
        self._wal = wal
        self._condition = condition
        self._reserve = reserve
        condition.opened()
        self._units = 0
        self._quick = 0

    @property
    def is_quick(self) -> bool:
        """True when the last eight commits took less than 2 ms each."""
        return self._quick >= _QUICK_COMMITS

    @property
    def is_checkpoint_due(self) -> bool:
        """True when the WAL has about reached the size it should have."""
        many = self._units >= _CHECKPOINT_UNITS
        return many or (self._units % _LOOK_UNITS == 0 and self._wal_bytes() > WAL_BYTES)

    def run(self, group: list[Waiting], wait_seconds: float) -> None:
        """Set each unit's outcome; units that succeeded are durable. Busy: no outcome is set."""
        # The file's identity is checked once, after the commit: an acknowledged commit must be readable
        # later.
        if self.broken or (reason := self._condition.settled):
            fail(group, self.broken or _why(reason), None if self.broken else reason)
            return
        try:
            self._begin(wait_seconds)
            began = time.perf_counter()
            _run_group(self._connection, group)
            self._connection.execute("COMMIT")
        except driver.Error as failure:
            self._quick = 0
            found = self._condition.failed(failure)
            fail(group, f"the database cannot write: {failure}", found)
            if self._connection.in_transaction:
                self._roll_back()
            urgent = [waiting for waiting in group if waiting.pace == "urgent"]
            # With the space of the disk reserve and of the log.
            if found == "disk_full" and urgent and self._reserve.give_up():
                self.checkpoint("TRUNCATE")
                self.run(urgent, wait_seconds)
            return
        if lost := self._condition.lost():
            # The commit went into a file that no path names any more.
            fail(group, _why(lost), lost)
            return
        self._condition.committed()
        self._quick = self._quick + 1 if time.perf_counter() - began < _QUICK_SECONDS else 0
        self._units += len(group)

    def checkpoint(self, mode: str) -> bool:
        """Copy the WAL into the database as far as readers allow; True: all of it."""
        self._units = 0
        if self.broken or self._condition.lost():
            return False
        try:
            ((held_back, _, _),) = self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        except driver.Error as failure:
            self._condition.failed(failure)
            return False
        return not held_back

    def scrubbed(self, pages: Sequence[int]) -> bool | Exception:
        """Empty the WAL, then zero the unused room of the pages at these offsets; True when both was done."""
        if self.broken or (reason := self._condition.lost()):
            return StoreUnavailable(self.broken or _why(reason))
        if not self.checkpoint("TRUNCATE"):
            return False
        if not pages:
            return True
        try:
            # A page of this connection's cache would be written with what was zeroed.
            self._connection.execute("PRAGMA shrink_memory")
            self._connection.execute("BEGIN IMMEDIATE")
            # Another process may have written in between.
            if is_free := not self._wal_bytes():
                self._condition.zero(pages)
                # A commit, for the caches of other processes. Nothing reads this number.
                self._connection.execute("PRAGMA user_version=0")
            self._connection.execute("COMMIT")
        except driver.Error as failure:
            if self._connection.in_transaction:
                self._roll_back()
            self._condition.failed(failure)
            return StoreUnavailable(f"the database cannot be scrubbed: {failure}")
        return is_free

    def _wal_bytes(self) -> int:
        try:
            return self._wal.stat().st_size
        except FileNotFoundError:
            return 0

    def _begin(self, wait_seconds: float) -> None:
        """Begin a write transaction. Waits itself: SQLite's busy timeout would block a caller's thread."""
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except driver.OperationalError as failure:
                if not is_busy(failure):
                    raise
                if time.monotonic() >= deadline:
                    raise Busy(str(failure)) from failure
                time.sleep(_RETRY_SECONDS)
            else:
                return

    def _roll_back(self) -> None:
        try:
            self._connection.execute("ROLLBACK")
        except driver.Error as failure:
            self.broken = f"a failed commit could not be undone: {failure}; restart to recover"


def _run_group(connection: Connection, group: list[Waiting]) -> None:
    """Set each unit's outcome. Units rarely fail: savepoints are used only after a failure."""
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
    """Run the unit in a savepoint; its outcome, without effect on the group's other units.

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
        if _UNIQUE in str(failure):
            return Conflict(f"another session took the name: {failure}")
        if isinstance(failure, driver.OperationalError):
            return StoreUnavailable(f"the database cannot write: {failure}")
        return StoreError(f"the database refused a row: {failure}")
    connection.execute("RELEASE unit")
    return touched


def _ends_all(connection: Connection, failure: Exception) -> bool:
    """True when the failure ended the whole transaction, or the disk is at fault."""
    if not isinstance(failure, driver.Error):
        return False
    return fault_of(failure) is not None or not connection.in_transaction


def _run_steps(connection: Connection, work: Work) -> tuple[int, ...]:
    """Rows touched by each step."""
    touched, last = [], 0
    for sql, rows, bind, after, needed in work:
        due = after == "any" or is_due(after, last)
        if due and len(rows) == 1:
            last = connection.execute(sql, rows[0]).rowcount
        elif due:
            last = connection.executemany(sql, map(bind, rows) if bind else rows).rowcount
        touched.append(last if due else 0)
        if needed and touched[-1] < 1:
            touched += [0] * (len(work) - len(touched))
            break
    return tuple(touched)


def fail(group: list[Waiting], why: str, reason: Reason | None = None) -> None:
    """Set every unit's outcome to StoreUnavailable."""
    for waiting in group:
        waiting.outcome = StoreUnavailable(why, reason=reason)


def _why(reason: Reason | None) -> str:
    return (
        f"the database cannot be used: {StoreFault(reason).remedy}"
        if reason
        else "the database cannot be used"
    )


class Writer:
    """Runs units in order, on the connection that it owns; `wal` is the log's path.

    `busy_seconds` bounds the wait for another process that writes.
    """

    def __init__(
        self,
        connection: Connection,
        wal: Path,
        busy_seconds: float,
        condition: FileCondition,
        reserve: Reserve,
    ) -> None:
        self._connection = connection
        self._commits = Commits(connection, wal, condition, reserve)
        self._busy_seconds = busy_seconds
        # None wakes the thread to look for a due checkpoint, a scrub or the end.
        self._waiting: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        # Requests to empty the log, and to zero the unused room of the pages at these offsets.
        self._scrubs: queue.SimpleQueue[
            tuple[Sequence[int], asyncio.AbstractEventLoop, asyncio.Future[bool]]
        ] = queue.SimpleQueue()
        self._in_use = threading.Lock()
        self._pending = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Work, pace: Pace = "usual") -> asyncio.Future[tuple[int, ...]]:
        """A future of the running loop: the rows each step touched, once they are durable.

        A commit that is "alone" runs on the calling thread if recent commits were quick: a hop to the
        writer's thread and back costs as much as the commit (docs/decisions/0006).
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[int, ...]] = loop.create_future()
        broken = self._commits.broken
        if self._closed or broken:
            future.set_exception(StoreUnavailable(broken or "the store is closed"))
            return future
        waiting = Waiting(work, loop, future, pace)
        if pace == "alone" and not self._pending and self._committed_here(waiting):
            _settle(future, waiting.outcome)
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
        self._scrubs.put((pages, loop, future))
        self._waiting.put(None)
        return future

    def close(self) -> None:
        """Everything submitted is durable or has failed; the WAL is emptied. Blocks; idempotent."""
        self._closed = True
        self._waiting.put(None)
        self._thread.join()

    def _ended(self, _: asyncio.Future[tuple[int, ...]]) -> None:
        self._pending -= 1

    def _committed_here(self, waiting: Waiting) -> bool:
        """Commit on the calling thread; False when that would have to wait for anything but a quick disk."""
        commits = self._commits
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
        """Commit units until the writer is closed and the queue is empty."""
        commits, is_open = self._commits, True
        try:
            while is_open:
                group = self._next_group()
                is_open = bool(group) or not self._closed or not self._waiting.empty()
                with self._in_use:
                    if group:
                        self._commit(group)
                    # What was written may be erased next: it is not held until then.
                    group = []
                    if commits.is_checkpoint_due:
                        commits.checkpoint("PASSIVE")
                    while not self._scrubs.empty():
                        pages, loop, future = self._scrubs.get()
                        outcome = commits.scrubbed(pages)
                        if not loop.is_closed():
                            loop.call_soon_threadsafe(_settle, future, outcome)
            commits.checkpoint("TRUNCATE")
        finally:
            # However the thread ended, no caller may wait for it.
            commits.broken = commits.broken or "the store is closed"
            self._connection.close()

    def _commit(self, group: list[Waiting]) -> None:
        """Commit the units; each loop is woken once for all of its own."""
        try:
            self._commits.run(group, self._busy_seconds)
        except Busy as locked:
            fail(group, f"the database cannot write: {locked}")
        by_loop: dict[asyncio.AbstractEventLoop, list[Waiting]] = {}
        for waiting in group:
            by_loop.setdefault(waiting.loop, []).append(waiting)
        for loop, done in by_loop.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_deliver, done)

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


def _deliver(done: list[Waiting]) -> None:
    for waiting in done:
        _settle(waiting.future, waiting.outcome)


def _settle(future: asyncio.Future[Any], outcome: object) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


T = TypeVar("T")

# Seconds between attempts to empty the log while readers use it, and how many: a reading takes milliseconds,
# a listing of everything a second.
_LOOK_SECONDS = 0.05
_LOOKS = 40
# Two, so that one long listing does not delay a transcript; more would gain nothing under the GIL.
_READERS = 2
# At most so many rows of a step are built on the calling thread; 3 us each.
_INLINE_ROWS = 256
# Pages that are zeroed while others wait: some 10 ms.
_SLICE_PAGES = 500


class SqliteDatabase:
    """See `SqlDatabase`. Create it on the event loop's thread, on which the inline reader runs."""

    has_fts5 = True

    def __init__(
        self,
        path: Path,
        synchronous: Synchronous,
        deadline_seconds: float,
    ) -> None:
        self.path = path
        self._deadline_seconds = deadline_seconds
        self.compiled = compiler_of(sqlite.dialect)
        self._condition = FileCondition(path)
        self._reserve = Reserve(path)
        try:
            connection = writable(path, synchronous)
        except (driver.Error, OSError) as failure:
            raise StoreUnavailable(f"the database cannot be opened: {failure}") from failure
        self._writer = Writer(
            connection,
            path.with_name(path.name + "-wal"),
            deadline_seconds,
            self._condition,
            self._reserve,
        )
        self._idle: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        try:
            self._inline = readonly(path, deadline_seconds)
            for _ in range(_READERS):
                self._idle.put(readonly(path, deadline_seconds))
        except driver.Error as failure:
            self._writer.close()
            raise StoreUnavailable(f"the database cannot be read: {failure}") from failure
        self._threads = ThreadPoolExecutor(_READERS, thread_name_prefix="store-reader")
        self._closed = False
        self._keeps_reserve = False

    async def write(self, unit: Unit, *, pace: Pace = "usual", seconds: float | None = None) -> Sequence[int]:
        """See `SqlDatabase`."""
        work: Work = []
        for step in unit:
            compiled = self.compiled[step.statement]
            rows: Sequence[Any] = step.rows
            bind = compiled.bind if len(rows) > _INLINE_ROWS else None
            bound = rows if bind else list(map(compiled.bind, rows))
            work.append((compiled.sql, bound, bind, step.after, step.needed))
        committed = self._writer.submit(work, pace)
        if committed.done():
            return committed.result()

        def give_up() -> None:
            # The writer skips a unit whose caller has given up, unless it is running it already.
            if not committed.done():
                committed.set_exception(StoreUnavailable("the database did not commit in time"))

        # A timer of its own: `asyncio.timeout` costs three times as much.
        late = asyncio.get_running_loop().call_later(seconds or self._deadline_seconds, give_up)
        try:
            return await asyncio.shield(committed)
        finally:
            late.cancel()

    def trouble(self) -> StoreFault | None:
        """See `SqlDatabase`."""
        reason = self._condition.looked_at()
        return StoreFault(reason) if reason else None

    async def size_bytes(self) -> int:
        """See `SqlDatabase`."""
        try:
            return await asyncio.to_thread(size_of, self.path)
        except OSError as error:
            raise StoreUnavailable("The database's file cannot be read.") from error

    async def keep_reserve(self, size: int) -> bool:
        """See `SqlDatabase`."""
        self._keeps_reserve = True
        return await asyncio.get_running_loop().run_in_executor(None, self._reserve.keep, size)

    async def scrub(self) -> Scrub:
        """See `SqlDatabase`. Its memory and the time for which it keeps writers waiting are bounded."""
        if not await self.empty_log():
            return "pending"
        try:
            pages = await asyncio.get_running_loop().run_in_executor(None, self._condition.remains)
        except OSError as failure:
            raise StoreUnavailable(f"the database cannot be scrubbed: {failure}") from failure
        for start in range(0, len(pages), _SLICE_PAGES):
            if not await self.empty_log(pages[start : start + _SLICE_PAGES]):
                return "pending"
        return "scrubbed"

    async def empty_log(self, pages: Sequence[int] = ()) -> bool:
        """Empty the WAL and zero the unused room of `pages`; False when readers prevented it all the time."""
        for _ in range(_LOOKS):
            if await self._writer.scrub(pages):
                return True
            await asyncio.sleep(_LOOK_SECONDS)
        return False

    async def read_bounded(self, reading: Reading[T]) -> T:
        """See `SqlDatabase`."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        return self._drive(self._inline, reading)

    async def read_snapshot(self, reading: Reading[T], seconds: float | None = None) -> T:
        """See `SqlDatabase`."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds or self._deadline_seconds):
                return await loop.run_in_executor(self._threads, self._snapshot, reading)
        except TimeoutError as late:
            raise StoreUnavailable("the database did not answer in time") from late

    async def close(self) -> None:
        """See `SqlDatabase`."""
        if self._closed:
            return
        self._closed = True
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._threads.shutdown)
        self._inline.close()
        for _ in range(_READERS):
            self._idle.get().close()
        # Last, so that no reader prevents emptying the WAL.
        await loop.run_in_executor(None, self._writer.close)
        self._condition.closed()
        if self._keeps_reserve:
            # Nothing is erased while no server runs.
            self._reserve.give_up()

    def _snapshot(self, reading: Reading[T]) -> T:
        """The reading's value, from one snapshot."""
        connection = self._idle.get()
        try:
            connection.execute("BEGIN")
            try:
                return self._drive(connection, reading)
            finally:
                connection.execute("ROLLBACK")
        except driver.Error as failure:
            raise self._unreadable(failure) from failure
        finally:
            self._idle.put(connection)

    def _unreadable(self, failure: Failure) -> StoreUnavailable:
        reason = self._condition.failed(failure)
        return StoreUnavailable(f"the database cannot be read: {failure}", reason=reason)

    def _drive(self, connection: Connection, reading: Reading[T]) -> T:
        try:
            statement, params = next(reading)
            while True:
                compiled = self.compiled[statement]
                rows = connection.execute(compiled.sql, compiled.bind(params)).fetchall()
                statement, params = reading.send(rows)
        except StopIteration as end:
            return cast(T, end.value)
        except driver.Error as failure:
            raise self._unreadable(failure) from failure
