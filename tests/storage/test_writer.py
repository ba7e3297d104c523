"""The SQLite writer: commits in groups, keeps units apart, never waits for ever, stops at a bad disk."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import uuid
from collections.abc import Coroutine
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from palimpsest.errors import Conflict, StoreError, StoreUnavailable
from palimpsest.storage.address import sqlite_path
from palimpsest.storage.database import Step
from palimpsest.storage.sql import new_row
from palimpsest.storage.sqlite_database import SqliteDatabase
from palimpsest.storage.sqlite_files import driver
from palimpsest.storage.store import Store, open_store
from palimpsest.storage.tables import HEARTBEAT

from tests.storage.conftest import new_id
from tests.storage.talk import Talk, talked

ROOT = Path(__file__).resolve().parents[2]


def _path(url: str) -> Path:
    path = sqlite_path(url)
    assert path is not None
    return path


async def test_callers_who_wait_together_are_committed_together(sqlite_url: str) -> None:
    store = await open_store(sqlite_url, new_id=new_id, deadline_seconds=30)
    blocker = driver.connect(_path(sqlite_url), isolation_level=None)
    watcher = driver.connect(_path(sqlite_url), isolation_level=None)
    before = watcher.execute("PRAGMA data_version").fetchone()
    # While another process holds the write lock everybody waits; then there are one or two commits.
    blocker.execute("BEGIN IMMEDIATE")
    talks = [Talk(store) for _ in range(50)]
    tasks = [asyncio.create_task(talk.asks([b"q"])) for talk in talks]
    await asyncio.sleep(0)
    blocker.execute("ROLLBACK")
    versions = {before}
    while not all(task.done() for task in tasks):
        versions.add(watcher.execute("PRAGMA data_version").fetchone())
        await asyncio.sleep(0)
    versions.add(watcher.execute("PRAGMA data_version").fetchone())
    await asyncio.gather(*tasks)
    assert len(versions) - 1 <= 2
    assert len(await store.history.sessions("ns", 100, None)) == 50
    blocker.close()
    watcher.close()
    await store.close()


async def test_a_failing_unit_does_not_fail_its_neighbours(sqlite_url: str) -> None:
    store = await open_store(sqlite_url, new_id=new_id, deadline_seconds=30)
    await Talk(store, session="owner").asks([b"q"], external_id="taken")
    results = await asyncio.gather(
        *(
            Talk(store, session=f"s{i}").asks([b"q"], external_id="taken" if i % 5 == 0 else None)
            for i in range(40)
        ),
        return_exceptions=True,
    )
    assert [isinstance(result, Conflict) for result in results] == [i % 5 == 0 for i in range(40)]
    assert len(await store.history.sessions("ns", 100, None)) == 1 + 32
    await store.close()


async def test_a_unit_that_the_database_refuses_leaves_nothing(store: Store) -> None:
    talk = Talk(store)
    opened = await talk.asks([b"q"])
    answer = talk.answer(opened, b"a")
    with pytest.raises(StoreError):
        # A number that no column holds.
        await talk.hears(opened, replace(answer, tokens=2**70))
    assert await talk.heads() == [opened.head]
    assert await store.history.message("ns", answer.chain) is None


async def test_waiting_for_the_database_is_bounded(sqlite_url: str) -> None:
    store = await open_store(sqlite_url, new_id=new_id, deadline_seconds=0.5)
    blocker = driver.connect(_path(sqlite_url), isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable):
        await store.ping()
    # Reading goes on meanwhile.
    assert await store.accounts.keys() == []
    blocker.execute("ROLLBACK")
    blocker.close()
    await store.close()


async def test_a_closed_store_says_so(store: Store) -> None:
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.ping()
    with pytest.raises(StoreUnavailable):
        await store.accounts.learned_windows(0.0)
    with pytest.raises(StoreUnavailable):
        await store.accounts.keys()


async def test_closing_empties_the_log_and_deleted_bytes_are_gone(sqlite_url: str) -> None:
    store = await open_store(sqlite_url, new_id=new_id)
    talk, said = await talked(store, 3)
    await store.history.add_pin("ns", talk.session, b"canary-canary-canary-canary-cana", 1.0)
    await store.history.remove_pin("ns", talk.session, b"canary-canary-canary-canary-cana")
    await store.close()
    path = _path(sqlite_url)
    wal = path.with_name(path.name + "-wal")
    assert not wal.exists() or wal.stat().st_size == 0
    assert b"canary-canary" not in path.read_bytes()
    assert said[0] in path.read_bytes()


async def _write_until_the_disk_fails(url: str) -> None:
    """Run in a process of its own, whose files may not grow beyond a limit for a while."""
    store = await open_store(url, new_id=new_id)
    path = _path(url)
    talk = Talk(store, session="s")
    said = [b"first"]
    await talk.asks(said)
    size = path.with_name(path.name + "-wal").stat().st_size
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20_000, hard))
    refused = 0
    for limited in (True, True, False, False):
        if not limited:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        try:
            await talk.asks([*said, b"large " * 20_000], stored=1)
        except StoreUnavailable:
            refused += 1
    assert await talk.said(said) == said
    # Not closed: what the log holds must be recovered by the next process.
    sys.stdout.write(str(refused))
    sys.stdout.flush()
    os._exit(0)


async def test_after_a_disk_error_nothing_is_called_durable(sqlite_url: str) -> None:
    code = (
        "import asyncio; from tests.storage.test_writer import _write_until_the_disk_fails as run;"
        f"asyncio.run(run({sqlite_url!r}))"
    )
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("4", 0), done.stderr
    store = await open_store(sqlite_url, new_id=new_id)
    talk = Talk(store, session="s")
    assert await talk.said([b"first"]) == [b"first"]
    await talk.asks([b"first", b"second"], stored=1)
    assert await talk.said([b"first", b"second"]) == [b"first", b"second"]
    await store.close()


def _beats(times: int) -> list[Step]:
    statement = new_row(HEARTBEAT).on_conflict_do_nothing()
    return [Step(statement, [{"id": str(uuid.uuid4()), "beats": times}])]


def _ends_at_once(work: Coroutine[Any, Any, object]) -> bool:
    """True when the work is done without waiting for anything."""
    try:
        work.send(None)
    except StopIteration:
        return True
    work.close()
    return False


async def _proves_quick(database: SqliteDatabase) -> bool:
    """True once a unit has been committed at once: after a hiccup the disk must prove itself again.

    With `normal` no commit waits for the disk, so that a busy one cannot fail for ever.
    """
    for _ in range(500):
        if _ends_at_once(database.write(_beats(1), pace="alone")):
            return True
        await database.write(_beats(1))
    return False


async def test_who_is_alone_is_not_sent_to_another_thread(sqlite_url: str) -> None:
    database = SqliteDatabase(_path(sqlite_url), "normal", 30)
    try:
        assert await _proves_quick(database)
        assert not _ends_at_once(database.write(_beats(2)))
        # The one before is on its way to the thread: nobody is alone, and the order is kept.
        assert not _ends_at_once(database.write(_beats(2), pace="alone"))
    finally:
        await database.close()
    with closing(driver.connect(_path(sqlite_url))) as reader:
        # Callers that went away cancel nothing.
        assert reader.execute("SELECT count(*) FROM heartbeat WHERE beats = 2").fetchone() == (2,)


async def test_a_database_that_another_process_has_locked_holds_up_no_loop(sqlite_url: str) -> None:
    database = SqliteDatabase(_path(sqlite_url), "normal", 30)
    assert await _proves_quick(database)
    blocker = driver.connect(_path(sqlite_url), isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    writing = asyncio.create_task(database.write(_beats(3), pace="alone"))
    # Were the loop held up, the lock would never be given back and the deadline would pass.
    for _ in range(20):
        await asyncio.sleep(0.001)
        assert not writing.done()
    blocker.execute("ROLLBACK")
    blocker.close()
    assert await writing == (1,)
    await database.close()


async def test_a_disk_that_was_slow_is_waited_for_elsewhere(sqlite_url: str) -> None:
    database = SqliteDatabase(_path(sqlite_url), "full", 30)
    # Nothing is known of this disk yet.
    assert not _ends_at_once(database.write(_beats(1), pace="alone"))
    await database.close()


async def test_a_request_is_stored_although_its_caller_leaves(store: Store) -> None:
    talk = Talk(store)
    asking = asyncio.create_task(talk.asks([b"q"]))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    # What comes after it is ordered after it.
    other = Talk(store)
    await other.turns(1)
    await _stored(store, talk)


async def _stored(store: Store, talk: Talk) -> None:
    """The session is there; the write was not this task's to wait for."""
    for _ in range(10_000):
        if await store.history.session("ns", talk.session) is not None:
            return
        await asyncio.sleep(0.001)
    raise AssertionError("the request was lost")
