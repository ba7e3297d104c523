"""Units on SQLite as triggers of the write connection: one call, and the same as step by step."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from palimpsest.errors import Conflict, StoreError
from palimpsest.storage.address import sqlite_path
from palimpsest.storage.database import Statement, Step, Unit, p, rows_of, step
from palimpsest.storage.exchange_units import Variant
from palimpsest.storage.sqlite.commits import MOST_TRIGGERS
from palimpsest.storage.sqlite.database import SqliteDatabase
from palimpsest.storage.sqlite.driver import driver
from palimpsest.storage.sqlite.unit_triggers import MOST_ROWS, trigger_of
from palimpsest.storage.store import Store, open_store

from tests.storage.conftest import new_id
from tests.storage.talk import Talk, digest

_THINGS = sa.table("things", sa.column("name", sa.Text), sa.column("size", sa.BigInteger))
PUT = Statement(sa.insert(_THINGS).values(name=p("name", sa.Text), size=p("size", sa.BigInteger)))
GROW = Statement(
    sa.update(_THINGS)
    .where(_THINGS.c.name == p("name", sa.Text))
    .values(size=_THINGS.c.size + p("size", sa.BigInteger))
)
ALL = Statement(sa.select(_THINGS.c.name, _THINGS.c.size).order_by(_THINGS.c.name))


@asynccontextmanager
async def opened(folder: Path, *, triggers: bool = True) -> AsyncIterator[SqliteDatabase]:
    path = folder / f"{new_id()}.db"
    with closing(driver.connect(path)) as connection:
        connection.execute("CREATE TABLE things (name TEXT PRIMARY KEY, size INTEGER NOT NULL)")
    database = SqliteDatabase(path, "full", 30)
    database._has_triggers = triggers
    try:
        yield database
    finally:
        await database.close()


def units() -> Sequence[Unit]:
    """Units with every condition, that a step needs, and of several rows."""
    a, b, nobody = ({"name": name, "size": 1} for name in ("a", "b", "nobody"))
    return [
        [Step(PUT, [a, b])],
        [Step(GROW, [a]), Step(GROW, [b], "touched")],
        [Step(GROW, [a]), Step(GROW, [b], "untouched")],
        [Step(GROW, [nobody]), Step(GROW, [b], "touched")],
        [Step(GROW, [nobody]), Step(GROW, [b], "untouched"), Step(GROW, [a, b])],
        [Step(GROW, [b]), Step(GROW, [nobody], needed=True), Step(GROW, [a])],
        [Step(GROW, [a], needed=True), Step(GROW, [a, b, nobody])],
        # Written step by step: what was skipped, and many rows, are no questions for a trigger.
        [Step(GROW, [a]), Step(GROW, [b], "untouched"), Step(GROW, [a], "touched")],
        [Step(GROW, [a, nobody]), Step(GROW, [b], "touched")],
    ]


async def _things_after(folder: Path, written: Sequence[Unit], *, triggers: bool) -> Any:
    async with opened(folder, triggers=triggers) as database:
        for unit in written:
            await database.write(unit, counted=False)
        return await database.read_bounded(rows_of(ALL))


async def test_a_trigger_does_what_its_steps_do(tmp_path: Path) -> None:
    for number in range(1, len(units()) + 1):
        written = units()[:number]
        by_trigger = await _things_after(tmp_path, written, triggers=True)
        assert by_trigger == await _things_after(tmp_path, written, triggers=False), number
    assert by_trigger == [("a", 9), ("b", 7)]


async def test_a_unit_is_one_call(tmp_path: Path) -> None:
    async with opened(tmp_path) as database:
        commits = database._writer._commits
        assert commits is not None
        statements: list[str] = []
        commits._connection.set_trace_callback(statements.append)
        await database.write([Step(PUT, [{"name": "a", "size": 1}, {"name": "b", "size": 2}])], counted=False)
        commits._connection.set_trace_callback(None)
    # What a trigger does is reported as the statement that called it.
    called = [text for text in dict.fromkeys(statements) if not text.startswith("CREATE TEMP")]
    assert [text.split()[0] for text in called] == ["BEGIN", "INSERT", "COMMIT"]
    assert called[1].startswith("INSERT INTO unit_")


async def test_what_fails_leaves_nothing_and_the_others_whole(tmp_path: Path) -> None:
    async with opened(tmp_path) as database:
        good = [
            database.write([step(PUT, name=f"good {number}", size=1)], counted=False) for number in range(4)
        ]
        bad = [
            database.write([step(PUT, name="bad", size=1), step(PUT, name="worse", size=size)], counted=False)
            for size in (None, 2**70)
        ]
        outcomes = await asyncio.gather(*good, *bad, return_exceptions=True)
        assert [isinstance(outcome, StoreError) for outcome in outcomes] == [False] * 4 + [True] * 2
        names = [name for name, _ in await database.read_bounded(rows_of(ALL))]
        assert names == [f"good {number}" for number in range(4)]


def test_what_a_trigger_cannot_do_goes_step_by_step() -> None:
    put, grow = "INSERT INTO things (name) VALUES (?)", "UPDATE things SET size=1 WHERE name = ?"
    plain = (grow, 1, "any", False)
    assert trigger_of(((put, MOST_ROWS, "any", False),)) is not None
    assert trigger_of(((put, MOST_ROWS + 1, "any", False),)) is None
    assert trigger_of((plain, (grow, 1, "touched", False))) is not None
    assert trigger_of((plain, (put, 1, "touched", False))) is None
    assert trigger_of((plain, (grow, 1, "touched", False), (grow, 1, "untouched", False))) is None
    assert trigger_of(((grow, 2, "any", False), (grow, 1, "touched", False))) is None
    assert trigger_of(((grow, 2, "any", True), plain)) is None
    assert trigger_of((("DELETE FROM things", 1, "any", False),)) is None


async def test_a_connection_has_no_more_triggers_than_it_may(tmp_path: Path) -> None:
    async with opened(tmp_path) as database:
        names = (f"{number}" for number in itertools.count())
        stored = 0
        for rows, steps in itertools.product(range(1, MOST_ROWS // 3), range(1, 13)):
            if rows * steps > MOST_ROWS:
                continue
            unit = [Step(PUT, [{"name": next(names), "size": 1} for _ in range(rows)]) for _ in range(steps)]
            await database.write(unit, counted=False)
            stored += rows * steps
        await database.write([step(PUT, name="again", size=1)], counted=False)
        assert len(await database.read_bounded(rows_of(ALL))) == stored + 1
        commits = database._writer._commits
        assert commits is not None
        assert len(commits._triggers) <= MOST_TRIGGERS


def _tables_of(url: str) -> dict[str, list[str]]:
    """All rows but their times, which the store takes from its callers, as texts."""
    path = sqlite_path(url)
    assert path is not None
    with closing(driver.connect(path)) as connection:
        names = [
            name
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'recall_words%'"
            )
        ]
        return {name: sorted(map(repr, connection.execute(f"SELECT * FROM {name}"))) for name in names}


async def _talks(url: str, *, triggers: bool) -> dict[str, list[str]]:
    store = await open_store(url, new_id=new_id, deadline_seconds=30)
    database = store.exchanges._db
    assert isinstance(database, SqliteDatabase)
    database._has_triggers = triggers
    await _spoken(store)
    await store.close()
    return _tables_of(url)


async def _spoken(store: Store) -> None:
    """Turns, one with another spelling, a refused request, its retry, and an answer that was cut."""
    for number in range(3):
        talk = Talk(store, session=f"session {number}")
        names = (f"{number} {turn}" for turn in itertools.count())
        said: list[bytes] = []
        for turn in range(4):
            more: dict[str, Any] = {"answers": turn, "preamble": [b"rules"], "continues": turn > 0}
            if turn == 2:
                more["variants"] = [Variant(talk.chains(said)[-1], b"spelled anew", digest(b"anew"))]
            asked = [*said, b"question %d" % turn]
            if turn == 3:
                refused = await talk.asks(asked, stored=len(said), exchange=next(names), **more)
                await talk.hears(refused, state="rejected", withdrawn=talk.chains(asked)[-1:], status=400)
            opened = await talk.asks(asked, stored=len(said), exchange=next(names), **more)
            answer = talk.answer(opened, b"answer %d" % turn, answers=turn + 1)
            is_cut = turn == 3
            await talk.hears(
                opened,
                answer,
                state="incomplete" if is_cut else "done",
                answer_state="incomplete" if is_cut else "live",
                response_id=f"response {number} {turn}",
            )
            said = [*asked, answer.body]


async def test_conversations_are_stored_as_step_by_step(sqlite_url: str, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    path = sqlite_path(sqlite_url)
    assert path is not None
    other.write_bytes(path.read_bytes())
    assert await _talks(sqlite_url, triggers=True) == await _talks(f"sqlite:///{other}", triggers=False)


async def test_triggers_are_few(sqlite_url: str) -> None:
    """Exchanges of one kind have one shape, so that the connection is not filled with triggers."""
    trigger_of.cache_clear()
    store = await open_store(sqlite_url, new_id=new_id, deadline_seconds=30)
    try:
        await asyncio.gather(*(Talk(store, namespace=new_id()).turns(10) for _ in range(8)))
    finally:
        await store.close()
    assert 0 < trigger_of.cache_info().currsize <= 8


async def test_a_name_that_is_taken_refuses_one_unit(sqlite_url: str) -> None:
    store = await open_store(sqlite_url, new_id=new_id, deadline_seconds=30)
    try:
        first, second, third = (Talk(store) for _ in range(3))
        await first.asks([b"q"], external_id="mine")
        outcomes = await asyncio.gather(
            second.asks([b"q"], external_id="mine"), third.asks([b"q"]), return_exceptions=True
        )
        assert [isinstance(outcome, Conflict) for outcome in outcomes] == [True, False]
    finally:
        await store.close()
