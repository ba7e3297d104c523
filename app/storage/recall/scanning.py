"""Reading what a session holds from its newest row on, for what no index of words can find.

Must not know what is looked for. Bounded in rows and bytes, and never more than a page of either in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import BigInteger, Integer, Select, select
from sqlalchemy.sql.expression import literal_column

from app.storage.database import Database, Params, Reading, Statement, p, rows_of
from app.storage.recall.contract import RecallRow, Scanned
from app.storage.recall.rows import message_of, messages, summaries, summary_of, with_bodies, within
from app.storage.tables.conversations import COMPACTIONS, MESSAGES, SESSIONS

_MOST_ROWS = 5_000
_MOST_BYTES = 64_000_000
_PAGE_ROWS = 256
_PAGE_BYTES = 4_000_000
# Of a namespace, those that were begun last.
_SESSIONS = 256
_AFTER_ALL = 1 << 62


class Scanning:
    """See the contract."""

    _db: Database

    async def scanned(
        self,
        namespace: str,
        sessions: Sequence[str] | None,
        is_wanted: Callable[[RecallRow], bool],
        limit: int,
    ) -> Scanned:
        """See the contract."""
        scan = _Scan(self._db, is_wanted, limit)
        read = await self._newest(namespace) if sessions is None else sessions
        is_all = sessions is not None or len(read) < _SESSIONS
        for name in read:
            is_all = await scan.reads({"namespace": namespace, "session": name}) and is_all
        return Scanned(scan.found, is_all)

    async def _newest(self, namespace: str) -> list[str]:
        rows = await self._db.far(rows_of(_NEWEST, {"namespace": namespace}))
        return [row[0] for row in rows]


class _Scan:
    """What was found, and how much may still be looked at."""

    def __init__(self, database: Database, is_wanted: Callable[[RecallRow], bool], limit: int) -> None:
        self.found: list[RecallRow] = []
        self._database = database
        self._is_wanted = is_wanted
        self._limit = limit
        self._rows = _MOST_ROWS
        self._bytes = _MOST_BYTES

    async def reads(self, key: Params) -> bool:
        """True when the session was read to its end."""
        before = _AFTER_ALL
        while len(self.found) < self._limit and self._rows > 0 and self._bytes > 0:
            page = await self._database.far(_page({**key, "before": before, "limit": _PAGE_ROWS}))
            if not page:
                return True
            wanted = await asyncio.to_thread(self._wanted, page)
            self.found += wanted[: self._limit - len(self.found)]
            self._rows -= len(page)
            self._bytes -= sum(len(row.body) for row in page)
            before = page[-1].arrival
        return False

    def _wanted(self, page: Sequence[RecallRow]) -> list[RecallRow]:
        return [row for row in page if self._is_wanted(row)]


def _page(asked: Params) -> Reading[list[RecallRow]]:
    """The newest rows before a place; less than a page of them only for their bytes, or at the end."""
    told = [message_of(row) for row in (yield from rows_of(_MESSAGES_BEFORE, asked))]
    told += [summary_of(row) for row in (yield from rows_of(_SUMMARIES_BEFORE, asked))]
    newest = sorted(told, key=lambda fact: -fact.row.arrival)[:_PAGE_ROWS]
    rows: list[RecallRow] = yield from with_bodies(str(asked["namespace"]), within(newest, _PAGE_BYTES))
    return rows


def _before(rows: Select[Any], table: Any) -> Select[Any]:
    here = (table.c.session == p("session"), table.c.namespace == p("namespace"))
    return (
        rows.where(*here, table.c.arrival < p("before", BigInteger))
        .order_by(table.c.arrival.desc())
        .limit(p("limit", Integer))
    )


_MESSAGES_BEFORE = Statement(lambda _: _before(messages(), MESSAGES))
_SUMMARIES_BEFORE = Statement(lambda _: _before(summaries(), COMPACTIONS))
_NEWEST = Statement(
    lambda _: (
        select(SESSIONS.c.id)
        .where(SESSIONS.c.namespace == p("namespace"))
        .order_by(SESSIONS.c.id.desc())
        .limit(literal_column(str(_SESSIONS)))
    )
)
