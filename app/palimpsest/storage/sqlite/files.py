"""The files of a SQLite database: their condition, a disk reserve, the server's lock, whole copies.

A file that was deleted or replaced still accepts commits, into an inode that no path names. So each commit is
acknowledged only after comparing the open files with what their paths name (two `stat`).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from palimpsest.errors import SettingsError, StoreUnavailable
from palimpsest.storage.database import Reason
from palimpsest.storage.sqlite.driver import Connection, Failure, driver, fault_of, readonly
from palimpsest.storage.sqlite.page_gaps import pages_with_remains, zero_remains

# The reserve is made only if the disk has so many times its size free: the reserve must not fill the disk.
_ROOM_LEFT = 2
_MAGIC = b"SQLite format 3\x00"
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
        if not (lost := self.lost()) and not self._begins_well():
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
        """The offsets of pages that may hold copies of deleted rows; reads the whole file."""
        return [] if self._descriptor is None else pages_with_remains(self._descriptor)

    def zero(self, pages: Sequence[int]) -> None:
        """Zero the unused room of these pages, as `zero_remains` says."""
        if self._descriptor is None:
            return
        try:
            zero_remains(self._descriptor, pages)
        except OSError as failure:
            self.fault = "disk_error"
            raise driver.OperationalError(f"the file cannot be written: {failure}") from failure

    def _begins_well(self) -> bool:
        if self._descriptor is None:
            return True
        try:
            return os.pread(self._descriptor, len(_MAGIC), 0) == _MAGIC
        except OSError:
            return False

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
        if not size or self._has(size):
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

    def _has(self, size: int) -> bool:
        found = _stat(self._path)
        return found is not None and found.st_size == size

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
