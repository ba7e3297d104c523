"""Executes units and readings on PostgreSQL, through asyncpg's own pool.

One transaction per unit. Its first step locks the session's row, so writers of one session take turns. No
transaction is held longer than one call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import asyncpg
from asyncpg.pool import PoolConnectionProxy
from sqlalchemy.dialects.postgresql.asyncpg import dialect
from sqlalchemy.engine import Dialect

from palimpsest.errors import Conflict, StoreError, StoreUnavailable
from palimpsest.storage.database import (
    Pace,
    Reading,
    Scrub,
    StoreFault,
    Unit,
    compiler_of,
    is_due,
)
from palimpsest.storage.tables import METADATA

T = TypeVar("T")

_CONNECTIONS = 10
# No request waits for a VACUUM of large tables, but it must end.
_VACUUM_SECONDS = 600.0
# Seconds between checks for snapshots that still see deleted rows, and how many: most readings take
# milliseconds.
_LOOK_SECONDS = 0.01
_LOOKS = 200
# The first transaction id not assigned yet: rows deleted by now were deleted before it.
_NEWEST = "SELECT pg_snapshot_xmax(pg_current_snapshot())::xid::text"
# Whether a client has an older snapshot. VACUUMs and transactions in other databases keep no rows alive.
_READ_SINCE_BEFORE = """
SELECT EXISTS (
    SELECT 1 FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
      AND query NOT ILIKE 'VACUUM %' AND age(backend_xmin) > age($1::text::xid)
)"""
# Two sessions that share texts may still deadlock; the loser's unit is idempotent and is run again.
_ATTEMPTS = 3
_AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
# Faults of the server or the connection, not of the statement.
_UNAVAILABLE = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
    asyncpg.PostgresSystemError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InternalServerError,
    # It takes no connections, is gone, or does not let this user in any more.
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InvalidAuthorizationSpecificationError,
    # A connection that breaks while a transaction is being rolled back.
    asyncpg.InternalClientError,
    *_AGAIN,
    OSError,
)


DIALECT = cast(Callable[[], Dialect], dialect)


class _Connection(asyncpg.Connection):
    """A connection that knows whether something has failed on it."""

    has_failed = False

    def note(self, *, failed: bool) -> None:
        """Set `has_failed`: the pool's proxy passes calls on, and keeps attributes for itself."""
        self.has_failed = failed


async def _reset(connection: Any) -> None:
    """Run asyncpg's reset only behind a failure: it is a round trip, and we change nothing of a session.

    A statement whose values could not be encoded stays open on the server until then.
    """
    if connection.has_failed:
        await connection.execute(connection.get_reset_query())
        connection.note(failed=False)


async def open_postgres(url: str, deadline_seconds: float) -> PostgresDatabase:
    """Open a connection pool; StoreUnavailable when the server cannot be reached."""
    try:
        pool = await asyncpg.create_pool(
            url,
            min_size=1,
            max_size=_CONNECTIONS,
            timeout=deadline_seconds,
            connection_class=_Connection,
            reset=_reset,
            # An acknowledged commit must be durable, whatever the server's default (P2).
            server_settings={"synchronous_commit": "on", "application_name": "palimpsest"},
        )
    except (*_UNAVAILABLE, asyncpg.PostgresError) as failure:
        raise StoreUnavailable(f"the database cannot be reached: {_said(failure)}") from failure
    return PostgresDatabase(pool, deadline_seconds)


