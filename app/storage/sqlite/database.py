"""Executes units and readings on SQLite: one writer thread, one inline reader, a few reader threads.

Must not know what statements mean. A bounded indexed read costs 7 to 11 us on the calling thread,
a hop to another thread and back 60 to 100: `near` therefore runs where it is called (see
docs/decisions). `far` never does.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar, cast

from sqlalchemy.dialects import sqlite

from app.errors import StoreUnavailable
from app.storage.database import Ask, Compiler, InsertInto, Params, Reading, Row, Statement, Unit
from app.storage.erase.contract import Scrub
from app.storage.sqlite.commits import Work
from app.storage.sqlite.condition import FileCondition, Reserve
from app.storage.sqlite.driver import Connection, Failure, Synchronous, driver, readonly, writable
from app.storage.sqlite.writer import Writer
from app.storage.trouble import Trouble

T = TypeVar("T")

# Seconds between two looks whether readers have let go of the log, and how many there are: a reading takes
# milliseconds, a listing of everything a second.
_LOOK_SECONDS = 0.05
_LOOKS = 40
# Two, so that one long listing does not hold up a transcript; the interpreter lock allows no more.
_READERS = 2
# Rows of one step that are made where it is written from; 3 us each.
_INLINE_ROWS = 256


# Everybody who writes waits while a file is written anew: 0.4 s for each 100 MB (measured).
REWRITE_BYTES = 500_000_000


@cache
def _compiler() -> Compiler:
    """Statements are alike for every file: they are compiled once a process."""
    return Compiler(sqlite.dialect(), cast(InsertInto, sqlite.insert))


class SqliteDatabase:
    """See `Database`. Made in the thread of the event loop, which its inline reader serves."""

    def __init__(
        self,
        path: Path,
        synchronous: Synchronous,
        deadline_seconds: float,
        rewrite_bytes: int = REWRITE_BYTES,
    ) -> None:
        self._path = path
        self._rewrite_bytes = rewrite_bytes
        self._deadline_seconds = deadline_seconds
        self._compiled = _compiler()
        self._condition = FileCondition(path)
        self._reserve = Reserve(path)
        self._writer = Writer(
            partial(writable, path, synchronous),
            path.with_name(path.name + "-wal"),
            deadline_seconds,
            self._condition,
            self._reserve,
        )
        self._writer.start()
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

    async def write(
        self, unit: Unit, *, alone: bool = False, urgent: bool = False, seconds: float | None = None
    ) -> Sequence[int]:
        """See `Database`."""
        work: Work = []
        for step in unit:
            compiled = self._compiled[step.statement]
            rows = _Rows(compiled.bind, step.rows)
            is_large = len(rows) > _INLINE_ROWS
            work.append((compiled.sql, rows if is_large else list(rows), step.after, step.needed))
        committed = self._writer.submit(work, alone=alone, urgent=urgent)
        if committed.done():
            return committed.result()
        # A timer of its own: `asyncio.timeout` costs three times as much.
        late = asyncio.get_running_loop().call_later(seconds or self._deadline_seconds, _give_up, committed)
        try:
            return await asyncio.shield(committed)
        finally:
            late.cancel()

    def trouble(self) -> Trouble | None:
        """See `Database`."""
        reason = self._condition.looked_at()
        return Trouble(reason) if reason else None

    async def keep_reserve(self, size: int) -> bool:
        """See `Database`."""
        self._keeps_reserve = True
        return await asyncio.get_running_loop().run_in_executor(None, self._reserve.keep, size)

    async def scrub(self, tables: Sequence[str]) -> Scrub:
        """See `Database`. A file above the limit for it is not written anew."""
        del tables
        rewrites = self._path.stat().st_size <= self._rewrite_bytes
        done = await self._writer.scrub(rewrites=rewrites) or await self.empty_log()
        if not done:
            return "pending"
        return "scrubbed" if rewrites else "overwritten"

    async def empty_log(self) -> bool:
        """Nothing is left in the WAL; False when readers held it back all the time."""
        for _ in range(_LOOKS):
            if await self._writer.scrub(rewrites=False):
                return True
            await asyncio.sleep(_LOOK_SECONDS)
        return False

    def compile(self, statements: Sequence[Statement]) -> None:
        """See `Database`."""
        for statement in statements:
            self._compiled[statement]

    async def near(self, reading: Reading[T]) -> T:
        """See `Database`."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        return self._drive(self._inline, reading)

    async def far(self, reading: Reading[T], seconds: float | None = None) -> T:
        """See `Database`."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds or self._deadline_seconds):
                return await loop.run_in_executor(self._threads, self._snapshot, reading)
        except TimeoutError as late:
            raise StoreUnavailable("the database did not answer in time") from late

    async def close(self) -> None:
        """See `Database`."""
        if self._closed:
            return
        self._closed = True
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._threads.shutdown)
        self._inline.close()
        for _ in range(_READERS):
            self._idle.get().close()
        # Last, so that no reader holds the WAL back from being emptied.
        await loop.run_in_executor(None, self._writer.close)
        self._condition.closed()
        if self._keeps_reserve:
            # Nobody erases anything while nothing runs.
            self._reserve.give_up()

    def _snapshot(self, reading: Reading[T]) -> T:
        """All rows of the reading come from one moment."""
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
        compiled = self._compiled[ask.statement]
        try:
            return connection.execute(compiled.sql, compiled.bind(ask.params)).fetchall()
        except driver.Error as failure:
            raise self._unreadable(failure) from failure


class _Rows(Sequence[Sequence[object]]):
    """Rows in the driver's form, each made when it is wanted: of many the writer's thread makes them."""

    def __init__(self, bind: Callable[[Params], Sequence[object]], rows: Sequence[Params]) -> None:
        self._bind = bind
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Sequence[object]]:
        return map(self._bind, self._rows)

    def __getitem__(self, place: Any) -> Any:
        """The row at a place; slices are not asked for."""
        return self._bind(self._rows[place])


def _give_up(committed: asyncio.Future[tuple[int, ...]]) -> None:
    """The writer leaves out what nobody waits for, unless it is at it already."""
    if not committed.done():
        committed.set_exception(StoreUnavailable("the database did not commit in time"))
