"""What only PostgreSQL does: connections that break, two processes' worth of stores on one database."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from palimpsest.errors import StoreUnavailable
from palimpsest.storage.migrate import migrate
from palimpsest.storage.store import open_store

from tests.storage.conftest import new_id
from tests.storage.talk import Talk

TERMINATE = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


@pytest.fixture(params=["postgresql"])
def url(postgres_url: str) -> str:
    return postgres_url


async def test_a_broken_connection_is_unavailable_and_then_replaced(url: str) -> None:
    store = await open_store(url, new_id=new_id)
    await store.ping()
    connection = await asyncpg.connect(url)
    await connection.execute(TERMINATE)
    await connection.close()
    for _ in range(20):
        try:
            await store.ping()
            break
        except StoreUnavailable:
            continue
    await store.ping()
    await store.close()


async def test_a_database_that_takes_no_connections_is_unavailable(empty_postgres_url: str) -> None:
    await migrate(empty_postgres_url)
    store = await open_store(empty_postgres_url, new_id=new_id)
    server, _, name = empty_postgres_url.rpartition("/")
    connection = await asyncpg.connect(f"{server}/postgres")
    for allows in ("false", "true"):
        await connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS {allows}')
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name
        )
        found = [type(await store.unready()) for _ in range(20)]
        assert found[-1] is (StoreUnavailable if allows == "false" else type(None))
        assert set(found) <= {StoreUnavailable, type(None)}
    await connection.close()
    await store.close()


async def test_a_lock_held_by_another_does_not_hold_us_for_ever(url: str) -> None:
    store = await open_store(url, new_id=new_id, deadline_seconds=1)
    talk = Talk(store, namespace=new_id())
    said = await talk.turns(1)
    connection = await asyncpg.connect(url)
    async with connection.transaction():
        await connection.execute("SELECT * FROM sessions WHERE id = $1 FOR UPDATE", talk.session)
        with pytest.raises(StoreUnavailable):
            await talk.asks([*said, b"q"], stored=2)
        # Other sessions are not held up.
        await Talk(store, namespace=talk.namespace).turns(1)
    await connection.close()
    await talk.asks([*said, b"q"], stored=2)
    await store.close()


@pytest.mark.spec("P6")
async def test_what_somebody_may_still_read_is_not_called_vacuumed(url: str) -> None:
    store = await open_store(url, new_id=new_id)
    talk = Talk(store, namespace=new_id())
    await talk.turns(2)
    reader = await asyncpg.connect(url)
    async with reader.transaction(isolation="repeatable_read", readonly=True):
        await reader.fetch("SELECT * FROM messages")
        await store.erasure.session(talk.namespace, talk.session, [], 1.0)
        assert await store.erasure.scrub() == "pending"
        assert await reader.fetchval("SELECT count(*) FROM messages WHERE session = $1", talk.session)
    assert await store.erasure.scrub() == "vacuumed"
    await reader.close()
    await store.close()


@pytest.mark.spec("P6")
async def test_those_who_write_all_the_time_hold_no_scrub_up(url: str) -> None:
    store = await open_store(url, new_id=new_id)
    namespace, ended = new_id(), asyncio.Event()

    async def writes() -> int:
        talk, said = Talk(store, namespace=namespace), list[bytes]()
        while not ended.is_set():
            opened = await talk.asks([*said, b"q"], stored=len(said))
            await talk.hears(opened, talk.answer(opened, b"a"))
            said += [b"q", b"a"]
        return len(said)

    async with asyncio.TaskGroup() as group:
        writing = [group.create_task(writes()) for _ in range(4)]
        talk = Talk(store, namespace=namespace)
        await talk.turns(2)
        await store.erasure.session(namespace, talk.session, [], 1.0)
        assert await store.erasure.scrub() == "vacuumed"
        ended.set()
    assert all(task.result() for task in writing)
    await store.close()
