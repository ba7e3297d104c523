"""Which database an address names: a file of SQLite, or a PostgreSQL server, and the driver for it."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from palimpsest.errors import SettingsError, StoreUnavailable


def sqlite_path(url: str) -> Path | None:
    """The file of `sqlite:///path`; None for another database."""
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None


def is_there(path: Path) -> bool:
    """Whether the file exists. StoreUnavailable when nobody can say: a closed folder, a name too long."""
    try:
        return path.exists()
    except OSError as failure:
        raise StoreUnavailable(f"the database {path} cannot be opened: {failure.strerror}") from failure


def postgres_driver() -> ModuleType:
    """asyncpg, which is an optional dependency. SettingsError without it."""
    try:
        import asyncpg
    except ModuleNotFoundError:
        raise SettingsError(
            "database.url: PostgreSQL needs a driver: pip install 'palimpsest[postgres]'."
        ) from None
    return asyncpg
