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
    killed, finished = Talk(store), Talk(store)
    await killed.asks([b"q"])
    await finished.turns(1)
    asked = killed.chains([b"q"]), finished.chains([b"question 0"])
    for has_failed in (False, True):
        found = [await store.history.known("ns", chains, None) for chains in asked]
        assert [[point.failed for point in points] for points in found] == [[has_failed], [False]]
        await store.close()
        store = await open_store(sqlite_url, new_id=new_id, sole=True)
    await store.close()
