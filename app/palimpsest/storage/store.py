"""The store: nine repositories on one database, SQLite or PostgreSQL.

Guarantees
----------
* A coroutine that writes returns only when its rows are durable (SQLite: synchronous=FULL;
  PostgreSQL: synchronous_commit=on). All rows of one call are committed together or not at all,
  even when the caller is cancelled meanwhile.
* Every write is an upsert on natural keys: repeating a call, even after an unknown outcome, changes nothing.
* Nothing is visible to a read before it is durable; after a write has returned, every read sees it.
* Every method takes the namespace and touches no other's rows. Rows of other namespaces read as absent.
* Message bodies are bytes and are returned exactly as given.
* When the store cannot do its work in `store_deadline_seconds` it raises StoreUnavailable; the
  caller may conclude nothing about whether the rows were written, and may call again.
* Order is `arrival` (monotonic per session), never time. Times are for people: UTC seconds.

The modules of `history`, `exchanges`, `compactions`, `journal`, `search`, `accounts`, `erasure`
and `namespaces` state the rest. Opening never migrates: it fails when the schema is not current.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial

import sqlalchemy as sa

from palimpsest.errors import StoreUnavailable
from palimpsest.storage.accounts import Accounts
from palimpsest.storage.database import Recent, Repository, SqlDatabase, Statement, Step, StoreFault, p, step
from palimpsest.storage.erasure import GIVE_UP_IMPORTS, Erasure, RecentlyErased
from palimpsest.storage.exchange_log import ExchangeLog
from palimpsest.storage.exchanges import Exchanges
from palimpsest.storage.history import History
from palimpsest.storage.journal import FREE_RESERVED, OPEN_FAILED, Compactions, Journal, KnownSessions
from palimpsest.storage.migrate import open_database
from palimpsest.storage.namespaces import Namespaces
from palimpsest.storage.search import Search
from palimpsest.storage.sql import new_row, replacing
from palimpsest.storage.sqlite_database import SqliteDatabase
from palimpsest.storage.sqlite_files import ServerLock, Synchronous
from palimpsest.storage.tables import HEARTBEAT

# Another server of a shared database may write an import for so long.
LONGEST_IMPORT_SECONDS = 3_600.0


class Store(Repository):
    """See the module docstring for the contract. Callers that need one repository are given only that."""

    def __init__(
        self,
        database: SqlDatabase,
        new_id: Callable[[], str],
        closed: Callable[[], None] = lambda: None,
        server: str | None = None,
        *,
        is_sole: bool = False,
    ) -> None:
        super().__init__(database)
        self._closed = closed
        proven: Recent[str, bool] = Recent()
        erased = RecentlyErased()
        known = KnownSessions(is_sole=is_sole)
        self.history = History(database)
        self.accounts = Accounts(database, new_id, proven, server)
        self.exchanges = Exchanges(database, self.accounts, proven, erased, known, server)
        self.exchange_log = ExchangeLog(database)
        self.compactions = Compactions(database, known)
        self.journal = Journal(database, known, server)
        self.search = Search(database)
        self.erasure = Erasure(database, erased)
        self.namespaces = Namespaces(database)

    def trouble(self) -> StoreFault | None:
        """Why nothing can be recorded, judged by files and disk (some system calls, 20 us).

        Always None for a database server.
        """
        return self._db.trouble()

    async def keep_reserve(self, size: int) -> bool:
        """Reserve `size` bytes of the database's disk for erasing; False when there is no room.

        An erase on a full disk uses the reserve up. Closing the store frees it.
        """
        return await self._db.keep_reserve(size)

    async def warm(self) -> None:
        """Compile all statements on another thread (0.5 s), so that first requests need not."""
        await asyncio.to_thread(list, map(self._db.compiled.__getitem__, list(_statements())))

    async def ping(self) -> None:
        """Do a real write and read; StoreUnavailable when one fails."""
        await self._wrote(_PING, id="ping", beats=1)
        await self._rows(_PINGED, id="ping")

    async def unready(self) -> StoreUnavailable | None:
        """Why a write and a read fail now; None when both have just succeeded."""
        trouble = await asyncio.to_thread(self.trouble)
        if trouble is not None and trouble.reason != "disk_full":
            remedy = f"The database cannot be used: {trouble.remedy}."
            return StoreUnavailable(remedy, reason=trouble.reason)
        try:
            await self.ping()
        except StoreUnavailable as failure:
            return failure
        return None

    async def size_bytes(self) -> int:
        """The size of the database, its log included. StoreUnavailable when it cannot be read."""
        return await self._db.size_bytes()

    async def close(self) -> None:
        """Finish accepted writes and close the database. Idempotent."""
        await self._db.close()
        self._closed()


async def open_store(
    url: str,
    *,
    synchronous: Synchronous = "full",
    deadline_seconds: float = 5.0,
    new_id: Callable[[], str],
    sole: bool = False,
) -> Store:
    """An open store, which the caller closes.

    `url` is `sqlite:///path/to/file.db` or `postgresql://user@host:port/name`. `synchronous` is SQLite's:
    "normal" is faster and may lose acknowledged commits in a power cut. `new_id` makes ids of namespaces.
    `sole`: open as the only server of a SQLite file; exchanges that a killed server left open count as
    failed, what it reserved of quotas is free, and SettingsError is raised while another process serves the
    file. On PostgreSQL, which several servers may share, it gives this server an id. Raises SchemaMismatch
    when the database must be migrated or has an unknown schema, StoreUnavailable when it cannot be reached,
    SettingsError for another url.
    """
    database = await open_database(url, synchronous, deadline_seconds)
    if not isinstance(database, SqliteDatabase):
        await database.write([step(GIVE_UP_IMPORTS, before=time.time() - LONGEST_IMPORT_SECONDS)])
        return Store(database, new_id, server=new_id() if sole else None)
    if not sole:
        return Store(database, new_id)
    use = ServerLock(database.path)
    async with AsyncExitStack() as on_failure:
        on_failure.push_async_callback(database.close)
        use.take()
        on_failure.callback(use.release)
        frees = [Step(OPEN_FAILED, [{}]), Step(FREE_RESERVED, [{}]), step(GIVE_UP_IMPORTS, before=math.inf)]
        await database.write(frees)
        # A kill between an erase and its scrub leaves erased rows in the log.
        await database.empty_log()
        on_failure.pop_all()
    return Store(database, new_id, use.release, is_sole=True)


def _statements() -> Iterator[Statement]:
    """Every statement of the loaded storage modules, and what they are made of."""
    for name, module in list(sys.modules.items()):
        if name.startswith("palimpsest.storage."):
            for value in vars(module).values():
                found = value.values() if isinstance(value, dict) else (value,)
                yield from (
                    each for each in found if isinstance(each, sa.SelectBase | sa.UpdateBase | partial)
                )


_NEW_BEAT = new_row(HEARTBEAT)
_PING = replacing(_NEW_BEAT, beats=HEARTBEAT.c.beats + _NEW_BEAT.excluded.beats)
_PINGED = sa.select(HEARTBEAT.c.beats).where(HEARTBEAT.c.id == p("id"))
