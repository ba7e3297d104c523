"""The SQLite library in use, its connections, and the files of a database: their condition, locks, copies.

`pysqlite3` brings a SQLite without the WAL-reset corruption of 3.7.0 to 3.51.2. Where it is not installed,
the standard library's is used, and `doctor` says so.

A file that was deleted or replaced still accepts commits, into an inode that no path names. So each commit is
acknowledged only after comparing the open files with what their paths name (two `stat`).
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import struct
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from palimpsest.errors import SettingsError, StoreUnavailable
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


# The reserve is made only if the disk has so many times its size free: the reserve must not fill the disk.
_ROOM_LEFT = 2
_MAGIC = b"SQLite format 3\x00"
# The first byte of a page of a B-tree, and the length of its header. All other pages begin with the number of
# a page, whose first byte is 0 or 1 in files of fewer pages than `_MOST_PAGES` (137 GB).
_HEADERS = {2: 12, 5: 12, 10: 8, 13: 8}
_MOST_PAGES = 1 << 25
_CHUNK_BYTES = 1 << 20
# How long a copy waits while a writer restarts the log.
_BUSY_SECONDS = 30.0


def size_of(path: Path) -> int:
    """Bytes of the database's file and its log. OSError without the file."""
    log = _stat(path.with_name(path.name + "-wal"))
    return path.stat().st_size + (log.st_size if log else 0)


class FileCondition:
    """Shared by all connections to a file. `fault` is the fault SQLite reported; a full disk may recover."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = path.with_name(path.name + "-wal")
        self._opened: dict[Path, tuple[int, int]] = {}
        # Kept open as long as SQLite has the file: closing it would release the process's locks (POSIX).
        self._descriptor: int | None = None
        self.fault: Reason | None = None

    def opened(self) -> None:
        """Remember the files that the paths name now as the ones in use."""
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDWR)
        there = [(path, _stat(path)) for path in (self._path, self._log)]
        self._opened = {path: (found.st_dev, found.st_ino) for path, found in there if found}

    @property
    def settled(self) -> Reason | None:
        """Why nothing may be written before the next start. Not for a full disk, which may get room again."""
        return self.fault if self.fault != "disk_full" else None

    def lost(self) -> Reason | None:
        """Why a commit made now would be lost; None again once the file is put back."""
        for path, identity in self._opened.items():
            found = _stat(path)
            if found is None:
                return "file_missing"
            if (found.st_dev, found.st_ino) != identity:
                return "file_replaced"
            if not found.st_size and path == self._path:
                self.fault = "damaged"
        return self.settled

    def looked_at(self) -> Reason | None:
        """What is wrong, the file's header checked too; a full disk until a write succeeds."""
        if not (lost := self.lost()) and self._descriptor is not None:
            header = b""
            with suppress(OSError):
                header = os.pread(self._descriptor, len(_MAGIC), 0)
            if header != _MAGIC:
                self.fault = "damaged"
        return lost or self.fault

    def failed(self, failure: Failure) -> Reason | None:
        """The fault that a failure reveals. Disk errors and damage stay until the next start.

        After an I/O error the kernel may have dropped pages that a later fsync would report as safe: no later
        write is durable until SQLite recovers from what is on the disk.
        """
        found = fault_of(failure)
        if found is not None and self.fault in (None, "disk_full"):
            self.fault = found
        return found

    def committed(self) -> None:
        """A commit succeeded, so the disk has room. The first commit creates the log."""
        if self._log not in self._opened:
            self.opened()
        if self.fault == "disk_full":
            self.fault = None

    def remains(self) -> list[int]:
        """Offsets of pages whose unused room was not zero when it was read, without a lock. OSError.

        Copies of deleted rows may be left there. Reads the whole file.
        """
        if (descriptor := self._descriptor) is None:
            return []
        size = _page_size(descriptor)
        if os.fstat(descriptor).st_size >= size * _MOST_PAGES:
            raise OSError(errno.EFBIG, "the file has too many pages")
        if any(os.pread(descriptor, 4, 52)):
            # Its pages of pointers begin with 1 to 5. No file of ours is made so; VACUUM can make one of it.
            raise OSError(errno.EINVAL, "the file has auto_vacuum")
        found = []
        at = 0
        while chunk := os.pread(descriptor, _CHUNK_BYTES, at):
            found += [at + start for start in range(0, len(chunk), size) if _gap(chunk, start, size)]
            at += len(chunk) - len(chunk) % size or len(chunk)
        # The first page, which has a header of its own, holds the schema and nobody's text.
        return [page for page in found if page]

    def zero(self, pages: Sequence[int]) -> None:
        """Zero the unused room of these pages and sync the file.

        The caller holds the write lock while the log is empty: then nobody writes to the file. Readers use no
        byte of what is written, nor does a power cut tear anything else.
        """
        if (descriptor := self._descriptor) is None:
            return
        try:
            size = _page_size(descriptor)
            for at in pages:
                if gap := _gap(os.pread(descriptor, size, at), 0, size):
                    os.pwrite(descriptor, bytes(gap[1] - gap[0]), at + gap[0])
            os.fsync(descriptor)
        except OSError as failure:
            self.fault = "disk_error"
            raise driver.OperationalError(f"the file cannot be written: {failure}") from failure

    def closed(self) -> None:
        """SQLite has closed the file: its descriptor is closed too."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class Reserve:
    """A file beside the database that reserves disk space for an erase on a full disk."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".reserve")

    def keep(self, size: int) -> bool:
        """Reserve `size` bytes (0: none); False when the disk has no room."""
        found = _stat(self._path)
        if not size or (found is not None and found.st_size == size):
            return True
        room = os.statvfs(self._path.parent)
        if room.f_bavail * room.f_frsize < _ROOM_LEFT * size:
            return False
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, size)
                os.ftruncate(descriptor, size)
            finally:
                os.close(descriptor)
        except OSError:
            self.give_up()
            return False
        return True

    def give_up(self) -> bool:
        """Free the reserved space; False when there was none."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True


class ServerLock:
    """An exclusive lock on serving the file, held from `take` to `release`.

    It is the kernel's advisory lock: it ends with the process that holds it, however that ends. Commands
    that run beside a server do not take it.
    """

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".lock")
        self._database = database
        self._descriptor: int | None = None

    def take(self) -> None:
        """Take the lock; SettingsError when another process has it."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as taken:
            os.close(descriptor)
            raise SettingsError(
                f"database.url: another process serves {self._database} already;"
                " stop it, or give this one a database of its own."
            ) from taken
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock. The file stays: removing it would let two processes lock two different files."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def copy_database(source: Path, target: Path) -> Mapping[str, int]:
    """Copy a snapshot of the database to `target`, which must not exist; returns the rows by table.

    Writers are not blocked: a reader never blocks them in WAL mode. The log cannot restart until the pages
    are read (1 GB in some 2 s). They are read in one step: a copy in several steps starts over whenever
    somebody writes between two of them. StoreUnavailable when the copy fails.
    """
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with closing(readonly(source, _BUSY_SECONDS)) as reading, closing(driver.connect(target)) as writing:
            # The caller makes the whole file durable at the end; until then it is no backup.
            writing.execute("PRAGMA synchronous=OFF")
            reading.execute("BEGIN")
            rows = _rows(reading)
            reading.backup(writing)
            reading.execute("ROLLBACK")
            # Otherwise opening the copy would create a log beside it.
            writing.execute("PRAGMA journal_mode=DELETE")
    except driver.Error as failure:
        raise StoreUnavailable(f"the database cannot be copied: {failure}") from failure
    return rows


