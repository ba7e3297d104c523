"""Stores to test against: a SQLite file of each test's own, and a PostgreSQL database emptied after it.

Both are migrated once. A server that cannot be reached fails the tests.
"""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from palimpsest.storage.migrate import migrate
from palimpsest.storage.store import Store, open_store
from palimpsest.storage.tables import METADATA

from tests.kit.postgres import empty_database, executed, server_address


def new_id() -> str:
    return uuid.uuid4().hex


def _ran(work: Coroutine[Any, Any, None]) -> None:
    """It is done, in a loop of its own: whoever asks for the fixture may have one."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        thread.submit(asyncio.run, work).result()


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "store.db"
    asyncio.run(migrate(f"sqlite:///{path}"))
    return path


@pytest.fixture(scope="session")
def migrated_database() -> Iterator[str]:
    server, name = server_address(), f"palimpsest_{uuid.uuid4().hex}"
    url = f"{server.rsplit('/', 1)[0]}/{name}"
    _ran(executed(server, f'CREATE DATABASE "{name}"'))
    _ran(migrate(url))
    yield url
    _ran(executed(server, f'DROP DATABASE "{name}" WITH (FORCE)'))


@pytest.fixture
async def empty_postgres_url() -> AsyncIterator[str]:
    """A PostgreSQL database with nothing in it."""
    async with empty_database(server_address()) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An address where no database with our tables is yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    found: str = request.getfixturevalue("empty_postgres_url")
    return found


@pytest.fixture
def sqlite_url(tmp_path: Path, migrated_file: Path) -> str:
    """A SQLite file with our tables, empty."""
    return f"sqlite:///{shutil.copy(migrated_file, tmp_path / 'store.db')}"


@pytest.fixture
async def postgres_url(migrated_database: str) -> AsyncIterator[str]:
    """A PostgreSQL database with our tables, empty."""
    yield migrated_database
    # Emptied, not dropped: dropping a database makes the server write everything it has to disk.
    await executed(migrated_database, ";".join(f'DELETE FROM "{table}"' for table in METADATA.tables))


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, sqlite_url: str) -> str:
    """An address with our tables, empty; PostgreSQL is not needed for SQLite's."""
    found: str = sqlite_url if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    opened = await open_store(url, deadline_seconds=20, new_id=new_id)
    yield opened
    await opened.close()


@pytest.fixture
async def beside(store: Store, url: str) -> AsyncIterator[Store]:
    """Another server of the same database."""
    opened = await open_store(url, deadline_seconds=20, new_id=new_id)
    yield opened
    await opened.close()
