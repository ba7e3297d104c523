"""Stores to test against: a SQLite file and a PostgreSQL database of each test's own."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from app.storage.contract import Store
from app.storage.migrate import migrate
from app.storage.open import open_store

DEFAULT_SERVER = "postgresql://postgres@127.0.0.1:5432/postgres"


def new_id() -> str:
    return uuid.uuid4().hex


@pytest.fixture(params=["sqlite", "postgresql"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """An address where no database with our tables is yet."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'store.db'}"
        return
    server = os.environ.get("PALIMPSEST_TEST_POSTGRES", DEFAULT_SERVER)
    name = f"palimpsest_{uuid.uuid4().hex}"
    connection = await asyncpg.connect(server)
    try:
        await connection.execute(f'CREATE DATABASE "{name}"')
        yield f"{server.rsplit('/', 1)[0]}/{name}"
        await connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    finally:
        await connection.close()


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    await migrate(url)
    opened = await open_store(url, deadline_seconds=20, new_id=new_id)
    yield opened
    await opened.close()
