"""Opening a store by its address. The one place that knows which databases there are.

Must not migrate: a schema that does not fit refuses to open.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from sqlalchemy import Connection, select

from app.errors import SchemaMismatch, SettingsError
from app.storage.accounts import AccountRows
from app.storage.contract import Store
from app.storage.database import Database, Statement, Step
from app.storage.erase.gone import Gone
from app.storage.erase.rows import EraseRows
from app.storage.exchange.hidden_rows import HiddenRows
from app.storage.exchange.imports import ImportWrites
from app.storage.exchange.item_rows import ItemRows
from app.storage.exchange.partial import PartialRows
from app.storage.exchange.writes import ExchangeWrites
from app.storage.journal_sql.journal import JournalRows
from app.storage.known import KnownReads
from app.storage.migrate import schema_state, sqlite_path, with_connection
from app.storage.path import PathReads
from app.storage.postgres_database import open_postgres
from app.storage.recall.recall import RecallRows
from app.storage.recall.word_index import POSTGRES_INDEX, WordIndex, word_index_of
from app.storage.said import SaidReads
from app.storage.sessions import SessionRows
from app.storage.sqlite.database import REWRITE_BYTES, SqliteDatabase
from app.storage.sqlite.driver import Synchronous
from app.storage.sqlite.sole import FAIL_OPEN, SoleUse
from app.storage.standing import Proven, StandingRows
from app.storage.tables.servers import PEPPER
from app.storage.trouble import Trouble


class SqlStore(
    ExchangeWrites,
    ImportWrites,
    PartialRows,
    HiddenRows,
    ItemRows,
    KnownReads,
    SaidReads,
    PathReads,
    SessionRows,
    JournalRows,
    StandingRows,
    RecallRows,
    EraseRows,
    AccountRows,
):
    """The contract, kept on any `Database`."""

    def __init__(
        self,
        database: Database,
        words: WordIndex,
        new_id: Callable[[], str],
        closed: Callable[[], None] = lambda: None,
        server: str | None = None,
    ) -> None:
        self._db = database
        self._words = words
        self._new_id = new_id
        self._proven = Proven()
        self._open = set()
        self._gone = Gone()
        self._closed = closed
        self.server = server

    def trouble(self) -> Trouble | None:
        """See the contract."""
        return self._db.trouble()

    async def keep_reserve(self, size: int) -> bool:
        """See the contract."""
        return await self._db.keep_reserve(size)

    async def warm(self) -> None:
        """See the contract."""
        await asyncio.to_thread(self._db.compile, list(_statements()))

    async def close(self) -> None:
        """See the contract. Idempotent."""
        await self._db.close()
        self._closed()


async def open_store(
    url: str,
    *,
    synchronous: Synchronous = "full",
    deadline_seconds: float = 5.0,
    new_id: Callable[[], str],
    sole: bool = False,
    rewrite_bytes: int = REWRITE_BYTES,
) -> Store:
    """An open store; whoever opens it closes it.

    `url` is `sqlite:///path/to/file.db` or `postgresql://user@host:port/name`. `synchronous` is
    SQLite's: "normal" is faster and may lose what was acknowledged in a power cut. `new_id` names
    namespaces. `sole`: the only server of a SQLite file; exchanges that a killed one left open
    count as failed, and SettingsError is raised while another has the file. PostgreSQL may serve
    several, so there it means one of them, with an id of its own. `rewrite_bytes`: a scrub writes
    a SQLite file of at most so many bytes anew. Raises SchemaMismatch when
    the database must be migrated, or has a schema of another program or version; StoreUnavailable
    when it cannot be reached; SettingsError for another url.
    """
    path = sqlite_path(url)
    if path is None and not url.startswith("postgresql://"):
        raise SettingsError(
            f"storage url: expected sqlite:///path or postgresql://..., got {url.split(':')[0]}:"
        )
    await _require_schema(url)
    if path is None:
        server = new_id() if sole else None
        return SqlStore(await open_postgres(url, deadline_seconds), POSTGRES_INDEX, new_id, server=server)
    if not sole:
        database = SqliteDatabase(path, synchronous, deadline_seconds, rewrite_bytes)
        return SqlStore(database, await word_index_of(database), new_id)
    use = SoleUse(path)
    use.take()
    with ExitStack() as on_failure:
        on_failure.callback(use.release)
        database = SqliteDatabase(path, synchronous, deadline_seconds, rewrite_bytes)
        await database.write([Step(FAIL_OPEN, [{}])])
        # A kill between an erase and its scrub left the log with what was erased.
        await database.empty_log()
        words = await word_index_of(database)
        on_failure.pop_all()
    return SqlStore(database, words, new_id, use.release)


def _statements() -> Iterator[Statement]:
    """Every statement of the modules that are loaded."""
    for name, module in list(sys.modules.items()):
        if name.startswith("app.storage."):
            for value in vars(module).values():
                found = value.values() if isinstance(value, dict) else (value,)
                yield from (each for each in found if isinstance(each, Statement))


async def bound_pepper(url: str) -> bytes | None:
    """The fingerprint of the pepper that the database at `url` belongs to; None before its first start.

    Reads only, beside whoever serves it. The schema must be current.
    """

    def read(connection: Connection) -> bytes | None:
        return connection.execute(select(PEPPER.c.fingerprint)).scalar()

    return await with_connection(url, read)


async def _require_schema(url: str) -> None:
    match await schema_state(url):
        case "behind":
            raise SchemaMismatch("the database is not migrated; run `palimpsest migrate`")
        case "unknown":
            raise SchemaMismatch(
                "the database has a schema this version does not know; use the newer version"
            )
        case "current":
            pass
