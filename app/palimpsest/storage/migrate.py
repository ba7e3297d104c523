"""Migrates databases, tells whether a schema is this program's, opens one at an address, copies one.


Opening never migrates: a schema that is not current is refused, and the command that serves a SQLite file
calls `migrate` first. Most starts have nothing to migrate, so Alembic is imported only where it is used.

A whole database is copied into an empty one, SQLite or PostgreSQL in either direction, table by table in one
transaction of the target: interrupted, it leaves an empty database. Before the commit the rows of each table
are read again, and their number and digest compared with those of the source. Not copied are the rows of
running servers, and the word index, which servers make from the messages again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection, create_engine, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from palimpsest.core.urls import without_password
from palimpsest.errors import SchemaMismatch, SettingsError, StoreUnavailable
from palimpsest.storage.address import is_there, postgres_driver, sqlite_path
from palimpsest.storage.database import SqlDatabase
from palimpsest.storage.journal import OPEN_FAILED
from palimpsest.storage.search_index import make_word_index
from palimpsest.storage.sqlite_database import SqliteDatabase
from palimpsest.storage.sqlite_files import Connection as SqliteConnection
from palimpsest.storage.sqlite_files import ServerLock, Synchronous, driver
from palimpsest.storage.tables import (
    HEARTBEAT,
    LEASES,
    METADATA,
    PEPPER,
    RECALL_MARKS,
    RECALL_WORDS,
    RESERVED,
    SERVERS,
)

if TYPE_CHECKING:
    import aiosqlite
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

T = TypeVar("T")
SchemaState: TypeAlias = Literal["current", "behind", "unknown"]

_PACKAGE = Path(__file__).resolve().parents[1]
# Inside the installed package, or at the top level of the repository.
MIGRATIONS = next(p for p in (_PACKAGE / "migrations", _PACKAGE.parents[1] / "migrations") if p.is_dir())
# What is said of a database that no migration makes usable.
MISMATCHES: Mapping[SchemaState, str] = {
    "unknown": "it belongs to a newer version or to another program. Use that version, or another database.",
}
# "palimpse" in ASCII: replicas that start together migrate one after the other.
_LOCK = 0x70616C696D707365
_VERSION = "alembic_version"
# Tables that an extension has made, such as spatial_ref_sys of PostGIS.
_OF_EXTENSIONS = """
SELECT relname FROM pg_class JOIN pg_depend ON objid = pg_class.oid
WHERE classid = 'pg_class'::regclass AND refclassid = 'pg_extension'::regclass
  AND deptype = 'e' AND relnamespace = current_schema()::regnamespace"""


async def migrate(url: str) -> None:
    """Create the database (SQLite) and migrate it to the newest schema.

    StoreUnavailable if it cannot be reached, SchemaMismatch for one that is not ours to migrate.
    """
    await with_connection(url, _upgrade)


async def schema_state(url: str) -> SchemaState:
    """Whether the database has this program's schema. `behind` needs `migrate`.

    `unknown` is a revision that is not ours, or tables without a revision: another program wrote it.
    An empty database is `behind`. A missing SQLite file is
    not created.
    """
    path = sqlite_path(url)
    if path is not None and not is_there(path):
        return "behind"
    return await with_connection(url, _state)


def schema_of_this_version() -> str:
    """The revision of the newest migration."""
    return max(_revisions())


def _revisions() -> set[str]:
    """Every revision. Each file's name begins with its revision; they are numbered in order."""
    return {path.name.partition("_")[0] for path in (MIGRATIONS / "versions").glob("[0-9]*_*.py")}


