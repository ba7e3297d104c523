"""Connections that say nothing, and bodies that never end, keep nobody out and take little memory."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from palimpsest.cli import http_server
from palimpsest.storage.migrate import migrate

from benchmarks.kill_loop import server
from tests.faults.test_large_bodies import MEGABYTE, PIECE, resident
from tests.kit.wire import answer_body
from tests.upstream.scripted import Scripted, replies

pytestmark = [pytest.mark.spec("H05"), pytest.mark.timeout(120)]
FILES = 1_024
SILENT = 1_200
UPLOADS, UPLOAD_BYTES = 16, 60 * MEGABYTE
# What four of the largest bodies take, and what comes on top of that.
ROOM = (4 * 64 + 64) * MEGABYTE
STARTED = "listens: point a client's base_url at "


async def is_answered(url: str, key: str) -> bool:
    """Health, and a chat of this caller."""
    async with httpx.AsyncClient(base_url=url, timeout=20, trust_env=False) as http:
        body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
        headers = {"authorization": f"Bearer {key}"}
        health = await http.get("/healthz")
        reply = await http.post("/v1/chat/completions", json=body, headers=headers)
        return (health.status_code, reply.status_code) == (200, 200)


@asynccontextmanager
async def with_few_files(folder: Path) -> AsyncIterator[str]:
    """The address of `palimpsest serve`, with the demo behind it, which may open `FILES` files."""
    url = f"sqlite:///{folder / 'palimpsest.db'}"
    await migrate(url)
    run = f"ulimit -n {FILES}; exec {sys.executable} -m palimpsest serve --port 0"
    settings = {"PALIMPSEST_DATABASE__URL": url, "PALIMPSEST_DATABASE__DATA_FOLDER": str(folder)}
    process = await asyncio.create_subprocess_shell(
        run, cwd=folder, env={**os.environ, **settings}, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        while STARTED not in (line := (await process.stdout.readline()).decode()):
            assert line
        yield line.partition(STARTED)[2].strip().removesuffix("/v1")
    finally:
        process.terminate()
        await process.wait()


async def test_1200_silent_connections_lock_nobody_out(tmp_path: Path) -> None:
    """Every second one begins a request, and says no more."""
    async with with_few_files(tmp_path) as url, AsyncExitStack() as stack:
        before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (before, most))
        for at in range(SILENT):
            _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            stack.callback(writer.close)
            if at % 2:
                writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: ")
        assert await is_answered(url, "mine")


@pytest.mark.parametrize("said", [b"", b"GET /v1/models HTTP/1.1\r\nHost: "])
def test_a_connection_that_sends_no_request_is_closed(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_HEAD_SECONDS", 0.1, raising=False)
    with http_server.running_demo(8_000) as url:
        port = int(url.removesuffix("/v1").rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(said)
            assert connection.recv(1) == b""


async def test_16_unfinished_uploads_take_bounded_memory(tmp_path: Path) -> None:
    await migrate(f"sqlite:///{tmp_path / 'palimpsest.db'}")
    async with Scripted() as upstream, AsyncExitStack() as stack:
        upstream.always(replies(answer_body()))
        running = await stack.enter_async_context(server(tmp_path, upstream.url))
        assert await is_answered(running.url, "mine")
        before = resident(running.process.pid)
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        answers = []
        for _ in range(UPLOADS):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(running.url.rpartition(":")[2]))
            stack.callback(writer.close)
            writer.write(head % (UPLOAD_BYTES + 1))
            for _ in range(UPLOAD_BYTES // len(PIECE)):
                writer.write(PIECE)
                await writer.drain()
            answers.append(asyncio.create_task(reader.read(4_096)))
        assert await is_answered(running.url, "mine")
        assert resident(running.process.pid) - before < ROOM
        refused = [answer.result() for answer in answers if answer.done()]
        assert len(refused) >= UPLOADS - 4
        assert all(b" 503 " in answer and b"server_busy" in answer for answer in refused)
        assert all(b"retry-after: 1" in answer.lower() for answer in refused)
        for answer in answers:
            answer.cancel()
