"""Copies a whole database into an empty one, SQLite or PostgreSQL in either direction: exact and resumable.

Rows are copied table by table in the order of their keys, some at a time, so that what an interrupted copy
left is a beginning of each table and another copy continues behind it. While a copy is unfinished the target
has a revision that no server starts with. At the end every row is read again on both sides and compared.

Not copied are the rows of running servers, the word index, which servers make from the messages again, and
the sizes of namespaces, which the target's own triggers count.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from palimpsest.errors import SchemaMismatch, SettingsError
from palimpsest.storage.address import sqlite_path
from palimpsest.storage.body_bytes import AddUp
from palimpsest.storage.journal import OPEN_FAILED
from palimpsest.storage.migrate import (
    MISMATCHES,
    UNFINISHED,
    SchemaState,
    connected,
    migrate,
    schema_of_this_version,
    schema_state,
)
from palimpsest.storage.sqlite.files import ServerLock
from palimpsest.storage.tables import (
    BODY_BYTES,
    HEARTBEAT,
    LEASES,
    METADATA,
    RECALL_MARKS,
    RECALL_WORDS,
    SERVERS,
)

Row: TypeAlias = Sequence[Any]
# Called with the number of rows that were copied or compared since the last call.
Progress: TypeAlias = Callable[[int], None]

_LEFT_OUT = (LEASES, SERVERS, HEARTBEAT, RECALL_MARKS, RECALL_WORDS, BODY_BYTES)
COPIED: Sequence[sa.Table] = [table for table in METADATA.tables.values() if table not in _LEFT_OUT]
# A transaction's rows, and the bytes from which on it has fewer: a body may have megabytes.
_ROWS = 500
_BYTES = 4_000_000
# Rows that the driver reads ahead.
_AHEAD = 100


async def copy_store(
    source_url: str, target_url: str, beat_seconds: float, begun: Callable[[int], Progress]
) -> Mapping[str, int]:
    """Copy everything to the target, or continue an interrupted copy; returns the rows by table.

    `begun` is called with the number of rows to copy and to compare, and returns what is told the progress.
    A server that uses PostgreSQL is noticed within `beat_seconds`. SettingsError, and the target stays
    unfinished, when a server uses one of the databases, when the target holds other rows, or when the source
    has changed since the copy was begun. SchemaMismatch when a schema is not this version's.
    """
    _check_files(source_url, target_url)
    match await schema_state(source_url):
        case "behind":
            raise SchemaMismatch("copy: the source is not migrated; run `palimpsest db migrate` first.")
        case "unknown" | "unfinished" as state:
            raise SchemaMismatch(f"copy: the source cannot be used: {MISMATCHES[state]}")
    # Before it is locked: no file is left beside one that is no database.
    await _usable(target_url)
    async with AsyncExitStack() as held:
        for url in (source_url, target_url):
            _reserved(url, held)
        await _prepared(target_url)
        source = await held.enter_async_context(connected(source_url, snapshot=True))
        target = await held.enter_async_context(connected(target_url))
        for connection in (source, target):
            await _unused(connection, beat_seconds)
        rows = {table.name: await _count(source, table) for table in COPIED}
        progress = begun(2 * sum(rows.values()))
        for table in COPIED:
            await _copied(source, target, table, progress)
        for table in COPIED:
            await _compared(source, target, table, progress)
        # As at the start of a server: none is working on them.
        await target.execute(OPEN_FAILED)
        await target.execute(AddUp())
        await _set_revision(target, schema_of_this_version())
    return rows


def _check_files(source_url: str, target_url: str) -> None:
    """SettingsError for a SQLite file that is none, and where both are the same database."""
    source, target = sqlite_path(source_url), sqlite_path(target_url)
    for path in filter(None, (source, target)):
        try:
            if path.exists() and not path.is_file():
                raise SettingsError(f"copy: {path} is not a regular file.")
        except OSError as failure:
            raise _unusable(path, failure) from failure
    if source_url == target_url or (source and target and _is_same(source, target)):
        raise SettingsError("copy: source and target are the same database.")


def _is_same(one: Path, other: Path) -> bool:
    if one.exists() and other.exists():
        return one.samefile(other)
    return os.path.realpath(one) == os.path.realpath(other)


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


async def _usable(url: str) -> SchemaState:
    """The state of the target's schema. SchemaMismatch when it is not this program's."""
    state = await schema_state(url)
    if state == "unknown":
        raise SchemaMismatch(f"copy: the target cannot be used: {MISMATCHES[state]}")
    return state


async def _prepared(url: str) -> None:
    """The target has this version's tables, is empty or an unfinished copy, and is marked as unfinished."""
    match await _usable(url):
        case "unfinished":
            return
        case "behind":
            await migrate(url)
        case "current":
            pass
    async with connected(url) as target:
        for table in COPIED:
            if await _count(target, table):
                raise SettingsError(
                    f"copy: the target has rows already ({table.name}); name an empty database."
                )
        await _set_revision(target, UNFINISHED)


