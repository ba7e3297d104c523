"""The one thread that writes to SQLite: it commits everybody's units together (group commit).

Must not know statements' meaning. It owns the only write connection and all checkpoints: SQLite
before 3.51.3 can corrupt a WAL when two connections write or checkpoint at once (sqlite.org/wal).
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from app.errors import Conflict, StoreError, StoreUnavailable
from app.storage.database import After, is_due
from app.storage.sqlite.driver import Connection, Failure, driver, is_disk_error

# The statement's text, the positional rows it is run for, and when it is run.
Work: TypeAlias = list[tuple[str, Sequence[Sequence[object]], After]]
Outcome: TypeAlias = "tuple[int, ...] | Exception"

# Bytes of WAL before a checkpoint is tried. A reset WAL is cut to `journal_size_limit`, far below.
_CHECKPOINT_BYTES = 16_000_000
# How SQLite says that a unique index is violated; `pysqlite3` does not give the extended code.
_UNIQUE = "UNIQUE constraint failed"
# What refuses a unit; ValueError and the like: a number too large, or half of a character.
_REFUSALS = (driver.Error, ValueError, TypeError, OverflowError)
# Units committed together at most, so that one commit stays well below a deadline.
_GROUP_UNITS = 512


@dataclass(slots=True)
class _Waiting:
    """A unit, and the future of the loop that waits for it."""

    work: Work
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[tuple[int, ...]]
    outcome: Outcome = field(default=())


class Writer:
    """Runs units in the order they came. `connect` is called on the writer's thread; `wal` is its log."""

    def __init__(self, connect: Callable[[], Connection], wal: Path) -> None:
        self._connect = connect
        self._wal = wal
        self._waiting: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._broken: str | None = None
        self._closed = False
        self._ready: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)

    def start(self) -> None:
        """The connection is open; StoreUnavailable when it cannot be."""
        self._thread.start()
        failure = self._ready.get()
        if failure is not None:
            raise StoreUnavailable(f"the database cannot be opened: {failure}") from failure

    def submit(self, work: Work) -> asyncio.Future[tuple[int, ...]]:
        """A future of the running loop: the rows each step touched, once they are durable."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[int, ...]] = loop.create_future()
        if self._closed or self._broken:
            future.set_exception(StoreUnavailable(self._broken or "the store is closed"))
        else:
            self._waiting.put(_Waiting(work, loop, future))
        return future

    def close(self) -> None:
        """Everything submitted is durable or has failed; the WAL is emptied. Blocks; idempotent."""
        self._closed = True
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            connection = self._connect()
        except (driver.Error, OSError) as failure:
            self._ready.put(failure)
            return
        self._ready.put(None)
        try:
            self._serve(connection)
        finally:
            # Whatever ended the thread, nobody shall wait for it.
            self._broken = self._broken or "the store is closed"
            connection.close()

    def _serve(self, connection: Connection) -> None:
        """Units are committed until the sign to end comes."""
        open_ = True
        while open_:
            group, open_ = self._next_group()
            if group:
                self._commit(connection, group)
                _resolve(group)
                if self._wal_bytes() > _CHECKPOINT_BYTES:
                    self._checkpoint(connection, "PASSIVE")
        self._checkpoint(connection, "TRUNCATE")

    def _next_group(self) -> tuple[list[_Waiting], bool]:
        """All units that wait now (at least one, or the sign to end), and whether to go on."""
        group: list[_Waiting] = []
        item = self._waiting.get()
        while item is not None:
            if not item.future.done():
                group.append(item)
            if len(group) >= _GROUP_UNITS:
                return group, True
            try:
                item = self._waiting.get_nowait()
            except queue.Empty:
                return group, True
        return group, False

    def _commit(self, connection: Connection, group: list[_Waiting]) -> None:
        """Each unit's outcome is set; what succeeded is durable."""
        if self._broken:
            _fail(group, self._broken)
            return
        try:
            connection.execute("BEGIN IMMEDIATE")
            _run_group(connection, group)
            connection.execute("COMMIT")
        except driver.Error as failure:
            self._judge(failure)
            _fail(group, f"the database cannot write: {failure}")
            if connection.in_transaction:
                self._roll_back(connection)

    def _judge(self, failure: Failure) -> None:
        """After an I/O error the kernel may have dropped pages that a later fsync would call safe.

        Nothing written afterwards could be called durable, so the writer stays broken until the
        process starts again and SQLite recovers from what the disk really holds.
        """
        if is_disk_error(failure):
            self._broken = f"the disk failed: {failure}; restart to recover"

    def _roll_back(self, connection: Connection) -> None:
        try:
            connection.execute("ROLLBACK")
        except driver.Error as failure:
            self._broken = f"a failed commit could not be undone: {failure}; restart to recover"

    def _wal_bytes(self) -> int:
        try:
            return self._wal.stat().st_size
        except FileNotFoundError:
            return 0

    def _checkpoint(self, connection: Connection, mode: str) -> None:
        """The WAL is copied into the database, as far as readers let it."""
        if self._broken:
            return
        try:
            connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        except driver.Error as failure:
            self._judge(failure)


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
