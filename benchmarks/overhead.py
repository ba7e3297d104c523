"""What the proxy adds to a request: latency, throughput, processor time, beside asking directly.

    python -m benchmarks overhead [--rounds 3] [--seconds 1] [--write]

A trivial upstream, the proxy and the load are three processes on one machine and share its cores. Direct and
proxied runs take turns; figures are medians over the rounds, so that a busy neighbour disturbs both alike.
`--write` puts them into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks.load import Talk, load
from benchmarks.servers import FRAMES, Proxy, palimpsest, trivial_upstream

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
CLIENTS = (1, 16, 64)
TALKS = {
    "one question": Talk(),
    "20 turns, whole past": Talk(turns=20),
    f"one question, {FRAMES} frames at once": Talk(pace=0),
    f"20 turns, {FRAMES} frames, one every 20 ms": Talk(turns=20, pace=20),
}
# Who is compared on "one question": the same proxy with parts left out.
DESIGNS = ("direct", "passthrough (stores nothing)", "synchronous=NORMAL", "as shipped")
LONG = Talk(turns=1_000, past=2_000)


@dataclass(frozen=True, slots=True)
class Run:
    """One load on one server; milliseconds, CPU milliseconds of the proxy a request."""

    p50: float
    p95: float
    first: float
    chunk: float
    rate: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Target:
    """Where a load goes."""

    port: int
    talk: Talk
    proxy: Proxy | None = None


class Bench:
    """The servers, and how long each load lasts. Every conversation in it is another one."""

    def __init__(self, upstream: int, shipped: Proxy, normal: Proxy, options: argparse.Namespace) -> None:
        self._upstream = upstream
        self._shipped = shipped
        self._normal = normal
        self._seconds: float = options.seconds
        self._rounds: int = options.rounds
        self._numbers = itertools.count()

    async def pair(self, talk: Talk, clients: int) -> tuple[list[Run], list[Run]]:
        """Direct and proxied runs, in turns."""
        targets = (Target(self._upstream, talk), Target(self._shipped.port, talk, self._shipped))
        direct, proxied = await self._in_turns(targets, clients)
        return direct, proxied

    async def designs(self, clients: int) -> list[list[Run]]:
        """Runs of every design, in turns."""
        around = Talk(path="/v1/embeddings")
        targets = (
            Target(self._upstream, Talk()),
            Target(self._shipped.port, around, self._shipped),
            Target(self._normal.port, Talk(), self._normal),
            Target(self._shipped.port, Talk(), self._shipped),
        )
        return await self._in_turns(targets, clients)

    async def _in_turns(self, targets: Sequence[Target], clients: int) -> list[list[Run]]:
        runs: list[list[Run]] = [[] for _ in targets]
        # One more: the first is to warm up.
        for _ in range(self._rounds + 1):
            for target, its in zip(targets, runs, strict=True):
                its.append(await self._run(target, clients))
        return [its[1:] for its in runs]

    async def _run(self, target: Target, clients: int) -> Run:
        cpu = target.proxy.cpu_seconds if target.proxy else lambda: 0.0
        seen = await load(target.port, target.talk, clients, self._seconds, cpu, self._numbers)
        return Run(
            p50=_share(seen.answers, 0.5),
            p95=_share(seen.answers, 0.95),
            first=_share(seen.firsts, 0.5),
            chunk=_share(seen.ages, 0.5),
            rate=len(seen.answers) / seen.seconds,
            cpu=seen.cpu_seconds * 1e3 / len(seen.answers),
        )


def _share(nanoseconds: list[int], share: float) -> float:
    ordered = sorted(nanoseconds)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e6 if ordered else 0.0


def median(runs: Iterable[Run], of: Callable[[Run], float]) -> float:
    """The median of one figure over the rounds."""
    return statistics.median(map(of, runs))


def added(direct: Sequence[Run], proxied: Sequence[Run], of: Callable[[Run], float]) -> float:
    """The median over the rounds of what the proxied run took more than the direct one beside it."""
    return statistics.median(of(b) - of(a) for a, b in zip(direct, proxied, strict=True))


def plain_row(name: str, clients: int, direct: Sequence[Run], proxied: Sequence[Run]) -> str:
    """A row of the table of answers in one piece."""
    rate = median(proxied, lambda run: run.rate)
    return (
        f"| {name} | {clients} | {added(direct, proxied, lambda run: run.p50):.2f} "
        f"| {added(direct, proxied, lambda run: run.p95):.2f} | {rate:.0f} "
        f"| {rate / median(direct, lambda run: run.rate):.2f} | {median(proxied, lambda run: run.cpu):.2f} |"
    )


def stream_row(name: str, clients: int, direct: Sequence[Run], proxied: Sequence[Run]) -> str:
    """A row of the table of streamed answers."""
    return (
        f"| {name} | {clients} | {added(direct, proxied, lambda run: run.first):.2f} "
        f"| {added(direct, proxied, lambda run: run.chunk):.2f} "
        f"| {median(proxied, lambda run: run.rate):.0f} | {median(proxied, lambda run: run.cpu):.2f} |"
    )


def design_row(name: str, clients: int, direct: Sequence[Run], runs: Sequence[Run]) -> str:
    """A row of the table of designs: latency and CPU time as they are, rate relative to direct."""
    rate = median(runs, lambda run: run.rate)
    return (
        f"| {name} | {clients} | {median(runs, lambda run: run.p50):.2f} | {rate:.0f} "
        f"| {rate / median(direct, lambda run: run.rate):.3f} | {median(runs, lambda run: run.cpu):.2f} |"
    )


async def tables(bench: Bench) -> str:
    """All measurements, as the text of the page; every row is printed when it is there."""
    lines = [
        "| in one piece | clients | p50 added, ms | p95 added, ms | requests/s | of direct | CPU ms each |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, talk in TALKS.items():
        if talk.pace is None:
            lines += [plain_row(name, n, *await bench.pair(talk, n)) for n in CLIENTS]
            print("\n".join(lines[-3:]), flush=True)
    lines.append(plain_row("2,000 messages, 2.9 MB, known", 1, *await bench.pair(LONG, 1)))
    print(lines[-1], flush=True)
    lines += [
        "",
        "| streamed | clients | first byte added, ms | frame p50 added, ms | answers/s | CPU ms/answer |",
        "|---|---|---|---|---|---|",
    ]
    for name, talk in TALKS.items():
        if talk.pace is not None:
            lines += [stream_row(name, n, *await bench.pair(talk, n)) for n in CLIENTS]
            print("\n".join(lines[-3:]), flush=True)
    lines += ["", "| design, one question | clients | p50, ms | requests/s | of direct | CPU ms/request |"]
    lines.append("|---|---|---|---|---|---|")
    for clients in (1, 64):
        measured = await bench.designs(clients)
        rows = zip(DESIGNS, measured, strict=True)
        lines += [design_row(name, clients, measured[0], runs) for name, runs in rows]
        print("\n".join(lines[-4:]), flush=True)
    return "\n".join(lines)


def page(measured: str, options: argparse.Namespace) -> str:
    """The section of docs/benchmarks.md."""
    return f"""## Overhead

