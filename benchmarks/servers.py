"""The processes an overhead measurement needs: a trivial upstream, and the proxy as `palimpsest serve`.

Knows nothing of load or figures. Both listen on free ports of this machine and end with their block.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, cast

import uvloop

# What every answer says; clients send it back, so it never changes.
WORDS = " word" * 64
STAMP = b'"system_fingerprint":"'
_CHUNK = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m",' + STAMP
_USAGE = b'"usage":{"prompt_tokens":100,"completion_tokens":64,"total_tokens":164}'
_ANSWER = (
    b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"' + WORDS.encode() + b'"},"finish_reason":"stop"}],' + _USAGE + b"}"
)
_PLAIN = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(_ANSWER)
    + _ANSWER
)
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_ENDED = b"data: [DONE]\n\n"
FRAMES = 64
_START_SECONDS = 60


class Upstream(asyncio.Protocol):
    """Answers whatever is asked at once; with `x-pace: n` as 64 frames, one every n milliseconds."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with an empty request; uvloop's transports are no subclass of asyncio's."""
        self.transport, self.seen, self.needed = cast(asyncio.Transport, transport), bytearray(), 0

    def data_received(self, data: bytes) -> None:
        """Answer once head and body are there."""
        self.seen += data
        if not self.needed:
            end = self.seen.find(b"\r\n\r\n")
            if end < 0:
                return
            self.head = bytes(self.seen[:end]).lower()
            length = self.head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
            self.needed = end + 4 + int(length or 0)
        if len(self.seen) < self.needed:
            return
        self.body = bytes(self.seen[len(self.head) + 4 : self.needed])
        self.seen.clear()
        self.needed = 0
        self.answer()

    def answer(self) -> None:
        """Answer the request in `head`, which has small letters, and `body`."""
        if pace := self.head.partition(b"x-pace: ")[2].partition(b"\r\n")[0]:
            self.transport.write(_STREAM_HEAD)
            self.frame(0, int(pace) / 1000)
        else:
            self.transport.write(_PLAIN)

    def frame(self, number: int, pace: float) -> None:
        """One frame a turn of the loop or of the clock; each says when it was written."""
        if self.transport.is_closing():
            return
        stamp = b"%d" % time.perf_counter_ns()
        if number == FRAMES:
            last = b'","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],' + _USAGE + b"}\n\n"
            self.write(_CHUNK + stamp + last)
            self.write(_ENDED)
            self.transport.write(b"0\r\n\r\n")
            return
        text = b'","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}\n\n'
        self.write(_CHUNK + stamp + text)
        loop = asyncio.get_running_loop()
        if pace:
            loop.call_later(pace, self.frame, number + 1, pace)
        else:
            loop.call_soon(self.frame, number + 1, pace)

    def write(self, event: bytes) -> None:
        """One event as one chunk."""
        self.transport.write(b"%x\r\n%s\r\n" % (len(event), event))


def _serve(pipe: Connection, protocol: type[asyncio.Protocol]) -> None:
    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(main())


@contextmanager
def trivial_upstream(protocol: type[asyncio.Protocol] = Upstream) -> Iterator[int]:
    """The port of an upstream that takes no time to think; `protocol` answers each connection."""
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, protocol), daemon=True)
    server.start()
    try:
        yield ours.recv()
    finally:
        server.terminate()
        server.join()


@dataclass(frozen=True, slots=True)
class Proxy:
    """A running proxy."""

    port: int
    pid: int

    def cpu_seconds(self) -> float:
        """Processor time of all its threads, and of the processes it has started, until now."""
        return sum(_cpu_seconds(pid) for pid in _family(self.pid))


def _family(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from _family(int(child))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def palimpsest(
    upstream: int,
    synchronous: str = "full",
    others: Mapping[str, str] | None = None,
    *,
    kept_in: str | None = None,
    program: Sequence[str] = (str(Path(sys.executable).with_name("palimpsest")),),
) -> Iterator[Proxy]:
    """The proxy in front of the upstream at that port, on a fresh SQLite database or the one in `kept_in`.

    `others` are further settings by the names of their variables, without the prefix; `program` serves.
    """
    with nullcontext(kept_in) if kept_in else tempfile.TemporaryDirectory() as folder:
        settings = {
            "UPSTREAM__BASE_URL": f"http://127.0.0.1:{upstream}/v1",
            "DATABASE__URL": f"sqlite:///{folder}/palimpsest.db",
            "DATABASE__DATA_FOLDER": folder,
            "DATABASE__SYNCHRONOUS": synchronous,
            "SERVER__PORT": "0",
            "WINDOW__WINDOW_TOKENS": "2000000",
            **(others or {}),
        }
        ours = {f"PALIMPSEST_{name}": value for name, value in settings.items()}
        quiet = {k: v for k, v in os.environ.items() if not k.startswith("PALIMPSEST_")}
        command = [*program, "serve"]
        process = subprocess.Popen(
            command,
            env={**quiet, **ours, "PYTHONUNBUFFERED": "1"},
            cwd=folder,
            stdout=subprocess.PIPE,
            # The line of each exchange is written, and goes nowhere.
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            yield Proxy(_port_of(cast("IO[str]", process.stdout)), process.pid)
        finally:
            process.terminate()
            process.wait(_START_SECONDS)
            cast("IO[str]", process.stdout).close()


def _port_of(output: IO[str]) -> int:
    """The port in what the proxy says when it starts; RuntimeError when it ends without saying."""
    for line in output:
        if found := re.search(r"http://127\.0\.0\.1:(\d+)/v1", line):
            return int(found[1])
    raise RuntimeError("the proxy did not start")
