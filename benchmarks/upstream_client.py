"""Which HTTP client should carry the exchanges: CPU per request, latency, and life after hang-ups.

Knows nothing of the proxy itself: four clients against a trivial server in another process.

    python -m benchmarks.upstream_client [--seconds 2] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import resource
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from multiprocessing.connection import Connection
from typing import cast

import httpx
import uvloop
from httpx_aiohttp import AiohttpTransport
from palimpsest.settings.upstreams import UpstreamSettings
from palimpsest.upstream.client import Upstream

CHUNKS = 200
FRAME = b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"delta":{"content":"token "}}]}\n\n'
BODY = b'{"model":"m","messages":[{"role":"user","content":"' + b"x" * 2000 + b'"}]}'
HEADERS = [(b"Content-Type", b"application/json"), (b"Authorization", b"Bearer sk-x")]

Call = Callable[[str], Awaitable[int]]


class Server(asyncio.Protocol):
    """Answers `/plain` with 600 bytes, `/stream` with 200 frames, `/slow` after 50 ms."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with an empty request; uvloop's transports are no subclass of asyncio's."""
        self.transport, self.seen = cast(asyncio.Transport, transport), b""

    def data_received(self, data: bytes) -> None:
        """Answer once head and body are there."""
        self.seen += data
        head, end, rest = self.seen.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        if not end or len(rest) < length:
            return
        self.seen = b""
        if b"/stream " in head:
            self.transport.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            self.frames(CHUNKS)
        else:
            delay = 0.05 if b"/slow " in head else 0
            asyncio.get_running_loop().call_later(delay, self.plain)

    def plain(self) -> None:
        """One answer of 600 bytes, if the client is still there."""
        if self.transport.is_closing():
            return
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 600\r\n\r\n" + b"y" * 600)

    def frames(self, left: int) -> None:
        """One frame a turn of the loop, so that they are written apart."""
        if self.transport.is_closing():
            return
        if not left:
            self.transport.write(b"0\r\n\r\n")
            return
        self.transport.write(b"%x\r\n%s\r\n" % (len(FRAME), FRAME))
        asyncio.get_running_loop().call_soon(self.frames, left - 1)


def serve(pipe: Connection) -> None:
    """Run the server in its own process; its port goes into the pipe."""

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(main())


@asynccontextmanager
async def over_httpx(base: str, transport: httpx.AsyncBaseTransport | None) -> AsyncIterator[Call]:
    """httpx, on its own pool or on the transport given."""
    limits = httpx.Limits(max_connections=64, max_keepalive_connections=64)
    async with httpx.AsyncClient(transport=transport, limits=limits, timeout=30, trust_env=False) as client:

        async def call(path: str) -> int:
            async with client.stream("POST", base + path, headers=HEADERS, content=BODY) as answer:
                return sum([len(chunk) async for chunk in answer.aiter_raw()])

        yield call


@asynccontextmanager
async def over_transport(base: str) -> AsyncIterator[Call]:
    """The aiohttp transport for httpx, called without the client."""
    limits = httpx.Limits(max_connections=64, max_keepalive_connections=64)
    async with AiohttpTransport(limits=limits, trust_env=False) as transport:

        async def call(path: str) -> int:
            request = httpx.Request("POST", base + path, headers=HEADERS, content=BODY)
            answer = await transport.handle_async_request(request)
            assert isinstance(answer.stream, httpx.AsyncByteStream)
            try:
                return sum([len(chunk) async for chunk in answer.stream])
            finally:
                await answer.aclose()

        yield call


@asynccontextmanager
async def over_seam(base: str) -> AsyncIterator[Call]:
    """The pool of aiohttp behind the program's own seam."""
    async with Upstream(base, UpstreamSettings(max_connections=64)) as upstream:

        async def call(path: str) -> int:
            async with upstream.open("POST", path, HEADERS, BODY) as answer:
                return sum([len(chunk) async for chunk in answer.chunks()])

        yield call


def clients(base: str) -> dict[str, contextlib.AbstractAsyncContextManager[Call]]:
    """All four, the seam first: it is what the others are compared with."""
    limits = httpx.Limits(max_connections=64, max_keepalive_connections=64)
    return {
        "seam": over_seam(base),
        "transport": over_transport(base),
        "httpx-aiohttp": over_httpx(base, AiohttpTransport(limits=limits, trust_env=False)),
        "httpx": over_httpx(base, None),
    }


async def load(call: Call, path: str, connections: int, seconds: float) -> tuple[float, float]:
    """CPU milliseconds of this process per request, and the median latency in milliseconds."""
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def one() -> None:
        while True:
            start = time.perf_counter()
            await call(path)
            latencies.append(time.perf_counter() - start)
            if time.perf_counter() > end:
                return

    await asyncio.gather(*[call(path) for _ in range(connections)])
    usage = resource.getrusage(resource.RUSAGE_SELF)
    await asyncio.gather(*[one() for _ in range(connections)])
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime
    return cpu / len(latencies) * 1000, statistics.median(latencies) * 1000


async def survives(call: Call, seconds: float) -> str:
    """Cancel 96 callers at once over 64 connections, again and again; then ask 64 times in peace."""
    end = time.perf_counter() + seconds
    cancelled = 0
    while time.perf_counter() < end:
        tasks = [asyncio.ensure_future(call("/slow")) for _ in range(96)]
        for index, task in enumerate(tasks):
            asyncio.get_running_loop().call_later(index % 20 / 1000, task.cancel)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        cancelled += sum(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
    good = 0
    for _ in range(64):
        with contextlib.suppress(httpx.HTTPError, TimeoutError):
            good += await asyncio.wait_for(call("/plain"), 2) == 600
        if not good:
            break
    return f"{cancelled} hang-ups, then {good} of 64 requests answered"


async def measure(port: int, seconds: float, rounds: int) -> None:
    """Load every client in turn, round after round, then the storm."""
    base = f"http://127.0.0.1:{port}"
    print(
        f"{'path':8} {'conns':>5}  {'client':14} {'CPU ms/req':>10} {'ratio':>6} {'p50 ms':>8} {'ratio':>6}"
    )
    async with AsyncExitStack() as stack:
        calls = {name: await stack.enter_async_context(client) for name, client in clients(base).items()}
        for path in ("/plain", "/stream"):
            for connections in (1, 16, 64):
                figures: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
                for _ in range(rounds):
                    for name, call in calls.items():
                        figures[name].append(await load(call, path, connections, seconds))
                report(path, connections, figures)
    for name, client in clients(base).items():
        async with client as call:
            print(f"storm    {name:14} {await survives(call, 4)}")


def report(path: str, connections: int, figures: dict[str, list[tuple[float, float]]]) -> None:
    """Medians over the rounds, and their ratio to the seam's."""
    medians = {
        name: (statistics.median(cpu for cpu, _ in runs), statistics.median(p50 for _, p50 in runs))
        for name, runs in figures.items()
    }
    cpu_0, p50_0 = medians["seam"]
    for name, (cpu, p50) in medians.items():
        ratios = f"{cpu:10.3f} {cpu / cpu_0:6.2f} {p50:8.2f} {p50 / p50_0:6.2f}"
        print(f"{path:8} {connections:5}  {name:14} {ratios}")


def main() -> None:
    """Parse, start the server, measure."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=2)
    arguments.add_argument("--rounds", type=int, default=3)
    options = arguments.parse_args()
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    try:
        uvloop.run(measure(ours.recv(), options.seconds, options.rounds))
    finally:
        server.terminate()


if __name__ == "__main__":
    main()
