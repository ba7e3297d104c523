"""Opens the database at an address, for a store of all repositories or for the one that a command needs.

Never migrates it: a schema that is not current is refused.
"""

from __future__ import annotations

import sqlalchemy as sa

from palimpsest.core.urls import without_password
from palimpsest.errors import SchemaMismatch
from palimpsest.storage.address import is_there, sqlite_path
from palimpsest.storage.database import SqlDatabase
from palimpsest.storage.migrate import MISMATCHES, schema_state, with_connection
from palimpsest.storage.sqlite.database import SqliteDatabase
from palimpsest.storage.sqlite.driver import Synchronous
from palimpsest.storage.tables import PEPPER


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
