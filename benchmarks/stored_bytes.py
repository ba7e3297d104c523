"""What keeping a namespace's total of bytes adds to a turn's commits, and what the check of a bound costs.

    python -m benchmarks.stored_bytes [--url postgresql://...] [--seconds 3] [--rounds 5]

One caller, and sixteen, store the same turns with and without the triggers of `bodies`, in turns: the medians
of the rounds are compared, since a neighbour's work differs from round to round.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
import uuid
from functools import partial
from pathlib import Path

from palimpsest.core.budget.quota import StorageBound
from palimpsest.proxy.stored_bytes import StorageBounds
from palimpsest.storage.migrate import migrate, with_connection
from palimpsest.storage.store import Store, open_store
from sqlalchemy import Connection, text

from benchmarks.store_writes import talk

CALLERS = (1, 16)
CHECKS = 2_000


def switched(connection: Connection, *, on: bool, kept: list[str]) -> None:
    """The triggers of `bodies` count, or they do not; `kept` holds SQLite's texts of them."""
    if connection.dialect.name == "postgresql":
        verb = "ENABLE" if on else "DISABLE"
        connection.execute(text(f"ALTER TABLE bodies {verb} TRIGGER USER"))
    elif on:
        for made in kept:
            connection.execute(text(made))
        kept.clear()
    else:
        triggers = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'bodies'"
        for name, made in list(connection.execute(text(triggers))):
            kept.append(made)
            connection.execute(text(f"DROP TRIGGER {name}"))
    connection.commit()


async def turns(store: Store, callers: int, seconds: float) -> tuple[float, float]:
    """The median time of a commit, and its CPU in this process, in microseconds."""
    commits: list[float] = []
    begun, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(talk(store, begun + seconds, commits) for _ in range(callers)))
    return statistics.median(commits) * 1e6, (time.process_time() - cpu) / len(commits) * 1e6


async def compared(store: Store, url: str, seconds: float, rounds: int) -> None:
    """Turns with and without the triggers."""
    kept: list[str] = []
    for callers in CALLERS:
        found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        for _ in range(rounds):
            for on in (False, True):
                await with_connection(url, partial(switched, on=on, kept=kept))
                found[on].append(await turns(store, callers, seconds))
        for on, name in ((False, "without triggers"), (True, "with triggers")):
            took, cpu = (statistics.median(column) for column in zip(*found[on], strict=True))
            print(f"{callers:3} callers, {name:17} commit p50 {took:7.0f} us, {cpu:5.0f} us CPU")


async def checked(store: Store, most: int, name: str) -> None:
    """The time of a check."""
    bounds, bound = StorageBounds(store.body_bytes), StorageBound("n", most)
    begun = time.perf_counter()
    for _ in range(CHECKS):
        await bounds.admit(bound, 10_000)
    print(f"check, {name:22} {(time.perf_counter() - begun) / CHECKS * 1e6:7.1f} us")


async def run(url: str, seconds: float, rounds: int) -> None:
    """The whole measurement."""
    await migrate(url)
    store = await open_store(url, deadline_seconds=60, new_id=lambda: uuid.uuid4().hex)
    try:
        await compared(store, url, seconds, rounds)
        await store.body_bytes.add_up()
        stored = await store.body_bytes.of("n")
        await checked(store, 10**15, "far below the bound")
        await checked(store, stored + 1, "near the bound")
    finally:
        await store.close()


def main() -> None:
    """The command line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--url")
    options.add_argument("--seconds", type=float, default=3)
    options.add_argument("--rounds", type=int, default=5)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.url or f"sqlite:///{Path(folder) / 'bench.db'}"
        asyncio.run(run(url, given.seconds, given.rounds))


if __name__ == "__main__":
    main()
