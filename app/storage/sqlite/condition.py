"""Whether a SQLite file is still the one that was opened, whole, and on a disk with room; a reserve of room.

Must not know what is written. A file that is deleted or replaced goes on to take commits, into an inode that
nobody finds again: before something is acknowledged, it is compared with what the path names (two `stat`).
"""

from __future__ import annotations

import os
from pathlib import Path

from app.storage.sqlite.driver import Failure, fault_of
from app.storage.trouble import Reason

# The reserve is made when the disk has so many times as much: an erase must not be followed by a full disk.
_ROOM_LEFT = 2
_MAGIC = b"SQLite format 3\x00"


class FileCondition:
    """One for the connections to a file. `fault` is what SQLite has said; a full disk may be over again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = path.with_name(path.name + "-wal")
        self._opened: dict[Path, tuple[int, int]] = {}
        # Held as long as SQLite has the file: closing it earlier would give up the process's locks (POSIX).
        self._descriptor: int | None = None
        self.fault: Reason | None = None

    def opened(self) -> None:
        """The files that the path names now are the ones that are used."""
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDONLY)
        there = [(path, _stat(path)) for path in (self._path, self._log)]
        self._opened = {path: (found.st_dev, found.st_ino) for path, found in there if found}

    @property
    def settled(self) -> Reason | None:
        """Why nothing may be written before the next start; a full disk may have room again."""
        return self.fault if self.fault != "disk_full" else None

    def lost(self) -> Reason | None:
        """Why what is committed now would not be found again. It may be over when the file is put back."""
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
        """What is wrong, the beginning of the file read too; a full disk until something could be written."""
        if not (lost := self.lost()) and not self._begins_well():
            self.fault = "damaged"
        return lost or self.fault

    def failed(self, failure: Failure) -> Reason | None:
        """What a failure says of the file; a disk that failed, and damage, stay until the next start.

        After an I/O error the kernel may have dropped pages that a later fsync would call safe: nothing
        written afterwards could be called durable until SQLite recovers from what the disk really holds.
        """
        found = fault_of(failure)
        if found is not None and self.fault in (None, "disk_full"):
            self.fault = found
        return found

    def committed(self) -> None:
        """Something is durable: there is room. The first commit makes the log."""
        if self._log not in self._opened:
            self.opened()
        if self.fault == "disk_full":
            self.fault = None

    def _begins_well(self) -> bool:
        if self._descriptor is None:
            return True
        try:
            return os.pread(self._descriptor, len(_MAGIC), 0) == _MAGIC
        except OSError:
            return False

    def closed(self) -> None:
        """SQLite has closed the file: nothing of it is held any more."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class Reserve:
    """A file beside the database that holds room on the disk, to be given up when an erase needs it."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".reserve")

    def keep(self, size: int) -> bool:
        """It holds so many bytes, none for 0; False when there is no room for it."""
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
        """Its room is free; False when it held none."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None
