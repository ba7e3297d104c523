"""How many bytes the bodies of each namespace take, each body once: a total that the database itself keeps.

Triggers of `bodies` count what is stored and what is deleted, in the same transaction, whoever does it. On
SQLite a namespace has one row. On PostgreSQL each change is a row of its own: at a common row a namespace's
writers would wait for each other's commits. `add_up` makes few of many rows and changes no sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

from palimpsest.storage.database import SqlDatabase, Statement, rows_of, step
from palimpsest.storage.sql import among, of_namespace, rows_among, sized, total_of
from palimpsest.storage.tables import BODY_BYTES

# A copied database has a row for each body until they are added up for the first time.
_SECONDS = 600.0


class BodyBytes:
    """See the module docstring; `palimpsest.storage.store` states the guarantees of every method."""

    def __init__(self, database: SqlDatabase) -> None:
        self._db = database

    async def of(self, namespace: str) -> int:
        """The namespace's total; reads few rows inline."""
        return int((await self._db.read_bounded(rows_of(_OF, namespace=namespace)))[0][0])

    async def of_each(self, namespaces: Sequence[str]) -> dict[str, int]:
        """The totals of `namespaces`; those that never stored anything are left out."""
        rows = await self._db.read_snapshot(rows_among(_OF_EACH, "namespace", namespaces))
        return {namespace: int(size) for namespace, size in rows}

    async def all(self) -> Mapping[str, int]:
        """The totals of all namespaces; those that never stored anything are left out."""
        rows = await self._db.read_snapshot(rows_of(_ALL), seconds=_SECONDS)
        return {namespace: int(size) for namespace, size in rows}

    async def add_up(self) -> None:
        """Replace the rows of each namespace by their sum. No writer waits for it."""
        await self._db.write([step(_ADD_UP)], seconds=_SECONDS)


_ADD_UP_POSTGRESQL = """
WITH chosen AS (
    SELECT id FROM body_bytes
    WHERE namespace IN (
        SELECT namespace FROM body_bytes GROUP BY namespace HAVING count(*) > 1 OR sum(bytes) = 0
    )
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM body_bytes USING chosen WHERE body_bytes.id = chosen.id RETURNING namespace, bytes
)
INSERT INTO body_bytes (namespace, bytes)
SELECT namespace, sum(bytes) FROM gone GROUP BY namespace HAVING sum(bytes) <> 0"""


class AddUp(sa.Executable, sa.ClauseElement):
    """Makes one row of a namespace's rows, and none where their sum is 0.

    Rows that another server is adding up are left to it.
    """

    inherit_cache = False


@compiles(AddUp)
def _nothing_to_add(element: AddUp, compiler: SQLCompiler, **_: Any) -> str:
    del element, compiler
    return "DELETE FROM body_bytes WHERE bytes = 0"


@compiles(AddUp, "postgresql")
def _add_up(element: AddUp, compiler: SQLCompiler, **_: Any) -> str:
    del element, compiler
    return _ADD_UP_POSTGRESQL


_SUM = total_of(BODY_BYTES.c.bytes)
_EACH = sa.select(BODY_BYTES.c.namespace, _SUM).group_by(BODY_BYTES.c.namespace)
_OF = Statement(sa.select(_SUM).where(of_namespace(BODY_BYTES)))
_OF_EACH = sized(lambda size: _EACH.where(among(BODY_BYTES.c.namespace, "namespace", size)))
_ALL = Statement(_EACH)
_ADD_UP = Statement(AddUp())
