"""Migrations arrive exactly at the declared schema, and a schema we do not know refuses to open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text

from app.errors import SchemaMismatch, SettingsError, StoreUnavailable
from app.storage.migrate import migrate, schema_state, with_connection
from app.storage.open import open_store
from app.storage.tables import METADATA
from tests.storage.conftest import new_id


def _differences(connection: Connection) -> list[Any]:
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    return list(compare_metadata(context, METADATA))


async def _execute(url: str, statement: str) -> None:
    def act(connection: Connection) -> None:
        connection.execute(text(statement))
        connection.commit()

    await with_connection(url, act)


async def test_the_migrated_database_is_the_declared_one(url: str) -> None:
    assert await with_connection(url, _differences) == []
    await _execute(url, "ALTER TABLE pins ADD COLUMN stray TEXT")
    try:
        assert await with_connection(url, _differences) != []
    finally:
        await _execute(url, "ALTER TABLE pins DROP COLUMN stray")


async def test_an_empty_database_is_behind_until_migrated(empty_url: str) -> None:
    assert await schema_state(empty_url) == "behind"
    with pytest.raises(SchemaMismatch):
        await open_store(empty_url, new_id=new_id)
    await migrate(empty_url)
    await migrate(empty_url)
    assert await schema_state(empty_url) == "current"
    store = await open_store(empty_url, new_id=new_id)
    await store.ping()
    await store.close()
    await _execute(empty_url, "UPDATE alembic_version SET version_num = 'from the future'")
    assert await schema_state(empty_url) == "unknown"
    with pytest.raises(SchemaMismatch):
        await open_store(empty_url, new_id=new_id)
    await _execute(empty_url, "DROP TABLE alembic_version")
    assert await schema_state(empty_url) == "unknown"


async def test_asking_does_not_create_a_file(tmp_path: Path) -> None:
    path = tmp_path / "absent.db"
    assert await schema_state(f"sqlite:///{path}") == "behind"
    assert not path.exists()


async def test_what_cannot_be_reached_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        await migrate(f"sqlite:///{tmp_path / 'no' / 'folder' / 'store.db'}")
    with pytest.raises(StoreUnavailable):
        await migrate("postgresql://postgres@127.0.0.1:1/postgres")
    with pytest.raises(SettingsError):
        await open_store("mysql://somewhere", new_id=new_id)


async def test_a_new_sqlite_file_can_be_read_by_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "new.db"
    await migrate(f"sqlite:///{file}")
    assert file.stat().st_mode & 0o077 == 0