class PostgresDatabase:
    """See `SqlDatabase`."""

    has_fts5 = False

    def __init__(self, pool: asyncpg.Pool, deadline_seconds: float) -> None:
        self._pool = pool
        self._deadline_seconds = deadline_seconds
        self._writing: set[asyncio.Task[Sequence[int]]] = set()
        self.compiled = compiler_of(DIALECT)

    async def write(self, unit: Unit, *, pace: Pace = "usual", seconds: float | None = None) -> Sequence[int]:
        """See `SqlDatabase`. `pace` has no effect: the server commits."""
        del pace

        async def written() -> Sequence[int]:
            async with self._bounded(seconds):
                for _ in range(_ATTEMPTS - 1):
                    try:
                        return await self._commit(unit)
                    except _AGAIN:
                        continue
                return await self._commit(unit)

        writing = asyncio.get_running_loop().create_task(written())
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        return await asyncio.shield(writing)

    def trouble(self) -> StoreFault | None:
        """See `SqlDatabase`. Always None: the files are the server's."""
        return None

    async def size_bytes(self) -> int:
        """See `SqlDatabase`. The log belongs to all databases of the server and is not counted."""
        async with self._bounded(), self._acquired() as connection:
            return int(await connection.fetchval("SELECT pg_database_size(current_database())"))

    async def keep_reserve(self, size: int) -> bool:
        """See `SqlDatabase`."""
        del size
        return True

    async def scrub(self) -> Scrub:
        """See `SqlDatabase`. VACUUM removes dead rows; pages, the server's WAL and replicas are beyond us.

        "pending" while an older transaction is open: VACUUM keeps rows that it may still read. Transactions
        of other roles, and of replicas, are visible only to a role that may read all statistics.
        """
        names = ", ".join(f'"{name}"' for name in METADATA.tables)
        async with self._bounded(_VACUUM_SECONDS), self._acquired() as connection:
            newest = await connection.fetchval(_NEWEST)
            for _ in range(_LOOKS):
                if is_free := not await connection.fetchval(_READ_SINCE_BEFORE, newest):
                    break
                await asyncio.sleep(_LOOK_SECONDS)
            # Giving pages back to the disk takes a lock that every turn would wait for, and VACUUM waits 5 s
            # a table for it.
            await connection.execute(f"VACUUM (TRUNCATE false) {names}")
        return "vacuumed" if is_free else "pending"

    async def read_bounded(self, reading: Reading[T]) -> T:
        """See `SqlDatabase`."""
        async with self._bounded(), self._acquired() as connection:
            return await self._drive(connection, reading)

    async def read_snapshot(self, reading: Reading[T], seconds: float | None = None) -> T:
        """See `SqlDatabase`."""
        async with (
            self._bounded(seconds),
            self._acquired() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            return await self._drive(connection, reading)

    async def close(self) -> None:
        """See `SqlDatabase`."""
        if self._writing:
            await asyncio.wait(self._writing)
        try:
            async with asyncio.timeout(self._deadline_seconds):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    async def _commit(self, unit: Unit) -> Sequence[int]:
        """Run the steps in one transaction; the rows touched by each."""
        touched: list[int] = []
        last = 0
        async with self._acquired() as connection, connection.transaction():
            for step in unit:
                due = is_due(step.after, last)
                if due:
                    compiled = self.compiled[step.statement]
                    rows = [compiled.bind(row) for row in step.rows]
                    if len(rows) == 1:
                        # The tag ends with the number of rows ("UPDATE 1"), or has none ("LOCK TABLE").
                        tag = (await connection.execute(compiled.sql, *rows[0])).rsplit(" ", 1)[-1]
                        last = int(tag) if tag.isdigit() else 0
                    else:
                        await connection.executemany(compiled.sql, rows)
                        last = len(rows)
                touched.append(last if due else 0)
                if step.needed and not touched[-1]:
                    break
        return touched + [0] * (len(unit) - len(touched))

    @asynccontextmanager
    async def _acquired(self) -> AsyncIterator[Any]:
        """A connection of the pool, which counts as failed unless the block ends well."""
        connection: Any
        async with self._pool.acquire() as connection:
            connection.note(failed=True)
            yield connection
            connection.note(failed=False)

    async def _drive(self, connection: PoolConnectionProxy, reading: Reading[T]) -> T:
        try:
            statement, params = next(reading)
            while True:
                compiled = self.compiled[statement]
                rows = await connection.fetch(compiled.sql, *compiled.bind(params))
                statement, params = reading.send([tuple(row.values()) for row in rows])
        except StopIteration as end:
            return cast(T, end.value)

    @asynccontextmanager
    async def _bounded(self, seconds: float | None = None) -> AsyncIterator[None]:
        """Apply the deadline and translate asyncpg's errors. Bugs of ours pass through."""
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


def _said(failure: Exception) -> str:
    """The first line only: PostgreSQL's details quote rows, which contain conversation text."""
    return str(failure).split("\n", 1)[0]
