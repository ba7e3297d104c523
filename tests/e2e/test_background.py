"""Work behind the answers, in a process of its own: started when there is much, replaced, forgetful."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from palimpsest.errors import BackgroundFailed
from palimpsest.proxy.background import START_BYTES, Background
from palimpsest.proxy.jobs import Jobs

from tests.kit.model import ModelServer
from tests.kit.proxy import proxied

# The process starts within a second; a busy machine has more time.
_PATIENCE_SECONDS = 30.0


@asynccontextmanager
async def running(idle_seconds: float = 60.0) -> AsyncIterator[Background]:
    background = Background(Jobs(), idle_seconds=idle_seconds)
    try:
        yield background
    finally:
        await background.close()


async def until(holds: Callable[[], object]) -> None:
    ends = time.monotonic() + _PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < ends
        await asyncio.sleep(0.01)


async def test_a_process_that_was_killed_is_replaced() -> None:
    async with running() as background:
        first = await background.run(START_BYTES, os.getpid)
        os.kill(first, signal.SIGKILL)
        assert await background.run(1, os.getpid) not in (first, os.getpid())


async def test_work_that_kills_it_is_given_up() -> None:
    async with running() as background:
        with pytest.raises(BackgroundFailed, match="died"):
            await background.run(START_BYTES, os._exit, 3)
        assert await background.run(START_BYTES, len, "after it") == 8


async def test_who_gives_up_waiting_takes_nobody_elses_answer() -> None:
    async with running() as background:
        await background.run(START_BYTES, len, "")
        waiting: asyncio.Task[Any] = asyncio.create_task(background.run(1, select.select, [], [], [], 0.2))
        await asyncio.sleep(0.05)
        waiting.cancel()
        assert await background.run(1, len, "yours") == 5


@pytest.mark.spec("P6")
async def test_forgetting_ends_it_and_what_it_was_doing_is_begun_again() -> None:
    async with running() as background:
        first = await background.run(START_BYTES, os.getpid)
        waiting: asyncio.Task[Any] = asyncio.create_task(background.run(1, select.select, [], [], [], 0.2))
        await asyncio.sleep(0.05)
        background.forget()
        assert await waiting == ([], [], [])
        assert background.pid != first
        await until(lambda: not _is_running(first))


@pytest.mark.spec("P11")
async def test_a_long_history_is_indexed_by_the_process(tmp_path: Path) -> None:
    before = set(_background_processes())
    async with proxied(ModelServer(window=4_000_000), tmp_path) as proxy:
        chat = proxy.chat(session="long")
        text = "The harbour master counts boats. " * 60
        for number in range(2):
            sent = [
                {"role": "user", "content": f"Report {number} {each}: {text}"}
                for each in range(START_BYTES // 2_000)
            ]
            await chat.posts(sent)
        await until(lambda: set(_background_processes()) - before)
        (started,) = set(_background_processes()) - before
        os.kill(started, signal.SIGKILL)
        # A search waits for the rest of the index.
        found = await proxy.http.get(
            "/api/sessions/long/search", params={"q": "report 1 499", "limit": 1}, headers=chat.headers
        )
        assert "Report 1 499:" in found.json()["results"][0]["text"]
        assert (await proxy.http.delete("/api/sessions/long", headers=chat.headers)).status_code == 200
        await until(lambda: set(_background_processes()) == before)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _background_processes() -> Iterator[int]:
    """Those that this process has started."""
    for task in Path("/proc/self/task").iterdir():
        for pid in map(int, (task / "children").read_text().split()):
            if (
                _is_running(pid)
                and b"palimpsest.proxy.background" in Path(f"/proc/{pid}/cmdline").read_bytes()
            ):
                yield pid
