"""Bringing a database to the schema this program knows, and saying whether it is there.

Must not know the tables: the revisions in `migrations/` do. Starting never migrates by itself; the
command that serves an embedded SQLite file calls `migrate` first.

A start finds nearly always that nothing is to be migrated. So what migrates is imported where it is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

import asyncpg
from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from app.errors import StoreUnavailable
from app.storage.recall.word_index import make_word_index
from app.storage.sqlite.driver import Connection as SqliteConnection
from app.storage.sqlite.driver import driver

if TYPE_CHECKING:
    import aiosqlite
    from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")
SchemaState: TypeAlias = Literal["current", "behind", "unknown"]

# Beside the package, in the repository as in an installation.
MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"
# "palimpse" in ASCII: replicas that start together migrate one after the other.
_LOCK = 0x70616C696D707365
_OURS = "messages"


def sqlite_path(url: str) -> Path | None:
    """The file of `sqlite:///path`; None for another database."""
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None


async def migrate(url: str) -> None:
    """The database exists (SQLite) and has the newest schema. StoreUnavailable when it cannot be reached."""
    await with_connection(url, _upgrade)


async def schema_state(url: str) -> SchemaState:
    """Whether the program fits the database: `behind` asks for `migrate`, `unknown` for another program.

    `unknown` is a revision that is not ours, or our tables without one. An empty database is
    `behind`. A SQLite file that is absent is not created.
    """
    path = sqlite_path(url)
    if path is not None and not path.exists():
        return "behind"
    return await with_connection(url, _state)


def schema_of_this_version() -> str:
    """The revision of the newest migration."""
    return max(_revisions())


def _revisions() -> set[str]:
    """Every revision there is. Each file's name begins with its own, and they are numbered in order."""
    return {path.name.partition("_")[0] for path in (MIGRATIONS / "versions").glob("[0-9]*_*.py")}


def _upgrade(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": _LOCK})
        connection.commit()
    if _state(connection) != "current":
        _apply_revisions(connection)
    make_word_index(connection)


def _apply_revisions(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", MIGRATIONS.as_posix().replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    connection.commit()


def _state(connection: Connection) -> SchemaState:
    tables = inspect(connection)
    revision = None
    if tables.has_table("alembic_version"):
        revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if revision is None:
        return "unknown" if tables.has_table(_OURS) else "behind"
    if revision == schema_of_this_version():
        return "current"
    return "behind" if revision in _revisions() else "unknown"


async def with_connection(url: str, act: Callable[[Connection], T]) -> T:
    """What `act` returns, given a connection that nobody else uses."""
    path = sqlite_path(url)
    try:
        async with _engine(url, path).connect() as connection:
            return await connection.run_sync(act)
    except (DBAPIError, OSError, driver.Error, asyncpg.PostgresError, asyncpg.InterfaceError) as failure:
        verb = "reached" if path is None else "opened"
        raise StoreUnavailable(f"the database cannot be {verb}: {_said(failure)}") from failure


def _said(failure: Exception) -> str:
    """The database's own words, in a line; not those of the library around it."""
    words = str(getattr(failure, "orig", None) or failure).strip().splitlines() or [type(failure).__name__]
    return words[0].rpartition("Error'>: ")[2]


def _engine(url: str, path: Path | None) -> AsyncEngine:
    from sqlalchemy.ext.asyncio import create_async_engine

    if path is not None:
        return create_async_engine(
            "sqlite+aiosqlite://", async_creator=partial(_opened, path), poolclass=NullPool
        )
    # The driver reads the address itself, as where it is served: SQLAlchemy knows no `sslmode`.
    return create_async_engine(
        "postgresql+asyncpg://", async_creator=partial(asyncpg.connect, url), poolclass=NullPool
    )


async def _opened(path: Path) -> aiosqlite.Connection:
    """Opened beforehand: a thread that cannot open a file reports to a loop that may be closed by then."""
    import aiosqlite

    connection = await asyncio.to_thread(_connected, path)
    return await aiosqlite.Connection(lambda: connection, iter_chunk_size=64)


def _connected(path: Path) -> SqliteConnection:
    """The file by the same SQLite that serves it; a new one can be read by its owner alone."""
    path.touch(mode=0o600)
    return driver.connect(path, check_same_thread=False)
