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
# Prepared statements kept per connection; we have about 80.
_STATEMENTS = 256


def sqlite_version() -> str:
    """The version of the SQLite library in use."""
    return driver.sqlite_version


def is_disk_error(failure: Failure) -> bool:
    """True when the disk, not the statement, is at fault."""
    return getattr(failure, "sqlite_errorcode", 0) & 0xFF in _DISK_CODES


def writable(path: Path, synchronous: Synchronous, busy_seconds: float) -> Connection:
    """The write connection: WAL, no checkpoints of its own, deleted bytes overwritten.

    `busy_seconds` bounds the wait for another process that writes.
    """
    connection = driver.connect(
        path,
        timeout=busy_seconds,
        isolation_level=None,
        cached_statements=_STATEMENTS,
        check_same_thread=False,
    )
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous.upper()}")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    connection.execute("PRAGMA journal_size_limit=1048576")
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
