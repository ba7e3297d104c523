"""Which SQLite is used, and how a connection to it is set up.

Must not know statements. `pysqlite3` brings a SQLite without the WAL-reset corruption of
3.7.0 to 3.51.2; the standard library's is used where it is not installed, and `doctor` says so.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

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

# The low byte of SQLite's extended codes: SQLITE_IOERR and SQLITE_CORRUPT.
_DISK_CODES = frozenset({10, 11})
# SQLITE_BUSY.
_BUSY_CODE = 5
# Bytes that a WAL keeps when it is begun again: writing over them takes half as long as letting a file grow,
# for then the file's size must be made durable too.
WAL_BYTES = 64_000_000
# Prepared statements kept per connection; we have about 80.
_STATEMENTS = 256


def sqlite_version() -> str:
    """The version of the SQLite library in use."""
    return driver.sqlite_version


def is_disk_error(failure: Failure) -> bool:
    """True when the disk, not the statement, is at fault."""
    return getattr(failure, "sqlite_errorcode", 0) & 0xFF in _DISK_CODES


def is_busy(failure: Failure) -> bool:
    """True when another connection has the database locked."""
    code = getattr(failure, "sqlite_errorcode", None)
    return code & 0xFF == _BUSY_CODE if code is not None else "database is locked" in str(failure)


def writable(path: Path, synchronous: Synchronous) -> Connection:
    """The write connection: WAL, no checkpoints of its own, deleted bytes overwritten.

    It never waits for another process that writes: it says at once that it is busy.
    """
    connection = driver.connect(
        path,
        timeout=0.0,
        isolation_level=None,
        cached_statements=_STATEMENTS,
        check_same_thread=False,
    )
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous.upper()}")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    connection.execute(f"PRAGMA journal_size_limit={WAL_BYTES}")
    connection.execute("PRAGMA secure_delete=ON")
    connection.execute("PRAGMA cache_size=-32000")
    return connection


def readonly(path: Path, busy_seconds: float) -> Connection:
    """A connection that cannot write. It may be handed from one thread to another."""
    connection = driver.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        timeout=busy_seconds,
        isolation_level=None,
        cached_statements=_STATEMENTS,
        check_same_thread=False,
    )
    connection.execute("PRAGMA query_only=ON")
    connection.execute("PRAGMA cache_size=-16000")
    return connection
