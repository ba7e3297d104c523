"""Which SQLite is used, and how a connection to it is set up.

Must not know statements. `pysqlite3` brings a SQLite without the WAL-reset corruption of
3.7.0 to 3.51.2; the standard library's is used where it is not installed, and `doctor` says so.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from app.storage.trouble import Reason

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
# Bytes that a WAL keeps when it is begun again: writing over them takes half as long as letting a file grow,
# for then the file's size must be made durable too.
WAL_BYTES = 64_000_000
# Prepared statements kept per connection; we have about 80.
_STATEMENTS = 256


def sqlite_version() -> str:
    """The version of the SQLite library in use."""
    return driver.sqlite_version


def fault_of(failure: Failure) -> Reason | None:
    """What is wrong with the disk or the file; None when the statement is at fault."""
    return _FAULTS.get(getattr(failure, "sqlite_errorcode", 0) & 0xFF)


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
