"""What is possible because one process alone serves a SQLite file: a lock on it, and order after a crash.

Must not know what an exchange is but its state. The lock is advisory and the kernel's: it ends with
the process that holds it, however that ends. Commands beside a running server do not take it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from sqlalchemy import update
from sqlalchemy.sql.expression import literal_column

from app.errors import SettingsError
from app.storage.database import Statement
from app.storage.tables.conversations import EXCHANGES


class SoleUse:
    """Held from `take` to `release`."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".lock")
        self._database = database
        self._descriptor: int | None = None

    def take(self) -> None:
        """Nobody else can take it; SettingsError when somebody else has."""
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
        """Others can take it. The file stays: removing it would let two processes lock two files."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


# Nobody is left to close an exchange that a killed process had open: a retry of it is no second speaker.
FAIL_OPEN = Statement(
    lambda _: (
        update(EXCHANGES)
        .where(EXCHANGES.c.state == literal_column("'open'"))
        .values(state=literal_column("'failed'"))
    )
)
