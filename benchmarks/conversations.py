"""Conversations as users have them, through several proxies side by side: rate, latency, processor time.

    python -m benchmarks conversations [--clients 1,16,64] [--turns 600] [--rounds 3] [--peers]
        [--postgres URL] [--write]

A client resends its growing list: 20 turns of 2 kB, each answered with 1 kB that is sent back as it came, or
spelled anew as SDKs do. Rounds take turns between the servers, figures are medians. Processor time is counted
until the work in the background is done. `--peers` adds those that `benchmarks.peers` has installed.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import cast

import asyncpg
import uvloop
from palimpsest.storage.migrate import migrate

from benchmarks import peers
from benchmarks.conversations_plot import bars_of
from benchmarks.overhead import PAGE, written
from benchmarks.servers import Proxy, Upstream, palimpsest, trivial_upstream

TURNS, QUESTION_BYTES, ANSWER_BYTES = 20, 2_000, 1_000
_WORDS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "parser",
    "module",
    "function",
    "returns",
    "error",
    "line",
    "file",
    "test",
    "commit",
    "branch",
    "server",
    "client",
    "token",
    "window",
    "summary",
    "record",
    "message",
]
# Background work counts as done when it takes less than this share of a processor for so many looks.
_IDLE_SHARE, _LOOKS, _LOOK_SECONDS, _DRAIN_SECONDS = 0.02, 3, 0.5, 30.0
_HEAD = (
    "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    "Authorization: Bearer sk-measured\r\nx-portkey-provider: openai\r\n"
    "x-portkey-custom-host: http://127.0.0.1:{upstream}/v1\r\nContent-Length: {length}\r\n\r\n"
)


_SYSTEM = {"role": "system", "content": f"You are a coding agent. {'x' * 400}"}


class Speaker(Upstream):
    """An upstream that answers at once, each time with other words."""

    numbers = itertools.count()

    def answer(self) -> None:
        """What is no POST has an empty list of models."""
        told = (
            _answer(next(self.numbers)) if self.head.startswith(b"post") else b'{"object":"list","data":[]}'
        )
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(told)
        self.transport.write(head + told)


def _answer(number: int) -> bytes:
    message = {"role": "assistant", "content": _text(random.Random(number), ANSWER_BYTES)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 100, "completion_tokens": 64, "total_tokens": 164}
    whole = {"id": f"c{number}", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return json.dumps({**whole, "usage": usage}, separators=(",", ":")).encode()


def _text(chance: random.Random, length: int) -> str:
    return " ".join(chance.choices(_WORDS, k=length // 6))[:length]


class Client(asyncio.Protocol):
    """One connection that asks, and gives the answer's body."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport, self._seen = cast(asyncio.Transport, transport), bytearray()
        self._answered: asyncio.Future[bytes] | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is left waiting."""
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(exc or ConnectionError("the server closed the connection"))

    async def ask(self, request: bytes) -> bytes:
        """The answer's body; RuntimeError when it is no 200."""
        self._seen.clear()
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answered

    def data_received(self, data: bytes) -> None:
        """The head and a body of known length, or in chunks."""
        self._seen += data
        end = self._seen.find(b"\r\n\r\n")
        if end < 0 or self._answered is None or self._answered.done():
            return
        head = bytes(self._seen[:end]).lower()
        length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if length:
            if len(self._seen) < end + 4 + int(length):
                return
        elif not self._seen.endswith(b"0\r\n\r\n"):
            return
        if not head.startswith(b"http/1.1 200"):
            self._answered.set_exception(RuntimeError(bytes(self._seen).decode("latin-1")))
            return
        self._answered.set_result(bytes(self._seen[end + 4 :]))


@dataclass(frozen=True, slots=True)
class Run:
    """One load: turns a second, the median turn in milliseconds, processor milliseconds a turn."""

    rate: float
    p50: float
    cpu: float


async def load(proxy: Proxy, upstream: int, clients: int, turns: int, *, respells: bool) -> Run:
    """So many turns by so many clients, and the processor time until the proxy is idle again."""
    seconds: list[float] = []
    begun, spent = time.perf_counter(), proxy.cpu_seconds()

    async def talking(number: int) -> None:
        chance = random.Random(time.time_ns() + number)
        _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", proxy.port)
        while len(seconds) < turns:
            messages: list[Mapping[str, object]] = [_SYSTEM]
            for _ in range(TURNS):
                messages.append({"role": "user", "content": _text(chance, QUESTION_BYTES)})
                asked = time.perf_counter()
                said = _message_in(await client.ask(_request(messages, upstream)))
                seconds.append(time.perf_counter() - asked)
                # SDKs send fields back that the answer did not have.
                messages.append({**said, "refusal": None, "tool_calls": None} if respells else said)

    await asyncio.gather(*(talking(number) for number in range(clients)))
    taken = time.perf_counter() - begun
    await _idle(proxy)
    cpu = (proxy.cpu_seconds() - spent) / len(seconds) * 1e3
    return Run(len(seconds) / taken, statistics.median(seconds) * 1e3, cpu)


def _request(messages: Sequence[Mapping[str, object]], upstream: int) -> bytes:
    body = json.dumps({"model": "m", "messages": messages}, separators=(",", ":")).encode()
    return _HEAD.format(upstream=upstream, length=len(body)).encode() + body


def _message_in(body: bytes) -> dict[str, object]:
    found = json.loads(body[body.index(b"{") : body.rindex(b"}") + 1])["choices"][0]["message"]
    return {"role": "assistant", "content": found["content"]}


