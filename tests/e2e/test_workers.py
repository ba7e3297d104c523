"""`server.workers`: several processes on one socket, replaced when they die, stopped together."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import httpx
import pytest
from palimpsest.cli.workers import Workers
from palimpsest.errors import PalimpsestError, SettingsError
from palimpsest.storage.migrate import migrate

from benchmarks.kill_loop import Server, server
from tests.kit.chat import Chat
from tests.kit.model import ModelServer, Says
from tests.kit.postgres import empty_database, server_address
from tests.kit.processes import ran
from tests.kit.replicas import until
from tests.kit.scrapes import scraped_once
from tests.kit.serving import served

WORKERS = 2
# Each request on a connection of its own: any worker may take it.
_NO_KEEPING = httpx.Limits(max_keepalive_connections=0)
pytestmark = pytest.mark.timeout(120)


@dataclass
class Served:
    """A running `palimpsest serve` with two workers, a client of it, and where its log is."""

    model: ModelServer
    running: Server
    http: httpx.AsyncClient
    log: Path

    def started(self) -> Sequence[int]:
        """The processes that have started to answer, dead ones too, oldest first."""
        return [int(pid) for pid in re.findall(r"\] started .*?\bpid=(\d+)", self.log.read_text())]

    def alive(self) -> set[int]:
        """Those of them that still run."""
        return {pid for pid in self.started() if Path(f"/proc/{pid}").exists()}


@asynccontextmanager
async def workers(folder: Path, model: ModelServer) -> AsyncIterator[Served]:
    """Two processes behind one address, on a database of their own."""
    async with served(model, lifespan="off") as upstream, empty_database(server_address()) as database:
        await migrate(database)
        async with (
            server(
                folder, upstream, PALIMPSEST_DATABASE__URL=database, PALIMPSEST_SERVER__WORKERS=str(WORKERS)
            ) as running,
            httpx.AsyncClient(base_url=running.url, limits=_NO_KEEPING, timeout=60, trust_env=False) as http,
        ):
            yield Served(model, running, http, folder / "log")


async def test_any_of_them_carries_a_conversation_on(tmp_path: Path) -> None:
    async with workers(tmp_path, ModelServer()) as proxy:
        assert len(set(proxy.started())) == len(proxy.alive()) == WORKERS
        chat = Chat(proxy.http)
        for turn in range(20):
            await chat.says(f"turn {turn}")
        (listed,) = (await proxy.http.get("/api/sessions", headers=chat.headers)).json()["sessions"]
        place = f"/api/sessions/{listed['id']}/messages"
        rows = (await proxy.http.get(place, headers=chat.headers)).json()["messages"]
    assert [row["message"] for row in rows] == chat.said


async def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    async with workers(tmp_path, ModelServer()) as proxy:
        chat = Chat(proxy.http)
        await chat.says("before")
        dead, kept = proxy.started()
        os.kill(dead, signal.SIGKILL)

        async def is_replaced() -> bool:
            return len(proxy.alive() - {dead}) == WORKERS and kept in proxy.alive()

        await until(is_replaced)
        assert re.search(rf"worker_ended .*pid={dead}\b", proxy.log.read_text())
        for turn in range(8):
            await chat.says(f"after {turn}")
    assert {reply.status_code for reply in chat.replies} == {200}
    assert len({reply.headers["x-palimpsest-session"] for reply in chat.replies}) == 1


async def test_a_stop_waits_for_open_answers_and_leaves_no_process(tmp_path: Path) -> None:
    may_end = asyncio.Event()

    async def is_ended() -> None:
        await may_end.wait()

    model = ModelServer(script=lambda _: Says({"role": "assistant", "content": "done"}, after=is_ended))
    async with workers(tmp_path, model) as proxy:
        chat = Chat(proxy.http)
        asking = asyncio.create_task(chat.says("a long one"))

        async def is_asked() -> bool:
            return bool(model.prompts)

        async def are_stopping() -> bool:
            return proxy.log.read_text().count("] stopping ") == WORKERS

        await until(is_asked)
        proxy.running.process.terminate()
        await until(are_stopping)
        may_end.set()
        assert (await asking)["content"] == "done"
        # As a single server ends.
        assert await proxy.running.process.wait() == -signal.SIGTERM
        assert not proxy.alive()


async def test_workers_do_not_outlive_who_started_them(tmp_path: Path) -> None:
    async with workers(tmp_path, ModelServer()) as proxy:
        assert len(proxy.alive()) == WORKERS
        proxy.running.kill()

        async def are_gone() -> bool:
            return not proxy.alive()

        await until(are_gone)


async def test_one_scrape_tells_the_numbers_of_all(tmp_path: Path) -> None:
    async with workers(tmp_path, ModelServer()) as proxy:
        chat = Chat(proxy.http)
        for turn in range(20):
            await chat.says(f"turn {turn}")
        # Whichever of them answers.
        for _ in range(8):
            scrape = await scraped_once(proxy.http, lambda one: one.value("palimpsest_requests_total") == 20)
            shares = [
                scrape.value("palimpsest_requests_total", worker=str(place)) for place in range(WORKERS)
            ]
            assert all(shares), shares
            assert scrape.value("palimpsest_workers") == WORKERS
            assert scrape.value("palimpsest_store_bytes") is not None
            assert scrape.labels("palimpsest_store_bytes") == set()


async def test_a_worker_that_hangs_delays_no_scrape_for_long(tmp_path: Path) -> None:
    async with workers(tmp_path, ModelServer()) as proxy:
        hung, _ = proxy.started()
        os.kill(hung, signal.SIGSTOP)
        try:
            # Only the other one can answer; a connection that the hung one has taken is given up.
            scrape = await scraped_once(proxy.http, lambda one: one.value("palimpsest_workers") == 1)
        finally:
            os.kill(hung, signal.SIGCONT)
        assert "worker_not_scraped" in proxy.log.read_text()
        assert scrape.value("palimpsest_store_ready") == 1
        await scraped_once(proxy.http, lambda one: one.value("palimpsest_workers") == WORKERS)


async def test_a_replaced_worker_is_scraped(tmp_path: Path) -> None:
    async with workers(tmp_path, ModelServer()) as proxy:
        dead, _ = proxy.started()
        os.kill(dead, signal.SIGKILL)

        async def is_replaced() -> bool:
            return len(proxy.alive() - {dead}) == WORKERS

        await until(is_replaced)
        scrape = await scraped_once(proxy.http, lambda one: one.value("palimpsest_workers") == WORKERS)
        assert scrape.labels("palimpsest_requests_in_progress") == {"worker"}


def test_one_process_writes_a_sqlite_file(tmp_path: Path) -> None:
    ended = ran(tmp_path, "serve", "--workers", "2", "--port", "0", settings={})
    assert ended.returncode == 2
    assert "server.workers" in ended.stderr
    assert "postgresql://" in ended.stderr
    assert not list(tmp_path.rglob("*.db"))


def test_the_demo_belongs_to_one_process(tmp_path: Path) -> None:
    settings = {"PALIMPSEST_DATABASE__URL": server_address()}
    ended = ran(tmp_path, "serve", "--workers", "2", "--port", "0", settings=settings)
    assert ended.returncode == 2
    assert "upstream.base_url" in ended.stderr


def test_why_a_worker_cannot_start_is_raised_by_who_starts_it() -> None:
    def work(started: Callable[[], None], refused: Callable[[PalimpsestError], None], place: int) -> None:
        refused(SettingsError("the pepper is damaged"))

    def never() -> NoReturn:
        raise AssertionError

    with pytest.raises(SettingsError, match="the pepper is damaged"):
        Workers(WORKERS, work, started=never).run()
