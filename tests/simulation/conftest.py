from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest
from palimpsest.storage.migrate import migrate
from palimpsest.storage.store import Store, open_store

from tests.simulation.exchange import Proxy


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database; tests copy it."""
    path = tmp_path_factory.mktemp("empty") / "store.db"
    asyncio.run(migrate(f"sqlite:///{path}"))
    return path


@pytest.fixture
async def store(empty_database: Path, tmp_path: Path) -> AsyncIterator[Store]:
    path = shutil.copy(empty_database, tmp_path / "store.db")
    names = count(1)
    store = await open_store(f"sqlite:///{path}", new_id=lambda: f"namespace-{next(names)}")
    yield store
    await store.close()


@pytest.fixture
async def proxy(store: Store) -> Proxy:
    return Proxy(store, await store.accounts.namespace_of(b"one caller", 0.0))


@pytest.fixture
async def neighbour(store: Store) -> Proxy:
    return Proxy(store, await store.accounts.namespace_of(b"another caller", 0.0))
