"""Erasing and the daily log: of a session's entries none stays, of all others every byte (P6, A30)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from palimpsest.errors import StoreUnavailable
from palimpsest.proxy.access import UnprovenNamespaces
from palimpsest.proxy.daily_log import DailyLog
from palimpsest.proxy.erasing import Eraser, Forgetting, Scrubber
from palimpsest.proxy.jobs import Again, Jobs
from palimpsest.proxy.server_secrets import Pepper
from palimpsest.proxy.sessions.in_flight import InFlight
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.proxy.sessions.tombstones import Tombstones
from palimpsest.storage.erasure import RecentlyErased
from palimpsest.storage.migrate import migrate
from palimpsest.storage.sqlite_files import driver
from palimpsest.storage.store import open_store

from tests.core.runtime.records import NEW_YEAR, compaction
from tests.kit.model import ModelServer
from tests.kit.proxy import proxied
from tests.kit.remains import remains
from tests.storage.talk import Talk

DAY = 86_400
WORD = "Kanarienvogel77"


async def written(
    log: DailyLog, session: str, text: str, at: float = NEW_YEAR, namespace: str = "ns"
) -> None:
    await log.write(namespace, session, compaction(summary=text), at)


def texts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


async def test_a_sessions_entries_go_from_every_day_and_no_others(tmp_path: Path) -> None:
    log = DailyLog(tmp_path)
    await written(log, "kept", "What stays.\r\nAnd a carriage return.")
    await written(log, "kept", "The other day.", NEW_YEAR + DAY)
    await written(log, "s", "Somebody else's.", namespace="other")
    before = texts(tmp_path)
    for at in (NEW_YEAR, NEW_YEAR + DAY, NEW_YEAR + 2 * DAY):
        await written(log, "s", WORD, at)
        await written(log, "s", WORD, at + 1)
    assert len(remains(tmp_path, WORD)) == 3
    assert await log.erased("ns", "s") == 6
    assert texts(tmp_path) == before
    assert await log.erased("ns", "s") == 0
    assert await log.erased("ns") == 2
    assert list(texts(tmp_path)) == ["2026-01-01-other.md"]


async def test_no_summary_passes_its_words_off_as_anothers(tmp_path: Path) -> None:
    """A line that looks like the head of an entry, wherever a summary has it."""
    log = DailyLog(tmp_path)
    head = "## 00:00:00 UTC, session kept"
    await written(log, "s", f"{head}\n\n{WORD}\n{head}\r{head}\n{WORD}")
    await written(log, "kept", f"Before.\n## 01:02:03 UTC, session s\nNot {WORD.lower()}'s: it stays.")
    assert await log.erased("ns", "s") == 1
    (text,) = texts(tmp_path).values()
    assert WORD.encode() not in text
    assert b"it stays." in text
    assert text.startswith(b"## ")


async def test_servers_that_share_a_folder_lose_no_entry(tmp_path: Path) -> None:
    """One erases again and again while the other writes."""
    one, other = DailyLog(tmp_path), DailyLog(tmp_path)

    async def erases() -> None:
        for _ in range(30):
            await written(one, "s", WORD)
            await one.erased("ns", "s")

    async def writes() -> None:
        for number in range(60):
            await written(other, "kept", f"Entry {number}.")

    await asyncio.gather(erases(), writes())
    (text,) = texts(tmp_path).values()
    assert [f"Entry {number}.".encode() in text for number in range(60)] == [True] * 60
    assert WORD.encode() not in text


async def test_nothing_is_erased_where_the_log_cannot_be(tmp_path: Path) -> None:
    """Who asks again, once the log can be changed, has all of it erased."""
    folder = tmp_path / "log"
    folder.mkdir()
    settings = {"compaction.daily_log_folder": str(folder)}
    async with proxied(ModelServer(), tmp_path, settings) as proxy:
        chat = proxy.chat(session="tour")
        await chat.says(f"Hello, {WORD}.")
        owner = proxy_namespace(tmp_path)
        stone = folder / f"2026-01-01-{owner}.md"
        stone.mkdir()
        reply = await proxy.http.delete("/api/sessions/tour", headers=chat.headers)
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "store_unavailable")
        assert await chat.transcript() == chat.said
        stone.rmdir()
        await chat.says("Still here?")
        assert await chat.transcript() == chat.said
        reply = await proxy.http.delete("/api/sessions/tour", headers=chat.headers)
        assert reply.status_code == 200
        assert remains(tmp_path, WORD) == {}


def proxy_namespace(folder: Path) -> str:
    """The namespace of the only caller."""
    connection = driver.connect(folder / "palimpsest.db")
    try:
        ((namespace,),) = connection.execute("SELECT id FROM namespaces").fetchall()
    finally:
        connection.close()
    return str(namespace)


async def test_what_is_swept_leaves_nothing_either(tmp_path: Path) -> None:
    """A namespace that no upstream ever answered (rule 26): its log and what is left in the files go too."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    await migrate(url)
    store = await open_store(url, new_id=lambda: "made-up")
    jobs, gone = Jobs(), RecentlyErased()
    log = DailyLog(tmp_path, gone)
    pepper = Pepper(b"0" * 32)
    scrubbing = Scrubber(store.erasure, jobs, asyncio.Event(), Again(60.0))
    reader, tombstones = MessageReader(lambda _: lambda _: 1, 10**6), Tombstones(store.erasure, pepper)
    forgetting = Forgetting(jobs, jobs, asyncio.Event(), InFlight(), reader, Again(60.0))
    eraser = Eraser(store, jobs, gone, scrubbing, tombstones, forgetting, log, time.time)
    newcomers = UnprovenNamespaces(store, eraser.swept, lambda: 10_000.0, messages=1, seconds=60)
    await Talk(store, namespace=await store.accounts.namespace_of(b"key", 1.0)).asks([WORD.encode()])
    await written(log, "s", WORD, namespace="made-up")
    assert set(remains(tmp_path, WORD)) >= {"2026-01-01-made-up.md"}
    await newcomers.sweep()
    await jobs.drain(20, 1)
    assert remains(tmp_path, WORD) == {}
    await written(log, "s", WORD, namespace="made-up")
    assert remains(tmp_path, WORD) == {}
    await store.close()


async def test_nothing_is_written_of_what_is_gone(tmp_path: Path) -> None:
    gone = RecentlyErased()
    log = DailyLog(tmp_path, gone)
    gone["ns", "s"] = True
    gone["swept", ""] = True
    await written(log, "s", WORD)
    await written(log, "any", WORD, namespace="swept")
    assert texts(tmp_path) == {}
    await written(log, "other", "This is.")
    assert len(texts(tmp_path)) == 1


async def test_a_log_that_cannot_be_changed_is_an_error(tmp_path: Path) -> None:
    log = DailyLog(tmp_path / "log")
    assert await log.erased("ns", "s") == 0
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "2026-01-01-ns.md").mkdir()
    with pytest.raises(StoreUnavailable):
        await log.erased("ns", "s")
