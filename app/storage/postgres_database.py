"""Executes units and readings on PostgreSQL, through asyncpg's own pool.

Must not know what statements mean. One transaction a unit; its first step locks the session's row,
so that writers of one session take turns. No transaction is held longer than one call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import TypeVar, cast

import asyncpg
from asyncpg.pool import PoolConnectionProxy
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql.asyncpg import dialect
from sqlalchemy.engine import Dialect

from app.errors import Conflict, StoreError, StoreUnavailable
from app.storage.database import Ask, Compiler, InsertInto, Reading, Row, Statement, Step, Unit, is_due
from app.storage.erase.contract import Scrub
from app.storage.trouble import Trouble

T = TypeVar("T")

_CONNECTIONS = 10
# Nobody waits for a VACUUM of large tables, but it has to end.
_VACUUM_SECONDS = 600.0
# Seconds between two looks whether readers have let go of deleted rows, and how many there are: most readings
# take milliseconds.
_LOOK_SECONDS = 0.01
_LOOKS = 200
# The first transaction that has not begun yet: what is deleted by now was deleted before it.
_NEWEST = "SELECT pg_snapshot_xmax(pg_current_snapshot())::xid::text"
# Whose snapshot is older. VACUUMs keep nobody's rows, and neither do transactions in other databases.
_READ_SINCE_BEFORE = """
SELECT EXISTS (
    SELECT 1 FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
      AND query NOT ILIKE 'VACUUM %' AND age(backend_xmin) > age($1::text::xid)
)"""
# Two sessions that share texts may still meet in a ring; the loser's unit is run again, it is idempotent.
_ATTEMPTS = 3
_AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
# The server or the way to it, not the statement.
_UNAVAILABLE = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
    asyncpg.PostgresSystemError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InternalServerError,
    # A connection that breaks while a transaction is being rolled back.
    asyncpg.InternalClientError,
    *_AGAIN,
    OSError,
)


async def open_postgres(url: str, deadline_seconds: float) -> PostgresDatabase:
    """A pool on the server; StoreUnavailable when it cannot be reached."""
    try:
        pool = await asyncpg.create_pool(
            url,
            min_size=1,
            max_size=_CONNECTIONS,
            timeout=deadline_seconds,
            # An acknowledged commit is durable, whatever the server's default (P2).
            server_settings={"synchronous_commit": "on", "application_name": "palimpsest"},
        )
    except (*_UNAVAILABLE, asyncpg.PostgresError) as failure:
        raise StoreUnavailable(f"the database cannot be reached: {_said(failure)}") from failure
    return PostgresDatabase(pool, deadline_seconds)


@cache
def _compiler() -> Compiler:
    """Statements are alike for every server: they are compiled once a process."""
    return Compiler(cast(Callable[[], Dialect], dialect)(), cast(InsertInto, postgresql.insert))


class PostgresDatabase:
    """See `Database`."""

    def __init__(self, pool: asyncpg.Pool, deadline_seconds: float) -> None:
        self._pool = pool
        self._deadline_seconds = deadline_seconds
        self._writing: set[asyncio.Task[Sequence[int]]] = set()
        self._compiled = _compiler()

    async def write(
        self, unit: Unit, *, alone: bool = False, urgent: bool = False, seconds: float | None = None
    ) -> Sequence[int]:
        """See `Database`; another process commits: being `alone` or `urgent` gains nothing."""
        del alone, urgent
        writing = asyncio.get_running_loop().create_task(self._written(unit, seconds))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        return await asyncio.shield(writing)

    def trouble(self) -> Trouble | None:
        """See `Database`: its files are its server's matter."""
        return None

    async def keep_reserve(self, size: int) -> bool:
        """See `Database`."""
        del size
        return True

    async def scrub(self, tables: Sequence[str]) -> Scrub:
        """See `Database`. Dead rows are given up; what pages, the server's log and copies hold is its own.

        "pending" while a transaction is open that began before: VACUUM keeps what it may still read. Of other
        roles' transactions, and of replicas, only a role that may read all statistics hears.
        """
        names = ", ".join(f'"{name}"' for name in tables)
        async with self._bounded(_VACUUM_SECONDS), self._pool.acquire() as connection:
            newest = await connection.fetchval(_NEWEST)
            is_free = await _is_let_go(connection, newest)
            await connection.execute(f"VACUUM {names}")
        return "vacuumed" if is_free else "pending"

    async def _written(self, unit: Unit, seconds: float | None) -> Sequence[int]:
        async with self._bounded(seconds):
            for _ in range(_ATTEMPTS - 1):
                try:
                    return await self._commit(unit)
                except _AGAIN:
                    continue
            return await self._commit(unit)

    def compile(self, statements: Sequence[Statement]) -> None:
        """See `Database`."""
        for statement in statements:
            self._compiled[statement]

    async def near(self, reading: Reading[T]) -> T:
        """See `Database`."""
        async with self._bounded(), self._pool.acquire() as connection:
            return await self._drive(connection, reading)

    async def far(self, reading: Reading[T], seconds: float | None = None) -> T:
        """See `Database`."""
        async with (
            self._bounded(seconds),
            self._pool.acquire() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            return await self._drive(connection, reading)

    async def close(self) -> None:
        """See `Database`."""
        if self._writing:
            await asyncio.wait(self._writing)
        try:
            async with asyncio.timeout(self._deadline_seconds):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    async def _commit(self, unit: Unit) -> Sequence[int]:
        async with self._pool.acquire() as connection, connection.transaction():
            touched: list[int] = []
            last = 0
            for step in unit:
                due = is_due(step.after, last)
                last = await self._run(connection, step) if due else last
                touched.append(last if due else 0)
                if step.needed and not touched[-1]:
                    break
            return touched + [0] * (len(unit) - len(touched))

    async def _run(self, connection: PoolConnectionProxy, step: Step) -> int:
        compiled = self._compiled[step.statement]
        rows = [compiled.bind(row) for row in step.rows]
        if len(rows) == 1:
            # The command tag ends with the number of rows, "UPDATE 1", where there are any: "LOCK TABLE".
            last = (await connection.execute(compiled.sql, *rows[0])).rsplit(" ", 1)[-1]
            return int(last) if last.isdigit() else 0
        await connection.executemany(compiled.sql, rows)
        return len(rows)

    async def _drive(self, connection: PoolConnectionProxy, reading: Reading[T]) -> T:
        try:
            ask = next(reading)
            while True:
                ask = reading.send(await self._rows(connection, ask))
        except StopIteration as end:
            return cast(T, end.value)

    async def _rows(self, connection: PoolConnectionProxy, ask: Ask) -> Sequence[Row]:
        compiled = self._compiled[ask.statement]
        rows = await connection.fetch(compiled.sql, *compiled.bind(ask.params))
        return [tuple(row.values()) for row in rows]

    @asynccontextmanager
    async def _bounded(self, seconds: float | None = None) -> AsyncIterator[None]:
        """The deadline, and asyncpg's errors in our words. What is a bug of ours passes through."""
        try:
            async with asyncio.timeout(seconds or self._deadline_seconds):
                yield
        except TimeoutError as late:
            raise StoreUnavailable("the database did not answer in time") from late
        except asyncpg.UniqueViolationError as failure:
            raise Conflict(f"another session took the name: {_said(failure)}") from failure
        except _UNAVAILABLE as failure:
            raise StoreUnavailable(f"the database is not available: {_said(failure)}") from failure
        except asyncpg.PostgresError as failure:
            raise StoreError(f"the database refused a row: {_said(failure)}") from failure


async def _is_let_go(connection: PoolConnectionProxy, newest: str) -> bool:
    """Nobody reads any more what was there before `newest`; False when somebody does all the time."""
    for _ in range(_LOOKS):
        if not await connection.fetchval(_READ_SINCE_BEFORE, newest):
            return True
        await asyncio.sleep(_LOOK_SECONDS)
    return False


def _said(failure: Exception) -> str:
    """The first line: PostgreSQL's details quote rows, and rows are somebody's words."""
    return str(failure).split("\n", 1)[0]
