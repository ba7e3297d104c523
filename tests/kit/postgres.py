"""PostgreSQL databases of a test's own, on the server that the tests are given.

Knows nothing of our tables.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

DEFAULT_SERVER = "postgresql://postgres@127.0.0.1:5432/postgres"


def server_address() -> str:
    """The server's address; databases are made beside the one it names. It must be reachable."""
    return os.environ.get("PALIMPSEST_TEST_POSTGRES", DEFAULT_SERVER)


async def executed(url: str, statement: str) -> None:
    """The statement, or several, are carried out in the database at `url`."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def asked(url: str, question: str) -> list[tuple[object, ...]]:
    """The rows that the database at `url` has for it."""
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row.values()) for row in await connection.fetch(question)]
    finally:
        await connection.close()


@asynccontextmanager
async def empty_database(server: str) -> AsyncIterator[str]:
    """The address of a new database, which is dropped at the end, whoever is connected to it."""
    name = f"palimpsest_{uuid.uuid4().hex}"
    await executed(server, f'CREATE DATABASE "{name}"')
    try:
        yield f"{server.rsplit('/', 1)[0]}/{name}"
    finally:
        await executed(server, f'DROP DATABASE "{name}" WITH (FORCE)')