async def _set_revision(target: AsyncConnection, revision: str) -> None:
    await target.execute(sa.text("UPDATE alembic_version SET version_num = :to"), {"to": revision})
    await target.commit()


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


async def _count(connection: AsyncConnection, table: sa.Table) -> int:
    return int(await connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)


async def _copied(
    source: AsyncConnection, target: AsyncConnection, table: sa.Table, progress: Progress
) -> None:
    """The target's table is that of the source, unless its rows were others before."""
    names = table.columns.keys()
    last = (await target.execute(_last(table, target))).first()
    if last is not None:
        progress(await _count(target, table))
    async for rows in _batches(source, _behind(table, source, last)):
        await target.execute(sa.insert(table), [dict(zip(names, row, strict=True)) for row in rows])
        await target.commit()
        progress(len(rows))


async def _compared(
    source: AsyncConnection, target: AsyncConnection, table: sa.Table, progress: Progress
) -> None:
    """SettingsError unless both have the same rows."""
    theirs = await target.stream(_behind(table, target, None))
    async for rows in _batches(source, _behind(table, source, None)):
        if [tuple(row) for row in rows] != [tuple(row) for row in await theirs.fetchmany(len(rows))]:
            raise _differs(table)
        progress(len(rows))
    if await theirs.fetchone() is not None:
        raise _differs(table)


def _differs(table: sa.Table) -> SettingsError:
    return SettingsError(
        f"copy: the rows of {table.name} are not those of the source, which has changed since the copy was "
        "begun. Empty the target and copy again, with no server running."
    )


async def _batches(source: AsyncConnection, rows: sa.Select[Any]) -> AsyncIterator[list[Row]]:
    """The rows, some at a time."""
    batch: list[Row] = []
    size = 0
    async for row in await source.stream(rows):
        batch.append(row)
        size += sum(len(value) for value in row if isinstance(value, bytes))
        if len(batch) >= _ROWS or size >= _BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _behind(table: sa.Table, connection: AsyncConnection, last: Row | None) -> sa.Select[Any]:
    """The rows behind the key `last`, all by default, in the order of their keys."""
    key = _key(table, connection)
    rows = sa.select(table).order_by(*key).execution_options(yield_per=_AHEAD)
    if last is None:
        return rows
    bound = [sa.literal(value, column.type) for value, column in zip(last, table.primary_key, strict=True)]
    return rows.where(sa.tuple_(*key) > sa.tuple_(*bound))


def _last(table: sa.Table, connection: AsyncConnection) -> sa.Select[Any]:
    """The last key."""
    order = [column.desc() for column in _key(table, connection)]
    return sa.select(*table.primary_key).order_by(*order).limit(1)


def _key(table: sa.Table, connection: AsyncConnection) -> list[sa.ColumnElement[Any]]:
    """The key's columns, compared byte by byte as SQLite does: PostgreSQL's own order may be a language's."""
    is_postgres = connection.dialect.name == "postgresql"
    return [
        sa.collate(column, "C") if is_postgres and isinstance(column.type, sa.Text) else column
        for column in table.primary_key
    ]
