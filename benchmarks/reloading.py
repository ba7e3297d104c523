"""What a reload of the settings takes, and what clients notice of it.

    python -m benchmarks reloading [--rounds 5] [--seconds 2] [--clients 8]

A real process under a steady load, in turns left alone and told to reload four times a second, each time with
another setting changed. Printed: from the SIGHUP to the log line `reloaded`; and milliseconds of an answer
without and with reloads, all rounds together. No answer may be anything but whole.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import tempfile
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from benchmarks.load import Talk, load
from benchmarks.servers import Proxy, trivial_upstream
from tests.kit.reloading import Reloadable, reloadable

_PAUSE_SECONDS = 0.25


async def _reloading(proxy: Reloadable, upstream: dict[str, str], took: list[float]) -> None:
    """Reload again and again, until cancelled; how long each took, in seconds."""
    for number in itertools.cycle(range(64, 128)):
        proxy.write(upstream=upstream, limits={"json_depth": number})
        began = time.time()
        said = await proxy.hang_up()
        took.append(datetime.fromisoformat(said["timestamp"]).timestamp() - began)
        await asyncio.sleep(_PAUSE_SECONDS)


async def _measured(folder: Path, rounds: int, seconds: float, clients: int) -> None:
    took: list[float] = []
    answers: dict[bool, list[float]] = {False: [], True: []}
    with trivial_upstream() as port:
        upstream = {"base_url": f"http://127.0.0.1:{port}/v1"}
        async with reloadable(folder, upstream=upstream) as proxy:
            measured, numbers = Proxy(proxy.port, proxy.running.process.pid), itertools.count()
            for number in range(2 * rounds):
                reloads = bool(number % 2)
                task = asyncio.create_task(_reloading(proxy, upstream, took)) if reloads else None
                seen = await load(proxy.port, Talk(), clients, seconds, measured.cpu_seconds, numbers)
                answers[reloads] += [nanoseconds / 1e6 for nanoseconds in seen.answers]
                if task is not None:
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task
    print(
        f"{len(took)} reloads: median {1e3 * statistics.median(took):.0f} ms, most {1e3 * max(took):.0f} ms\n"
    )
    print("| answers | number | p50, ms | p99, ms | longest, ms |\n|---|---|---|---|---|")
    for reloads, each in answers.items():
        cuts = statistics.quantiles(each, n=100)
        name = "with reloads" if reloads else "left alone"
        print(f"| {name} | {len(each):,} | {cuts[49]:.1f} | {cuts[98]:.1f} | {max(each):.1f} |")


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--clients", type=int, default=8)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measured(Path(folder), given.rounds, given.seconds, given.clients))


if __name__ == "__main__":
    main()
