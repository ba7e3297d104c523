"""Opens the database at an address, for a store of all repositories or for the one that a command needs.

Never migrates it: a schema that is not current is refused.
"""

from __future__ import annotations

import sqlalchemy as sa

from palimpsest.errors import SchemaMismatch
from palimpsest.storage.address import sqlite_path
from palimpsest.storage.database import SqlDatabase
from palimpsest.storage.migrate import MISMATCHES, schema_state, with_connection
from palimpsest.storage.sqlite.database import REWRITE_BYTES, SqliteDatabase
from palimpsest.storage.sqlite.driver import Synchronous
from palimpsest.storage.tables import PEPPER


async def open_database(
    url: str, synchronous: Synchronous, deadline_seconds: float, rewrite_bytes: int = REWRITE_BYTES
) -> SqlDatabase:
    """The open database, which the caller closes; `palimpsest.storage.store` says what raises what."""
    state = await schema_state(url)
    if state == "behind":
        raise SchemaMismatch("the database is not migrated; run `palimpsest migrate`")
    if state in MISMATCHES:
        raise SchemaMismatch(f"the database cannot be used: {MISMATCHES[state]}")
    path = sqlite_path(url)
    if path is not None:
        return SqliteDatabase(path, synchronous, deadline_seconds, rewrite_bytes)
    from palimpsest.storage.postgres_database import open_postgres

    return await open_postgres(url, deadline_seconds)


async def bound_pepper(url: str) -> bytes | None:
    """The fingerprint of the pepper that the database at `url` belongs to; None before its first start.

    Only reads, so it may run beside a server. The schema must be current.
    """

    def read(connection: sa.Connection) -> bytes | None:
        return connection.execute(sa.select(PEPPER.c.fingerprint)).scalar()

    return await with_connection(url, read)
