"""Answers that were coming when a server was killed: what of them was saved is found by the next one."""

from __future__ import annotations

import pytest
from palimpsest.storage.exchange_units import OpenExchange
from palimpsest.storage.exchanges import InterruptedExchange
from palimpsest.storage.migrate import with_connection
from palimpsest.storage.store import Store, open_store
from sqlalchemy import Connection, text

from tests.storage.conftest import new_id
from tests.storage.talk import Talk


async def count_open_as_failed(url: str) -> None:
    """What the start of a SQLite file's only server does."""

    def act(connection: Connection) -> None:
        connection.execute(text("UPDATE exchanges SET state = 'failed' WHERE state = 'open'"))
        connection.commit()

    await with_connection(url, act)


async def second_turn(talk: Talk) -> OpenExchange:
    said = await talk.turns(1)
    return await talk.asks([*said, b"more"], stored=2, model="gpt")


def left_of(opened: OpenExchange, partial: bytes) -> InterruptedExchange:
    return InterruptedExchange(
        namespace=opened.namespace,
        session=opened.session,
        exchange=opened.exchange,
        head=opened.head,
        base=opened.base,
        model="gpt",
        partial=partial,
        depth=3,
        answers=1,
    )


async def save(store: Store, opened: OpenExchange, body: bytes) -> None:
    await store.exchanges.save_partial(opened.namespace, opened.session, opened.exchange, body)


@pytest.mark.spec("S10")
async def test_the_newest_partial_answer_is_found_when_its_exchange_failed(store: Store, url: str) -> None:
    opened = await second_turn(Talk(store))
    await save(store, opened, b"Once")
    await save(store, opened, b"Once upon \x00\xff")
    assert await store.exchanges.interrupted() == []
    await count_open_as_failed(url)
    assert await store.exchanges.interrupted() == [left_of(opened, b"Once upon \x00\xff")]
    # Too late: it is not open any more.
    await save(store, opened, b"later")
    assert await store.exchanges.interrupted() == [left_of(opened, b"Once upon \x00\xff")]


async def test_a_close_erases_the_partial_answer(store: Store, url: str) -> None:
    talk = Talk(store)
    opened = await second_turn(talk)
    await save(store, opened, b"Once")
    await talk.hears(opened, state="failed")
    await save(store, opened, b"Once upon")
    # Nor is one interrupted that had none: a partial answer belongs to its namespace and session.
    opened = await second_turn(Talk(store))
    await store.exchanges.save_partial("other", opened.session, opened.exchange, b"theirs")
    await store.exchanges.save_partial(opened.namespace, "other", opened.exchange, b"theirs")
    await count_open_as_failed(url)
    assert await store.exchanges.interrupted() == []


async def test_the_next_server_of_a_file_finds_it_until_it_is_closed(sqlite_url: str) -> None:
    killed = await open_store(sqlite_url, new_id=new_id)
    opened = await second_turn(Talk(killed))
    await save(killed, opened, b"Once")
    await killed.close()
    for _ in range(2):
        store = await open_store(sqlite_url, new_id=new_id, sole=True)
        assert await store.exchanges.interrupted() == [left_of(opened, b"Once")]
        await store.close()
    store = await open_store(sqlite_url, new_id=new_id, sole=True)
    talk = Talk(store, session=opened.session)
    await talk.hears(opened, talk.answer(opened, b"Once"), state="incomplete", answer_state="incomplete")
    assert await store.exchanges.interrupted() == []
    await store.close()


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_on_postgresql_nobodys_exchange_is_taken_for_a_dead_ones(url: str) -> None:
    first = await open_store(url, new_id=new_id, sole=True)
    await save(first, await second_turn(Talk(first)), b"Once")
    second = await open_store(url, new_id=new_id, sole=True)
    assert await second.exchanges.interrupted() == []
    for store in (first, second):
        await store.close()
