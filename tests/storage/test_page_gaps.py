"""What SQLite leaves of deleted rows between the cells of its pages is zeroed, and nothing else."""

from __future__ import annotations

import random
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from palimpsest.errors import StoreUnavailable
from palimpsest.storage.sqlite_database import SqliteDatabase
from palimpsest.storage.sqlite_files import Connection, driver, readonly, writable

pytestmark = pytest.mark.spec("P6")
ERASED, KEPT = "Kanarienvogel", "Nachtigall"


def fill(connection: Connection, rng: random.Random, words: str, count: int) -> None:
    """Rows in random order of a table and of its index, so that pages are split in their middle."""
    connection.execute("BEGIN")
    for number in range(count):
        row = (rng.randbytes(8).hex(), f"{rng.choice('abcdef')}{words}{number}{'x' * rng.randrange(320)}")
        connection.execute("INSERT INTO apart VALUES (?, ?)", row)
    connection.execute("COMMIT")


def in_file(path: Path, words: str) -> int:
    return path.read_bytes().count(words.encode())


async def test_copies_of_deleted_rows_are_zeroed_and_stay_away(migrated_file: Path, tmp_path: Path) -> None:
    path, rng = Path(shutil.copy(migrated_file, tmp_path / "store.db")), random.Random(1)
    with closing(writable(path, "normal")) as connection:
        connection.execute("CREATE TABLE apart (key TEXT PRIMARY KEY, words TEXT) WITHOUT ROWID")
        connection.execute("CREATE INDEX by_words ON apart (words)")
        for _ in range(40):
            fill(connection, rng, KEPT, 300)
            fill(connection, rng, ERASED, 60)
        connection.execute(f"DELETE FROM apart WHERE words LIKE '%{ERASED}%'")
        kept = connection.execute("SELECT * FROM apart").fetchall()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    # The control: `secure_delete` alone leaves some.
    assert in_file(path, ERASED)
    database = SqliteDatabase(path, "full", 20.0)
    # Another process has pages in its cache, and writes them later.
    with closing(writable(path, "normal")) as other, closing(readonly(path, 1.0)) as reading:
        assert len(other.execute("SELECT * FROM apart").fetchall()) == len(kept)
        assert await database.scrub() == "scrubbed"
        assert in_file(path, ERASED) == 0
        assert reading.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert reading.execute("SELECT * FROM apart").fetchall() == kept
        fill(other, rng, KEPT, 3_000)
        assert await database.empty_log()
        assert in_file(path, ERASED) == 0
        assert reading.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    await database.close()


async def test_a_log_in_use_holds_it_back(migrated_file: Path, tmp_path: Path) -> None:
    """Pages are zeroed while the log is empty only: a checkpoint writes to the file."""
    path = Path(shutil.copy(migrated_file, tmp_path / "store.db"))
    database = SqliteDatabase(path, "full", 20.0)
    with closing(driver.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM sessions").fetchall()
        with closing(writable(path, "normal")) as writing:
            writing.execute("PRAGMA user_version=1")
        assert await database.scrub() == "pending"
    assert await database.scrub() == "scrubbed"
    await database.close()


async def test_a_file_with_pages_of_another_kind_is_left_alone(migrated_file: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(migrated_file, tmp_path / "store.db"))
    with closing(driver.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA auto_vacuum=FULL")
        connection.execute("VACUUM")
    database = SqliteDatabase(path, "full", 20.0)
    with pytest.raises(StoreUnavailable, match="auto_vacuum"):
        await database.scrub()
    await database.close()
