"""Bringing a database to the schema this program knows, and saying whether it is there.

Must not know the tables: the revisions in `migrations/` do. Starting never migrates by itself; the
command that serves an embedded SQLite file calls `migrate` first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from app.errors import StoreUnavailable
from app.storage.sqlite.driver import sqlite_module

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


def _upgrade(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": _LOCK})
        connection.commit()
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    connection.commit()


def _state(connection: Connection) -> SchemaState:
    scripts = ScriptDirectory.from_config(_config())
    revision = MigrationContext.configure(connection).get_current_revision()
    if revision is None:
        return "unknown" if inspect(connection).has_table(_OURS) else "behind"
    if revision == scripts.get_current_head():
        return "current"
    return "behind" if revision in {script.revision for script in scripts.walk_revisions()} else "unknown"


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", MIGRATIONS.as_posix().replace("%", "%%"))
    return config


async def with_connection(url: str, act: Callable[[Connection], T]) -> T:
    """What `act` returns, given a connection that nobody else uses."""
    try:
        if sqlite_path(url) is not None:
            return await asyncio.to_thread(_on_sqlite, url, act)
        engine = create_async_engine(asyncpg_url(url), poolclass=NullPool)
        async with engine.connect() as connection:
            return await connection.run_sync(act)
    except (DBAPIError, OSError) as failure:
        raise StoreUnavailable(f"the database cannot be reached: {failure}") from failure


def _on_sqlite(url: str, act: Callable[[Connection], T]) -> T:
    engine = create_engine(url, module=sqlite_module(), poolclass=NullPool)
    with engine.connect() as connection:
        return act(connection)


def asyncpg_url(url: str) -> str:
    """`postgresql://...` as SQLAlchemy names the driver."""
    return "postgresql+asyncpg://" + url.split("://", 1)[1]