def damage_of(path: Path) -> str | None:
    """What SQLite's integrity check finds wrong with an unused database; None when it is sound."""
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
    """Shadow tables of virtual tables are left out."""
    names = [
        row[1] for row in connection.execute("PRAGMA table_list") if row[0] == "main" and row[2] == "table"
    ]
    return {
        name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]  # noqa: S608  # names of tables
        for name in sorted(names)
        if not name.startswith("sqlite_")
    }


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


# The unused room in the pages of a file, where copies of deleted rows may be left.
#
# `secure_delete` zeroes a deleted row and each freed page. But where SQLite has moved rows between pages,
# their copies stay between a page's pointers and its cells (measured: 13 of 6,000 in tables filled in random
# order). A VACUUM would remove them: it needs memory for the whole file in a library that keeps temporary
# files there, and all writers wait. The layout of pages is that of sqlite.org/fileformat2.html, section 1.6.


def _page_size(descriptor: int) -> int:
    (size,) = struct.unpack(">H", os.pread(descriptor, 2, 16))
    return 65536 if size == 1 else int(size)


def _gap(data: bytes, start: int, size: int) -> tuple[int, int] | None:
    """Where the unused room of the page at `start` begins and ends, if a byte of it is not zero."""
    header = _HEADERS.get(data[start])
    if header is None or start + size > len(data):
        return None
    _, cells, content = struct.unpack_from(">HHH", data, start + 1)
    begin, end = start + header + 2 * cells, start + (content or 65536)
    if begin >= end or end > start + size or data.count(0, begin, end) == end - begin:
        return None
    return begin, end