Upstream, proxy and load are three processes on one machine with {os.cpu_count()} cores, the upstream answers
at once, the database is SQLite with `synchronous=FULL`. Direct and proxied runs take turns; figures are
medians of {options.rounds} rounds of {options.seconds:g} s. "Added" is against the direct run beside it, CPU
time is the proxy's alone, all threads. Every client asks once before the clock starts.
Python {platform.python_version()}, {time.strftime("%Y-%m-%d", time.gmtime())}. To repeat:
`python -m benchmarks overhead --write`.

{measured}
"""


def written(text: str, section: str) -> str:
    """The page with its section of the same heading replaced, or with `section` at its end."""
    heading = section.partition("\n")[0]
    found = re.search(rf"^{re.escape(heading)}\n.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        return f"{text.rstrip()}\n\n{section}"
    rest = text[found.end() :]
    return text[: found.start()] + section + ("\n" + rest if rest else "")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; about five minutes with the defaults."""
    parser = argparse.ArgumentParser(prog="benchmarks overhead", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        upstream = stack.enter_context(trivial_upstream())
        shipped = stack.enter_context(palimpsest(upstream))
        normal = stack.enter_context(palimpsest(upstream, "normal"))

        async def measure() -> str:
            # Whatever hangs, the measurement ends.
            async with asyncio.timeout(15 * 60):
                return await tables(Bench(upstream, shipped, normal, options))

        section = page(uvloop.run(measure()), options)
    if options.write:
        text = PAGE.read_text() if PAGE.exists() else "# Benchmarks\n"
        PAGE.write_text(written(text, section))
        print(f"written to {PAGE}")


if __name__ == "__main__":
    main()
