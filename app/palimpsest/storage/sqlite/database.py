"""Executes units and readings on SQLite: one writer thread, one inline reader, a few reader threads.

A bounded indexed read costs 7 to 11 us on the calling thread, a hop to another thread and back 60 to 100.
So `read_bounded` runs on the calling thread (see docs/decisions); `read_snapshot` never does.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from sqlalchemy.dialects import sqlite

from palimpsest.errors import StoreUnavailable
from palimpsest.storage.database import (
    Ask,
    Compiler,
    Pace,
    Reading,
    Row,
    Scrub,
    StoreFault,
    Unit,
)
from palimpsest.storage.sqlite.driver import Connection, Failure, Synchronous, driver, readonly, writable
from palimpsest.storage.sqlite.files import FileCondition, Reserve, size_of
from palimpsest.storage.sqlite.writer import Work, Writer

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


@cache
def _compiler() -> Compiler:
    """Statements are the same for every file: they are compiled once per process."""
    return Compiler(sqlite.dialect())


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
        self.compiled = _compiler()
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
        # A timer of its own: `asyncio.timeout` costs three times as much.
        late = asyncio.get_running_loop().call_later(seconds or self._deadline_seconds, _give_up, committed)
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
            ask = next(reading)
            while True:
                ask = reading.send(self._rows(connection, ask))
        except StopIteration as end:
            return cast(T, end.value)

    def _rows(self, connection: Connection, ask: Ask) -> Sequence[Row]:
        compiled = self.compiled[ask.statement]
        try:
            return connection.execute(compiled.sql, compiled.bind(ask.params)).fetchall()
        except driver.Error as failure:
            raise self._unreadable(failure) from failure


def _give_up(committed: asyncio.Future[tuple[int, ...]]) -> None:
    """The writer skips a unit whose caller has given up, unless it is running it already."""
    if not committed.done():
        committed.set_exception(StoreUnavailable("the database did not commit in time"))