def _upgrade(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": _LOCK})
        connection.commit()
    state = _state(connection)
    if state in MISMATCHES:
        raise SchemaMismatch(f"database.url: {MISMATCHES[state]}")
    if state == "behind":
        _apply_revisions(connection)
    make_word_index(connection)


def _apply_revisions(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", MIGRATIONS.as_posix().replace("%", "%%"))
    config.attributes["connection"] = connection
    if connection.dialect.name == "sqlite":
        # The driver begins none before a CREATE: what is interrupted would leave tables without a revision.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    command.upgrade(config, "head")
    connection.commit()


def _state(connection: Connection) -> SchemaState:
    # Those of the schema where ours are made: another program may have one of its own.
    tables, revision = {*inspect(connection).get_table_names(connection.dialect.default_schema_name)}, None
    if connection.dialect.name == "postgresql":
        tables -= {*connection.scalars(text(_OF_EXTENSIONS))}
    if _VERSION in tables:
        revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if revision is None:
        return "unknown" if tables - {_VERSION} else "behind"
    if revision == schema_of_this_version():
        return "current"
    return "behind" if revision in _revisions() else "unknown"


async def with_connection(url: str, act: Callable[[Connection], T]) -> T:
    """The result of `act`, called with a connection of its own. Raises what `connected` raises.

    On a file without SQLAlchemy's asyncio, which brings its object mapper: a tenth of a short command's time.
    """
    path = sqlite_path(url)
    if path is not None:

        def with_file() -> T:
            creator = partial(_connected, path)
            engine = create_engine("sqlite://", creator=creator, module=driver, poolclass=NullPool)
            with _failures_told(path, ()), engine.connect() as connection:
                return act(connection)

        return await asyncio.to_thread(with_file)
    async with connected(url) as connection:
        return await connection.run_sync(act)


@asynccontextmanager
async def connected(url: str, *, snapshot: bool = False) -> AsyncIterator[AsyncConnection]:
    """A connection of its own; `snapshot`: all its reads see one state.

    StoreUnavailable for what fails, SettingsError for another kind of database.
    """
    path = sqlite_path(url)
    if path is None and not url.startswith("postgresql://"):
        raise SettingsError(
            f"database: expected sqlite:///path or postgresql://..., got {url.split(':')[0]}:"
        )
    asyncpg = None if path else postgres_driver()
    theirs = (asyncpg.PostgresError, asyncpg.InterfaceError) if asyncpg else ()
    with _failures_told(path, theirs):
        async with _engine(url, path).connect() as connection:
            if snapshot and path is None:
                await connection.execution_options(isolation_level="REPEATABLE READ")
            elif snapshot:
                await connection.exec_driver_sql("BEGIN")
            yield connection


@contextmanager
def _failures_told(path: Path | None, theirs: tuple[Any, ...]) -> Iterator[None]:
    try:
        yield
    except (DBAPIError, OSError, driver.Error, *theirs) as failure:
        # The first line of the database's message, without SQLAlchemy's prefix.
        lines = str(getattr(failure, "orig", None) or failure).strip().splitlines()
        said = (lines or [type(failure).__name__])[0].rpartition("Error'>: ")[2]
        verb = "reached" if path is None else "opened"
        raise StoreUnavailable(f"the database cannot be {verb}: {said}") from failure


def _engine(url: str, path: Path | None) -> AsyncEngine:
    from sqlalchemy.ext.asyncio import create_async_engine

    if path is not None:

        async def opened() -> aiosqlite.Connection:
            # Beforehand: aiosqlite's thread would report a failure to a loop that may be closed by then.
            import aiosqlite

            connection = await asyncio.to_thread(_connected, path)
            return await aiosqlite.Connection(lambda: connection, iter_chunk_size=64)

        return create_async_engine("sqlite+aiosqlite://", async_creator=opened, poolclass=NullPool)
    import asyncpg

    # The driver parses the URL itself, as when serving: SQLAlchemy does not know `sslmode`.
    return create_async_engine(
        "postgresql+asyncpg://", async_creator=partial(asyncpg.connect, url), poolclass=NullPool
    )


def _connected(path: Path) -> SqliteConnection:
    """Open the file with the SQLite library that serves it; a new file is readable by its owner only."""
    path.touch(mode=0o600)
    connection = driver.connect(path, check_same_thread=False)
    # What a migration drops is zeroed.
    connection.execute("PRAGMA secure_delete=ON")
    return connection


async def open_database(url: str, synchronous: Synchronous, deadline_seconds: float) -> SqlDatabase:
    """The open database, which the caller closes; `palimpsest.storage.store` says what raises what."""
    path = sqlite_path(url)
    if path is not None and not is_there(path):
        raise SchemaMismatch(
            f"database.url: there is no database at {path.absolute()}. Is that the proxy's? Its first start"
            " makes it, or `palimpsest db migrate`."
        )
    state = await schema_state(url)
    if state == "behind":
        raise SchemaMismatch(f"{without_password(url)} is not migrated: run `palimpsest db migrate`.")
    if state in MISMATCHES:
        raise SchemaMismatch(f"{without_password(url)} cannot be used: {MISMATCHES[state]}")
    if path is not None:
        return SqliteDatabase(path, synchronous, deadline_seconds)
    from palimpsest.storage.postgres_database import open_postgres

    return await open_postgres(url, deadline_seconds)


async def bound_pepper(url: str) -> bytes | None:
    """The fingerprint of the pepper that the database at `url` belongs to; None before its first start.

    None, too, where the schema is not current. Only reads, so it may run beside a server.
    """
    if await schema_state(url) != "current":
        return None

    def read(connection: sa.Connection) -> bytes | None:
        return connection.execute(sa.select(PEPPER.c.fingerprint)).scalar()

    return await with_connection(url, read)


_LEFT_OUT = (LEASES, SERVERS, HEARTBEAT, RECALL_MARKS, RECALL_WORDS, RESERVED)
COPIED: Sequence[sa.Table] = [table for table in METADATA.tables.values() if table not in _LEFT_OUT]
# Rows in memory at a time: a body may have megabytes.
_ROWS = 100


async def copy_store(source_url: str, target_url: str, beat_seconds: float) -> Mapping[str, int]:
    """Copy everything to the target, which has no rows; returns the rows by table.

    A server that uses PostgreSQL is noticed within `beat_seconds`. SettingsError, and nothing copied, when a
    server uses one of the databases, when the target holds rows, or when what was written is not what was
    read. SchemaMismatch when a schema is not this version's.
    """
    _check_files(source_url, target_url)
    match await schema_state(source_url):
        case "behind":
            raise SchemaMismatch("copy: the source is not migrated; run `palimpsest db migrate` first.")
        case "unknown":
            raise SchemaMismatch(f"copy: the source cannot be used: {MISMATCHES['unknown']}")
    # Before it is locked: no file is left beside one that is no database.
    if (state := await schema_state(target_url)) == "unknown":
        raise SchemaMismatch(f"copy: the target cannot be used: {MISMATCHES['unknown']}")
    async with AsyncExitStack() as held:
        for url in (source_url, target_url):
            _reserved(url, held)
        if state == "behind":
            await migrate(target_url)
        source = await held.enter_async_context(connected(source_url, snapshot=True))
        target = await held.enter_async_context(connected(target_url))
        for connection in (source, target):
            # Those that died beat no more.
            if before := await _beats(connection):
                await asyncio.sleep(beat_seconds)
                now = await _beats(connection)
                if any(now.get(server, beats) != beats for server, beats in before.items()):
                    raise SettingsError("copy: a server uses the database; stop it first.")
        rows = {table.name: await _copied(source, target, table) for table in COPIED}
        # As at the start of a server: none is working on them.
        await target.execute(OPEN_FAILED)
        await target.commit()
    return rows


class _Seen:
    """The rows that were read of a table."""

    def __init__(self) -> None:
        self.rows = 0
        self.digest = hashlib.sha256()


async def _copied(source: AsyncConnection, target: AsyncConnection, table: sa.Table) -> int:
    """Copy the table; returns the number of its rows. SettingsError if they are not those of the source."""
    if await target.scalar(sa.select(sa.func.count()).select_from(table)):
        raise SettingsError(f"copy: the target has rows already ({table.name}); name an empty database.")
    names = table.columns.keys()
    read, written = _Seen(), _Seen()
    async for rows in _batches(source, table, read):
        await target.execute(sa.insert(table), [dict(zip(names, row, strict=True)) for row in rows])
    async for _ in _batches(target, table, written):
        pass
    if (read.rows, read.digest.digest()) != (written.rows, written.digest.digest()):
        raise SettingsError(f"copy: the rows of {table.name} are not those of the source.")
    return read.rows


async def _batches(
    connection: AsyncConnection, table: sa.Table, seen: _Seen
) -> AsyncIterator[Sequence[sa.Row[Any]]]:
    """The rows in the order of their keys, some at a time; `seen` counts and digests them."""
    is_postgres = connection.dialect.name == "postgresql"
    # Compared byte by byte, as SQLite does: PostgreSQL's own order may be a language's.
    key = [
        sa.collate(column, "C") if is_postgres and isinstance(column.type, sa.Text) else column
        for column in table.primary_key
    ]
    found = await connection.stream(sa.select(table).order_by(*key).execution_options(yield_per=_ROWS))
    async for rows in found.partitions(_ROWS):
        seen.rows += len(rows)
        for row in rows:
            seen.digest.update(repr(tuple(row)).encode("utf-8", "surrogatepass"))
        yield rows


def _check_files(source_url: str, target_url: str) -> None:
    """SettingsError for a SQLite file that is none, and where both are the same database."""
    source, target = sqlite_path(source_url), sqlite_path(target_url)
    for path in filter(None, (source, target)):
        try:
            if path.exists() and not path.is_file():
                raise SettingsError(f"copy: {path} is not a regular file.")
        except OSError as failure:
            raise _unusable(path, failure) from failure
    is_same = source and target and os.path.realpath(source) == os.path.realpath(target)
    if source_url == target_url or is_same:
        raise SettingsError("copy: source and target are the same database.")


def _unusable(path: Path, failure: OSError) -> SettingsError:
    return SettingsError(f"copy: {path} cannot be used ({failure.strerror}).")


def _reserved(url: str, held: AsyncExitStack) -> None:
    """No server can start on a SQLite file meanwhile."""
    path = sqlite_path(url)
    if path is not None:
        lock = ServerLock(path)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock.take()
        except OSError as failure:
            raise _unusable(path, failure) from failure
        held.callback(lock.release)


async def _beats(connection: AsyncConnection) -> dict[str, int]:
    """The beats of the servers, as they are now: in a connection's snapshot they would stand still."""
    async with connection.engine.connect() as apart:
        rows = await apart.execute(sa.select(SERVERS.c.id, SERVERS.c.beats))
        return {row[0]: row[1] for row in rows}
