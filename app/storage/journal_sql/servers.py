"""Which servers share the database, and what one of them leaves that is gone.

Must not know when a server counts as gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, CompoundSelect, Text, delete, exists, select, union, update
from sqlalchemy.dialects.postgresql import Insert
from sqlalchemy.sql.expression import literal_column

from app.storage.database import Database, InsertInto, Statement, Step, p, rows_of
from app.storage.tables.conversations import EXCHANGES
from app.storage.tables.servers import LEASES, SERVERS


class ServerRows:
    """See the contract in `app/storage/journal.py`."""

    _db: Database
    server: str | None

    async def beat(self) -> None:
        """See the contract."""
        await self._db.write([Step(_BEAT, [{"id": self.server}])])

    async def leave(self) -> None:
        """See the contract."""
        await self._db.write([Step(_LEAVE, [{"id": self.server}])])

    async def beats(self) -> Mapping[str, int]:
        """See the contract."""
        rows = await self._db.near(rows_of(_BEATS, {"id": self.server}))
        return {row[0]: row[1] for row in rows}

    async def give_up(self, server: str, beats: int) -> bool:
        """See the contract."""
        key = {"id": server, "beats": beats}
        steps = [Step(_GONE, [key]), Step(FAIL_OPEN_OF, [key]), Step(_FREE, [key])]
        return any(await self._db.write(steps))


def _beat(insert: InsertInto) -> Insert:
    new = insert(SERVERS).values(id=p("id"), beats=literal_column("1"))
    return new.on_conflict_do_update(
        index_elements=[SERVERS.c.id], set_={"beats": SERVERS.c.beats + literal_column("1")}
    )


def _beats(_: InsertInto) -> CompoundSelect[Any]:
    """A handful of rows: the servers, and the exchanges that are open."""
    there = select(SERVERS.c.id, SERVERS.c.beats).where(SERVERS.c.id != p("id"))
    working = select(EXCHANGES.c.server, literal_column("0")).where(
        EXCHANGES.c.state == literal_column("'open'"),
        EXCHANGES.c.server != p("id"),
        EXCHANGES.c.server.not_in(select(SERVERS.c.id)),
    )
    return union(there, working)


def _is_there() -> ColumnElement[bool]:
    return exists(select(1).where(SERVERS.c.id == p("id")))


_BEAT = Statement(_beat)
_LEAVE = Statement(lambda _: delete(SERVERS).where(SERVERS.c.id == p("id")))
_BEATS = Statement(_beats)
_GONE = Statement(lambda _: delete(SERVERS).where(SERVERS.c.id == p("id"), SERVERS.c.beats == p("beats")))
# Both only to who is gone by then: whoever has beaten since the look is there.
FAIL_OPEN_OF = Statement(
    lambda _: (
        update(EXCHANGES)
        .where(
            EXCHANGES.c.state == literal_column("'open'"), EXCHANGES.c.server == p("id", Text), ~_is_there()
        )
        .values(state=literal_column("'failed'"))
    )
)
_FREE = Statement(lambda _: delete(LEASES).where(LEASES.c.holder == p("id"), ~_is_there()))
