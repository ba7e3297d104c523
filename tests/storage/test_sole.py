"""One server a SQLite file: a second one is refused, and what a killed one left open counts as failed."""

from __future__ import annotations

import pytest
from palimpsest.errors import SettingsError
from palimpsest.storage.store import open_store

from tests.storage.conftest import new_id
from tests.storage.talk import Talk


async def test_a_second_server_of_one_file_is_refused_until_the_first_ends(sqlite_url: str) -> None:
    first = await open_store(sqlite_url, new_id=new_id, sole=True)
    with pytest.raises(SettingsError, match="another process serves"):
        await open_store(sqlite_url, new_id=new_id, sole=True)
    # A command beside it is no server.
    beside = await open_store(sqlite_url, new_id=new_id)
    await beside.ping()
    await beside.close()
    await first.close()
    second = await open_store(sqlite_url, new_id=new_id, sole=True)
    await second.close()


async def test_an_exchange_left_open_has_failed_at_the_next_start(sqlite_url: str) -> None:
    store = await open_store(sqlite_url, new_id=new_id)
    killed = Talk(store)
    await killed.asks([b"q"])
    assert [point.failed for point in await store.history.known("ns", killed.chains([b"q"]), None)] == [False]
    await store.close()
    store = await open_store(sqlite_url, new_id=new_id, sole=True)
    assert [point.failed for point in await store.history.known("ns", killed.chains([b"q"]), None)] == [True]
    await store.close()


async def test_a_finished_exchange_stays_finished(sqlite_url: str) -> None:
    store = await open_store(sqlite_url, new_id=new_id)
    talk = Talk(store)
    await talk.turns(1)
    await store.close()
    store = await open_store(sqlite_url, new_id=new_id, sole=True)
    assert [
        point.failed for point in await store.history.known("ns", talk.chains([b"question 0"]), None)
    ] == [False]
    await store.close()


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_on_postgresql_others_may_be_at_work(url: str) -> None:
    first, second = [await open_store(url, new_id=new_id, sole=True) for _ in range(2)]
    talk = Talk(first)
    await talk.asks([b"q"])
    third = await open_store(url, new_id=new_id, sole=True)
    assert [point.failed for point in await third.history.known("ns", talk.chains([b"q"]), None)] == [False]
    for store in (first, second, third):
        await store.close()
