"""Which SQLite library is used, and how connections are set up.

`pysqlite3` brings a SQLite without the WAL-reset corruption of 3.7.0 to 3.51.2. Where it is not installed,
the standard library's is used, and `doctor` says so.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from palimpsest.storage.database import Reason

if TYPE_CHECKING:
    driver = sqlite3
else:
    try:
        from pysqlite3 import dbapi2 as driver
    except ImportError:
        driver = sqlite3

Connection: TypeAlias = sqlite3.Connection
Failure: TypeAlias = sqlite3.Error
Synchronous: TypeAlias = Literal["full", "normal"]

# The low byte of SQLite's extended codes: SQLITE_IOERR, SQLITE_CORRUPT, SQLITE_NOTADB, SQLITE_FULL.
_FAULTS: Mapping[int, Reason] = {10: "disk_error", 11: "damaged", 26: "damaged", 13: "disk_full"}
# SQLITE_BUSY.
_BUSY_CODE = 5
# Bytes the WAL keeps when it restarts. Overwriting takes half as long as growing the file, whose size must
# then be made durable too.
WAL_BYTES = 64_000_000
# The first version with FTS5's `contentless_delete`.
_WORD_INDEX_SINCE = (3, 43)
# Prepared statements cached per connection; the program has about 80.
_STATEMENTS = 256


def sqlite_version() -> str:
    """The version of the SQLite library in use."""
    return driver.sqlite_version


def has_word_index() -> bool:
    """Whether the library supports the word index: FTS5 with deletes from contentless tables."""
    with closing(driver.connect(":memory:")) as connection:
        modules = connection.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchall()
    return bool(modules) and tuple(map(int, sqlite_version().split(".")[:2])) >= _WORD_INDEX_SINCE


def fault_of(failure: Failure) -> Reason | None:
    """The fault of the disk or file; None when the statement is at fault."""
    return _FAULTS.get(getattr(failure, "sqlite_errorcode", 0) & 0xFF)


def is_busy(failure: Failure) -> bool:
    """True when another connection has the database locked."""
    code = getattr(failure, "sqlite_errorcode", None)
    return code & 0xFF == _BUSY_CODE if code is not None else "database is locked" in str(failure)


# Of pages in memory, beside the system's own cache of the file: 20 MB for one writer and three readers.
_WRITER_KILOBYTES, _READER_KILOBYTES = 8_000, 4_000


def writable(path: Path, synchronous: Synchronous) -> Connection:
    """The write connection: WAL, no automatic checkpoints, secure_delete.

    It does not wait for another process that writes but fails with SQLITE_BUSY at once.
    """
    connection = driver.connect(
        path, timeout=0.0, isolation_level=None, cached_statements=_STATEMENTS, check_same_thread=False
    )
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous.upper()}")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    connection.execute(f"PRAGMA journal_size_limit={WAL_BYTES}")
    connection.execute("PRAGMA secure_delete=ON")
    connection.execute(f"PRAGMA cache_size=-{_WRITER_KILOBYTES}")
    return connection


def readonly(path: Path, busy_seconds: float) -> Connection:
    """A read-only connection that threads may hand to each other."""
    connection = driver.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        timeout=busy_seconds,
        isolation_level=None,
        cached_statements=_STATEMENTS,
        check_same_thread=False,
    )
    connection.execute("PRAGMA query_only=ON")
    connection.execute(f"PRAGMA cache_size=-{_READER_KILOBYTES}")
    return connection
