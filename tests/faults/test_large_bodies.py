"""Bodies that only pass through: of any size, in bounded memory, for as long as they move (H07)."""

from __future__ import annotations

import asyncio
import mmap
import os
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from palimpsest.api.body import LEAST_BYTES_A_SECOND, ArrivingBody, read_body
from palimpsest.errors import BodyTooLarge, RequestTimeout
from palimpsest.storage.migrate import migrate

from benchmarks.kill_loop import server

pytestmark = pytest.mark.spec("H07")

MEGABYTE = 2**20
PIECE = bytes(range(256)) * (MEGABYTE // 256)
LENGTH = 300
# What may come on top of what the process takes by itself: buffers of both connections, several times over.
ROOM = 48 * MEGABYTE


class Echo:
    """An upstream that counts a body of any size and gives one as large back, holding neither."""

    def __init__(self) -> None:
        self.received = 0
        self.taken = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b"content-length: " in head:
            left = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
            while left:
                piece = await reader.read(min(left, MEGABYTE))
                assert piece
                left -= len(piece)
                self.received += len(piece)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (LENGTH * MEGABYTE))
        for _ in range(LENGTH):
            writer.write(PIECE)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def echoing() -> AsyncIterator[tuple[Echo, str]]:
    echo = Echo()
    listening = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with listening:
        yield echo, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


def resident(pid: int) -> int:
    """Bytes of memory that the process holds now."""
    fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_300_megabytes_pass_both_ways_in_bounded_memory(tmp_path: Path) -> None:
    await migrate(f"sqlite:///{tmp_path / 'palimpsest.db'}")
    async with echoing() as (echo, upstream), server(tmp_path, upstream) as proxy:
        port = int(proxy.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=MEGABYTE)
        before = most = resident(proxy.process.pid)
        size = LENGTH * MEGABYTE
        writer.write(b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(LENGTH):
            writer.write(PIECE)
            await writer.drain()
            most = max(most, resident(proxy.process.pid))
        assert b" 200 " in (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0]
        for _ in range(LENGTH):
            assert await reader.readexactly(MEGABYTE) == PIECE
            most = max(most, resident(proxy.process.pid))
        writer.close()
        assert echo.received == size
        assert most - before < ROOM


def test_a_body_that_is_held_would_be_noticed() -> None:
    """The control: as many bytes in the memory of a process are seen there."""
    before = resident(os.getpid())
    # A mapping of its own: objects would take the place of what was freed before, and nothing would grow.
    with mmap.mmap(-1, LENGTH // 3 * MEGABYTE) as held:
        for _ in range(LENGTH // 3):
            held.write(PIECE)
        assert resident(os.getpid()) - before > ROOM


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while it would wait, and then at once."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Waits(self))

    def time(self) -> float:
        return self.now


class _Waits(selectors.DefaultSelector):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Any:
        self._clock.now += timeout or 0
        return super().select(0)


def timed(run: Callable[[Clock], Coroutine[Any, Any, None]]) -> None:
    clock = Clock()
    try:
        clock.run_until_complete(run(clock))
    finally:
        clock.close()


def sends(piece: bytes, every: float, count: int) -> Callable[[], Coroutine[Any, Any, dict[str, Any]]]:
    """A client that sends a piece every so many seconds, so many times."""
    sent = 0

    async def receive() -> dict[str, Any]:
        nonlocal sent
        sent += 1
        await asyncio.sleep(every)
        return {"type": "http.request", "body": piece, "more_body": sent < count}

    return receive


def test_a_slow_body_takes_what_it_takes() -> None:
    """A kilobyte a second for three hours, with an idle limit of a minute."""

    async def run(clock: Clock) -> None:
        body = await read_body({"headers": []}, sends(b"x" * 1_000, 1.0, 10_800), 2**26, 60.0)
        assert len(body) == 10_800_000
        assert clock.now == pytest.approx(10_800)

    timed(run)


@pytest.mark.parametrize(
    ("piece", "every"), [(b"x", 59.0), (b"x" * (LEAST_BYTES_A_SECOND - 1), 1.0), (b"", 61)]
)
def test_a_body_that_drips_is_given_up_in_a_minute_or_two(piece: bytes, every: float) -> None:
    async def run(clock: Clock) -> None:
        with pytest.raises(RequestTimeout):
            await read_body({"headers": []}, sends(piece, every, 10**6), 2**26, 60.0)
        assert clock.now <= 120

    timed(run)


def test_time_in_which_nobody_asks_is_not_the_clients() -> None:
    """An upstream that takes a piece an hour slows its client down, and is no reason to cut it."""

    async def run(clock: Clock) -> None:
        body = ArrivingBody({"headers": []}, sends(b"x" * 65_536, 1.0, 20), None, 60.0)
        pieces = []
        async for piece in body:
            pieces.append(piece)
            await asyncio.sleep(3_600)
        assert (len(pieces), body.finished) == (20, True)

    timed(run)


def test_a_length_beyond_the_limit_is_refused_unread() -> None:
    async def run(_: Clock) -> None:
        async def receive() -> dict[str, Any]:
            raise AssertionError("nothing is read")

        with pytest.raises(BodyTooLarge):
            await read_body({"headers": [(b"content-length", b"101")]}, receive, 100, 60.0)

    timed(run)
