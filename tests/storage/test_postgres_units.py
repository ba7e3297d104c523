"""Units on PostgreSQL as functions of a connection: one round trip, and the same as step by step."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from palimpsest.errors import StoreError
from palimpsest.storage.database import Statement, Step, Unit, p, rows_of, step
from palimpsest.storage.postgres_database import MOST_FUNCTIONS, PostgresDatabase, open_postgres
from palimpsest.storage.postgres_units import MOST_ROWS, function_of
from palimpsest.storage.store import open_store

from tests.kit.postgres import asked, empty_database, executed, server_address
from tests.storage.conftest import new_id
from tests.storage.talk import Talk

_THINGS = sa.table("things", sa.column("name", sa.Text), sa.column("size", sa.BigInteger))
PUT = Statement(sa.insert(_THINGS).values(name=p("name", sa.Text), size=p("size", sa.BigInteger)))
GROW = Statement(
    sa.update(_THINGS)
    .where(_THINGS.c.name == p("name", sa.Text))
    .values(size=_THINGS.c.size + p("size", sa.BigInteger))
)
LOOK = Statement(sa.select(sa.func.count()).select_from(_THINGS))
ALL = Statement(sa.select(_THINGS.c.name, _THINGS.c.size).order_by(_THINGS.c.name))


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with empty_database(server_address()) as url:
        await executed(url, "CREATE TABLE things (name text PRIMARY KEY, size bigint NOT NULL)")
        yield url


@asynccontextmanager
async def opened(url: str, *, functions: bool = True) -> AsyncIterator[PostgresDatabase]:
    database = await open_postgres(url, 30)
    database._has_functions = functions
    try:
        yield database
    finally:
        await database.close()


def units() -> Sequence[Unit]:
    """Units with every condition, that a step needs, and of several rows."""
    a, b = {"name": "a", "size": 1}, {"name": "b", "size": 2**40}
    return [
        [Step(PUT, [a, b])],
        [step(GROW, name="a", size=5), Step(GROW, [b], "touched"), Step(GROW, [a], "untouched")],
        [step(GROW, name="nobody", size=5), Step(GROW, [b], "touched"), Step(GROW, [a], "untouched")],
        [Step(GROW, [{"name": "nobody", "size": 1}], needed=True), Step(GROW, [a])],
        [Step(GROW, [a], needed=True), Step(GROW, [a, b, {"name": "nobody", "size": 1}])],
    ]


async def outcomes(url: str, *, functions: bool) -> tuple[list[list[int]], Any]:
    await executed(url, "TRUNCATE things")
    async with opened(url, functions=functions) as database:
        touched = [list(await database.write(unit)) for unit in units()]
        return touched, await database.read_bounded(rows_of(ALL))


async def test_a_function_does_what_its_steps_do(address: str) -> None:
    by_function, things = await outcomes(address, functions=True)
    by_step, same_things = await outcomes(address, functions=False)
    assert things == same_things == [("a", 1 + 5 + 1 + 1 + 1), ("b", 2**40 * 3)]
    assert by_function[:4] == by_step[:4] == [[2], [1, 1, 0], [0, 0, 1], [0, 0]]
    # Step by step, rows are sent together and not counted.
    assert (by_function[4], by_step[4]) == ([1, 2], [1, 3])


async def test_a_unit_is_one_round_trip(address: str) -> None:
    queries: list[str] = []
    async with opened(address) as database:
        await database.write(units()[0])
        async with database._acquired() as connection:
            connection.add_query_logger(lambda record: queries.append(record.query))
        # The only connection so far.
        await database.write([Step(PUT, [{"name": "c", "size": 3}, {"name": "d", "size": 4}])])
        assert len(queries) == 1
        assert queries[0].startswith("SELECT pg_temp.unit_")


async def test_what_fails_leaves_nothing_and_the_connection_whole(address: str) -> None:
    async with opened(address) as database:
        for bad in ({"name": "a", "size": None}, {"name": "a", "size": 2**70}):
            with pytest.raises(StoreError):
                await database.write([step(PUT, name="b", size=1), Step(PUT, [bad])])
        # A snapshot cannot begin within what the failed statement left.
        assert (await database.read_snapshot(rows_of(LOOK)))[0] == (0,)
        await database.write([step(PUT, name="b", size=1)])
        assert (await database.read_snapshot(rows_of(LOOK)))[0] == (1,)


async def test_a_pooler_may_give_us_another_server_process(address: str) -> None:
    async with opened(address) as database:
        await database.write([step(PUT, name="a", size=1)])
        async with database._acquired() as connection:
            await connection.execute("DISCARD TEMP")
        await database.write([step(PUT, name="b", size=1)])
        await database.write([step(PUT, name="c", size=1)])
        assert (await database.read_bounded(rows_of(LOOK)))[0] == (3,)


@asynccontextmanager
async def without_temporary_objects(address: str) -> AsyncIterator[str]:
    """The address for a user who may make none: another one where the tests' own is a superuser."""
    database = address.rsplit("/", 1)[1]
    await executed(address, f'REVOKE TEMP ON DATABASE "{database}" FROM PUBLIC, CURRENT_USER')
    if (await asked(address, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user")) == [(False,)]:
        yield address
        return
    role = f"plain_{new_id()[:12]}"
    await executed(address, f"CREATE ROLE {role} LOGIN PASSWORD 'plain'; GRANT ALL ON things TO {role}")
    try:
        yield f"postgresql://{role}:plain@{address.split('@')[1]}"
    finally:
        await executed(address, f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_without_the_right_to_temporary_objects_units_go_step_by_step(address: str) -> None:
    async with without_temporary_objects(address) as url, opened(url) as database:
        assert list(await database.write(units()[0])) == [2]
        assert not database._has_functions
        assert list(await database.write(units()[1])) == [1, 1, 0]


def test_many_rows_and_other_statements_go_step_by_step() -> None:
    put = "INSERT INTO things (name) VALUES ($1::VARCHAR)"
    assert function_of(((put, MOST_ROWS, "any", False),)) is not None
    assert function_of(((put, MOST_ROWS + 1, "any", False),)) is None
    assert function_of((("LOCK TABLE things", 1, "any", False),)) is None
    # The type of a value is not known.
    assert function_of((("INSERT INTO things (name) VALUES ($1)", 1, "any", False),)) is None


async def test_a_connection_has_no_more_functions_than_it_may(address: str) -> None:
    async with opened(address) as database:
        names = (f"{number}" for number in itertools.count())
        stored = 0
        for rows in range(1, MOST_FUNCTIONS // 2 + 3):
            for steps in (1, 2):
                unit = [
                    Step(PUT, [{"name": next(names), "size": 1} for _ in range(rows)]) for _ in range(steps)
                ]
                stored += sum(await database.write(unit))
        assert (await database.read_bounded(rows_of(LOOK)))[0] == (stored,)
        async with database._acquired() as connection:
            assert len(connection.state.functions) == MOST_FUNCTIONS


async def test_functions_are_few(postgres_url: str) -> None:
    """Exchanges of one kind have one shape, so that connections are not filled with functions."""
    function_of.cache_clear()
    store = await open_store(postgres_url, new_id=new_id, deadline_seconds=30)
    try:
        await asyncio.gather(*(Talk(store, namespace=new_id()).turns(10) for _ in range(8)))
    finally:
        await store.close()
    assert function_of.cache_info().currsize <= 8
