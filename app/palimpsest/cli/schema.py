"""Checks and migrates the database's schema, with error messages for operators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from palimpsest.errors import SchemaMismatch, SettingsError, StoreUnavailable
from palimpsest.storage.address import is_there, sqlite_path
from palimpsest.storage.migrate import MISMATCHES, migrate, schema_state


async def migrated(url: str) -> None:
    """Migrate the database to the newest schema; creates the folder of a SQLite file."""
    file = sqlite_path(url)
    if file is not None:
        try:
            # Conversations must not be readable by other users.
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(
                f"database.url: the folder {file.parent} cannot be made ({error.strerror})."
            ) from None
    with reachable(url):
        await migrate(url)


@contextmanager
def reachable(url: str) -> Iterator[None]:
    """Turn StoreUnavailable into a SettingsError with a remedy."""
    try:
        yield
    except StoreUnavailable as failure:
        remedy = (
            "Is the server up, and are host, name, user and password right?"
            if sqlite_path(url) is None
            else "Is it a SQLite file, and may this user write there?"
        )
        raise SettingsError(f"database.url: {failure.message}. {remedy}") from failure


async def ready(url: str) -> None:
    """Check that the schema is current. Creates a missing SQLite file; changes nothing that exists."""
    file = sqlite_path(url)
    with reachable(url):
        if file is not None and not is_there(file):
            await migrated(url)
        state = await schema_state(url)
    if state in MISMATCHES:
        raise SchemaMismatch(f"database.url: {MISMATCHES[state]}")
    if state == "behind":
        raise SchemaMismatch("database.url: the database is not migrated. Run `palimpsest db migrate`.")
