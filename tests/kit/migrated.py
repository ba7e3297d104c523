"""Databases for tests that need one and do not ask how it is made: a SQLite file is migrated once a process.

Migrating takes a fifth of a second, and a thousand tests begin with it.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from palimpsest.storage.address import sqlite_path
from palimpsest.storage.migrate import migrate


async def migrated(url: str) -> None:
    """The database has the newest schema. A file that is there already is migrated as it lies there."""
    file = sqlite_path(url)
    if file is None or file.exists():
        await migrate(url)
    else:
        await make_file(file)


async def make_file(file: Path) -> None:
    """An empty database with the newest schema is there, where no file was."""
    empty = _folder() / "empty.db"
    if not empty.exists():
        # Elsewhere first: a copy of one half made would be a test that fails for another reason.
        making = _folder() / "making.db"
        await migrate(f"sqlite:///{making}")
        making.rename(empty)
    shutil.copy(empty, file)


@functools.cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="palimpsest-migrated-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
