"""A whole copy of a SQLite database that may be in use, and what can be said of such a copy.

Must not know what the tables mean, nor where copies are kept.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from app.errors import StoreUnavailable
from app.storage.sqlite.driver import Connection, driver, readonly

# How long a copy waits for the moment in which a writer switches from one log to the next.
_BUSY_SECONDS = 30.0


def copy_database(source: Path, target: Path) -> Mapping[str, int]:
    """`target`, which must not exist, holds the database as it stood at one moment; rows by table.

    Whoever writes is not held up: a reader never does that in a WAL. The log cannot begin anew until the
    pages are read (1 GB in some 2 s), which is why they are read in one go: a copy in steps starts over
    whenever somebody writes between two of them. StoreUnavailable when it cannot be made.
    """
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with closing(readonly(source, _BUSY_SECONDS)) as reading, closing(driver.connect(target)) as writing:
            # Made durable at once at the end; until then nobody takes it for a backup.
            writing.execute("PRAGMA synchronous=OFF")
            reading.execute("BEGIN")
            rows = _rows(reading)
            reading.backup(writing)
            reading.execute("ROLLBACK")
            # Else opening the copy would make a log beside it.
            writing.execute("PRAGMA journal_mode=DELETE")
    except driver.Error as failure:
        raise StoreUnavailable(f"the database cannot be copied: {failure}") from failure
    return rows


def damage_of(path: Path) -> str | None:
    """What SQLite finds wrong with a database that nobody uses; None when it is whole."""
    try:
        with closing(readonly(path, _BUSY_SECONDS)) as connection:
            found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(1)")]
    except driver.Error as failure:
        return str(failure)
    return None if found == ["ok"] else found[0]


def rows_of(path: Path) -> Mapping[str, int]:
    """Rows by table. StoreUnavailable when it cannot be read."""
    try:
        with closing(readonly(path, _BUSY_SECONDS)) as connection:
            return _rows(connection)
    except driver.Error as failure:
        raise StoreUnavailable(f"the database cannot be read: {failure}") from failure


def _rows(connection: Connection) -> Mapping[str, int]:
    """Tables that an index keeps for itself are left out."""
    names = [
        row[1] for row in connection.execute("PRAGMA table_list") if row[0] == "main" and row[2] == "table"
    ]
    return {
        name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]  # noqa: S608  # names of tables
        for name in sorted(names)
        if not name.startswith("sqlite_")
    }
