"""Copies a whole database into an empty one, SQLite or PostgreSQL in either direction.

Table by table in one transaction of the target: interrupted, it leaves an empty database. Before the commit
the rows of each table are read again, and their number and digest compared with those of the source.

Not copied are the rows of running servers, and the word index, which servers make from the messages again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from palimpsest.errors import SchemaMismatch, SettingsError
from palimpsest.storage.journal import OPEN_FAILED
from palimpsest.storage.migrate import MISMATCHES, connected, migrate, schema_state, sqlite_path
from palimpsest.storage.sqlite_files import ServerLock
from palimpsest.storage.tables import (
    HEARTBEAT,
    LEASES,
    METADATA,
    RECALL_MARKS,
    RECALL_WORDS,
    RESERVED,
    SERVERS,
)

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
            await _unused(connection, beat_seconds)
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


async def _unused(connection: AsyncConnection, seconds: float) -> None:
    """SettingsError when a server on PostgreSQL beats; those that died do not."""
    before = await _beats(connection)
    if before:
        await asyncio.sleep(seconds)
        now = await _beats(connection)
        if any(now.get(server, beats) != beats for server, beats in before.items()):
            raise SettingsError("copy: a server uses the database; stop it first.")


async def _beats(connection: AsyncConnection) -> dict[str, int]:
    """The beats of the servers, as they are now: in a connection's snapshot they would stand still."""
    async with connection.engine.connect() as apart:
        rows = await apart.execute(sa.select(SERVERS.c.id, SERVERS.c.beats))
        return {row[0]: row[1] for row in rows}
