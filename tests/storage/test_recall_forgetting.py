"""What was forgotten is found by no word, and its words are in no file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from palimpsest.storage.address import sqlite_path
from palimpsest.storage.migrate import with_connection
from palimpsest.storage.store import Store, open_store
from sqlalchemy import Connection, text

from tests.storage.conftest import new_id
from tests.storage.recalling import catches_up, finds
from tests.storage.talk import Talk

CANARY = b"canarybird"


async def kept_and_lost(store: Store) -> tuple[Talk, Talk]:
    """Two sessions, in turns, of which the second holds a word that is in no body."""
    kept, lost = Talk(store), Talk(store)
    for talk, words in ((kept, ["plain"]), (lost, [CANARY.decode()])) * 2:
        said = await talk.heads()
        await talk.asks([b"x %d" % len(said)] if said else [b"y"])
        await catches_up(talk, lambda row, words=words: [*words, "shared"])  # type: ignore[misc]
    return kept, lost


def files_of(path: Path) -> Iterator[bytes]:
    return (file.read_bytes() for file in path.parent.iterdir() if file.name.startswith(path.name))


def rows(connection: Connection) -> tuple[int, int]:
    """Entries, and sessions that have some."""
    words = connection.execute(text("SELECT count(*) FROM recall_words")).scalar_one()
    marks = connection.execute(text("SELECT count(*) FROM recall_marks")).scalar_one()
    return words, marks


async def test_what_is_forgotten_is_not_found_and_the_rest_is(store: Store, url: str) -> None:
    kept, lost = await kept_and_lost(store)
    twin = Talk(store, namespace="other", session=lost.session)
    await twin.asks([b"z"])
    await catches_up(twin, lambda _: [CANARY.decode()])
    assert len(await finds(lost, "shared", everywhere=True)) == 4
    await store.search.forget("ns", lost.session)
    for _ in range(2):
        assert await finds(lost, CANARY.decode(), "shared") == []
        assert await finds(lost, CANARY.decode(), everywhere=True) == []
        assert len(await finds(kept, "shared")) == 2
        assert await finds(twin, CANARY.decode()) == [b"z"]
        await store.search.scrub()
    assert await with_connection(url, rows) == (3, 2)
    await store.search.forget("ns", lost.session)
    await store.search.forget("ns", "nobody")


async def test_a_forgotten_session_may_be_indexed_again(store: Store) -> None:
    _, lost = await kept_and_lost(store)
    await store.search.forget("ns", lost.session)
    assert len(await catches_up(lost, lambda _: ["again"])) == 2
    assert len(await finds(lost, "again")) == 2
    await store.search.scrub()
    assert len(await finds(lost, "again")) == 2
    assert await finds(lost, CANARY.decode()) == []


async def test_many_entries_are_removed_in_slices(store: Store, url: str) -> None:
    talk, other = Talk(store), Talk(store)
    await talk.asks([b"row %d" % i for i in range(1_200)])
    await other.asks([b"other"])
    for each in (talk, other):
        await catches_up(each, limit=500)
    await store.search.forget("ns", talk.session)
    await store.search.scrub()
    assert await with_connection(url, rows) == (1, 1)
    assert await finds(other, "other") == [b"other"]


@pytest.mark.parametrize("is_scrubbed", [True, False], ids=["scrubbed", "control"])
async def test_no_word_of_it_is_left_in_sqlites_files(sqlite_url: str, *, is_scrubbed: bool) -> None:
    path = sqlite_path(sqlite_url)
    assert path is not None
    store = await open_store(sqlite_url, new_id=new_id)
    kept, lost = await kept_and_lost(store)
    await store.search.forget("ns", lost.session)
    if is_scrubbed:
        await store.search.scrub()
    await store.close()
    # Closing has emptied the write-ahead log.
    assert any(CANARY in file for file in files_of(path)) is not is_scrubbed
    assert any(b"plain" in file for file in files_of(path))
    del kept


async def test_a_scrub_that_was_broken_off_goes_on_after_a_restart(sqlite_url: str) -> None:
    path = sqlite_path(sqlite_url)
    assert path is not None
    store = await open_store(sqlite_url, new_id=new_id)
    _, lost = await kept_and_lost(store)
    await store.search.forget("ns", lost.session)
    await store.close()
    store = await open_store(sqlite_url, new_id=new_id)
    assert await store.search.needs_scrub()
    await store.search.scrub()
    assert not await store.search.needs_scrub()
    await store.close()
    assert not any(CANARY in file for file in files_of(path))