async def _idle(proxy: Proxy) -> None:
    """Until the proxy's work in the background is done, or for half a minute."""
    quiet, last, ends = 0, proxy.cpu_seconds(), time.monotonic() + _DRAIN_SECONDS
    while quiet < _LOOKS and time.monotonic() < ends:
        await asyncio.sleep(_LOOK_SECONDS)
        now = proxy.cpu_seconds()
        quiet = quiet + 1 if now - last < _IDLE_SHARE * _LOOK_SECONDS else 0
        last = now


@contextmanager
def on_postgres(upstream: int, server: str) -> Iterator[Proxy]:
    """Palimpsest on a database of its own beside the one that the address names."""
    name = f"palimpsest_bench_{os.getpid()}"

    async def run(statement: str) -> None:
        connection = await asyncpg.connect(server)
        await connection.execute(statement)
        await connection.close()

    url = f"{server.rsplit('/', 1)[0]}/{name}"
    asyncio.run(run(f"CREATE DATABASE {name}"))
    try:
        asyncio.run(migrate(url))
        with palimpsest(upstream, others={"DATABASE__URL": url}) as proxy:
            yield proxy
    finally:
        asyncio.run(run(f"DROP DATABASE {name} WITH (FORCE)"))


def servers(options: argparse.Namespace) -> dict[str, peers.Peer]:
    """What is compared, by name; the lean reference first."""
    there = peers.installed()
    chosen = {"lean reference": there["lean reference"], "Palimpsest, SQLite": palimpsest}
    if options.postgres:
        chosen["Palimpsest, PostgreSQL"] = partial(on_postgres, server=options.postgres)
    return {**chosen, **there} if options.peers else chosen


async def measured(
    running: Mapping[str, Proxy], upstream: int, options: argparse.Namespace
) -> Mapping[tuple[str, int, bool], Run]:
    """The medians over the rounds, by server, clients and spelling."""
    found: dict[tuple[str, int, bool], list[Run]] = {}
    clients = [int(count) for count in options.clients.split(",")]
    loads = [(count, False) for count in clients] + [(clients[-1], True)]
    for _ in range(options.rounds):
        for (count, respells), (name, proxy) in itertools.product(loads, running.items()):
            run = await load(proxy, upstream, count, options.turns, respells=respells)
            found.setdefault((name, count, respells), []).append(run)
            print(f"{name}, {count}{', spelled anew' if respells else ''}: {run}", flush=True)
    return {key: _median(runs) for key, runs in found.items()}


def _median(runs: Sequence[Run]) -> Run:
    return Run(
        statistics.median(run.rate for run in runs),
        statistics.median(run.p50 for run in runs),
        statistics.median(run.cpu for run in runs),
    )


def table(found: Mapping[tuple[str, int, bool], Run]) -> str:
    """A row for each server and load; ratios are to the lean reference under the same load."""
    lines = [
        "| server | clients | turns/s | of lean | p50, ms | CPU ms a turn | times lean |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, clients, respells), run in sorted(found.items(), key=lambda item: (item[0][2], item[0][1])):
        floor = found["lean reference", clients, respells]
        spelled = ", spelled anew" if respells else ""
        lines.append(
            f"| {name}{spelled} | {clients} | {run.rate:.0f} | {run.rate / floor.rate:.2f} | {run.p50:.1f} "
            f"| {run.cpu:.2f} | {run.cpu / floor.cpu:.1f} |"
        )
    return "\n".join(lines)


def page(found: str, options: argparse.Namespace) -> str:
    """The section of docs/benchmarks.md."""
    day = time.strftime("%Y-%m-%d", time.gmtime())
    return f"""## Conversations

A client resends its growing list: {TURNS} turns of 2 kB, each answered with 1 kB that is sent back as it is,
or "spelled anew" as SDKs do. Processor time is that of all threads and processes, counted until the work in
the background is done. The lean reference (`benchmarks/lean.py`) digests, counts and stores both sides as
durably as the proxy, and keeps no other promise; nginx, LiteLLM and Portkey store nothing. Upstream, load and
servers share a machine with {os.cpu_count()} cores; loads of {options.turns} turns, medians of
{options.rounds} rounds in which the servers take turns. Python {platform.python_version()}, {day}. To repeat:
`make bench-peers`, with PALIMPSEST_TEST_POSTGRES for PostgreSQL.

{found}

![Turns a second of each server, by the number of clients](images/conversations-rate.svg)

![Processor time of a turn, by the number of clients](images/conversations-cpu.svg)
"""


def drawn(found: Mapping[tuple[str, int, bool], Run]) -> dict[str, str]:
    """The pictures of the page by their names: rates, and processor times."""
    loads = {
        (f"{clients} client{'s' * (clients > 1)}{', spelled anew' * respells}", name): run
        for (name, clients, respells), run in sorted(found.items(), key=lambda item: item[0][1:])
    }
    rates = bars_of("Turns a second", {load: run.rate for load, run in loads.items()}, 0)
    cpu = bars_of("Processor time of a turn, ms", {load: run.cpu for load, run in loads.items()}, 2)
    return {"conversations-rate.svg": rates, "conversations-cpu.svg": cpu}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; some four minutes without peers."""
    parser = argparse.ArgumentParser(prog="benchmarks conversations", description=__doc__)
    parser.add_argument("--clients", default="1,16,64,256")
    parser.add_argument("--turns", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--postgres", default=os.environ.get("PALIMPSEST_TEST_POSTGRES"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        upstream = stack.enter_context(trivial_upstream(Speaker))
        running = {name: stack.enter_context(start(upstream)) for name, start in servers(options).items()}
        found = uvloop.run(measured(running, upstream, options))
    section = page(table(found), options)
    print(section)
    if options.write:
        with suppress(FileNotFoundError):
            PAGE.write_text(written(PAGE.read_text(), section))
            for name, picture in drawn(found).items():
                (PAGE.parent / "images" / name).write_text(picture)


if __name__ == "__main__":
    main()
