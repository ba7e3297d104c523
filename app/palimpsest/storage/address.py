"""Which database an address names: a file of SQLite, or a PostgreSQL server, and the driver for it."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from palimpsest.errors import SettingsError


def sqlite_path(url: str) -> Path | None:
    """The file of `sqlite:///path`; None for another database."""
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None


def postgres_driver() -> ModuleType:
    """asyncpg, which is an optional dependency. SettingsError without it."""
    try:
        import asyncpg
    except ModuleNotFoundError:
        raise SettingsError(
            "database.url: PostgreSQL needs a driver: pip install 'palimpsest[postgres]'."
        ) from None
    return asyncpg
