"""Before anything is served: the database is there and has the schema of this version.

Knows nothing of tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from app.errors import SchemaMismatch, SettingsError, StoreUnavailable
from app.storage.migrate import migrate, schema_state, sqlite_path


async def migrated(url: str) -> None:
    """The database has the newest schema; the folder of a SQLite file is made when it is missing."""
    file = sqlite_path(url)
    if file is not None:
        try:
            # Conversations are nobody else's business.
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(
                f"database.url: the folder {file.parent} cannot be made ({error.strerror})."
            ) from None
    with reachable(url):
        await migrate(url)


@contextmanager
def reachable(url: str) -> Iterator[None]:
    """A database that cannot be reached refuses the command, with what to look at."""
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
    """The schema fits. A file that does not exist yet is made; nothing that exists is changed."""
    file = sqlite_path(url)
    if file is not None and not file.exists():
        await migrated(url)
    with reachable(url):
        state = await schema_state(url)
    match state:
        case "behind":
            raise SchemaMismatch("database.url: the database is not migrated. Run `palimpsest migrate`.")
        case "unknown":
            raise SchemaMismatch(
                "database.url: the database belongs to a newer version or to another program. "
                "Use that version, or another database with --database."
            )
        case "current":
            pass


def without_password(url: str) -> str:
    """An address that can be shown."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    return parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", ":***@")).geturl()
