"""Units of steps: their conditions, what they need, and what a failure leaves, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from palimpsest.errors import StoreError
from palimpsest.storage.database import SqlDatabase, Step, p, rows_of, step
from palimpsest.storage.postgres_database import open_postgres
from palimpsest.storage.sqlite_database import SqliteDatabase
from palimpsest.storage.sqlite_files import driver

from tests.kit.postgres import empty_database, executed, server_address

_THINGS = sa.table("things", sa.column("name", sa.Text), sa.column("size", sa.BigInteger))
PUT = sa.insert(_THINGS).values(name=p("name", sa.Text), size=p("size", sa.BigInteger))
GROW = (
    sa.update(_THINGS)
    .where(_THINGS.c.name == p("name", sa.Text))
    .values(size=_THINGS.c.size + p("size", sa.BigInteger))
)
ALL = sa.select(_THINGS.c.name, _THINGS.c.size).order_by(_THINGS.c.name)
MADE = "CREATE TABLE things (name text PRIMARY KEY, size bigint NOT NULL)"


@pytest.fixture(params=["sqlite", "postgresql"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqlDatabase]:
    if request.param == "sqlite":
        with closing(driver.connect(tmp_path / "things.db")) as connection:
            connection.execute(MADE)
        file = SqliteDatabase(tmp_path / "things.db", "full", 30)
        yield file
        await file.close()
        return
    async with empty_database(server_address()) as url:
        await executed(url, MADE)
        server = await open_postgres(url, 30)
        yield server
        await server.close()


async def test_steps_run_in_order_where_their_conditions_hold(database: SqlDatabase) -> None:
    a, b, nobody = ({"name": name, "size": 1} for name in ("a", "b", "nobody"))
    units = [
        ([Step(PUT, [a, b])], [2]),
        ([Step(GROW, [a]), Step(GROW, [b], "touched"), Step(GROW, [a], "untouched")], [1, 1, 0]),
        ([Step(GROW, [nobody]), Step(GROW, [b], "touched"), Step(GROW, [a], "untouched")], [0, 0, 1]),
        ([Step(GROW, [b]), Step(GROW, [nobody], needed=True), Step(GROW, [a])], [1, 0, 0]),
        ([Step(GROW, [a], needed=True), Step(GROW, [b], "touched")], [1, 1]),
    ]
    for unit, touched in units:
        assert list(await database.write(unit)) == touched
    assert await database.read_snapshot(rows_of(ALL)) == [("a", 4), ("b", 4)]


async def test_what_fails_leaves_nothing_and_the_others_whole(database: SqlDatabase) -> None:
    good = [database.write([step(PUT, name=f"good {number}", size=1)]) for number in range(4)]
    bad = [
        database.write([step(PUT, name="bad", size=1), step(PUT, name="worse", size=size)])
        for size in (None, 2**70)
    ]
    outcomes = await asyncio.gather(*good, *bad, return_exceptions=True)
    assert [isinstance(outcome, StoreError) for outcome in outcomes] == [False] * 4 + [True] * 2
    # On PostgreSQL a snapshot cannot begin within what a failed statement left.
    names = [name for name, _ in await database.read_snapshot(rows_of(ALL))]
    assert names == [f"good {number}" for number in range(4)]
