"""`palimpsest db copy` of many messages, to PostgreSQL and back, each killed in the middle and resumed.

    python -m benchmarks copying [--messages 100000] [--postgres postgresql://user@host/postgres]

A database of conversations, compacted ones among them, is made by a proxy that runs. What comes back must be
the rows that went, table by table. `--broken` changes a row of the first target after the kill, which must be
noticed. Needs PostgreSQL, in which a database is made and dropped again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from palimpsest.storage.copying import COPIED
from palimpsest.storage.migrate import schema_state
from palimpsest.storage.sqlite.driver import Connection, driver, readonly

from benchmarks.servers import palimpsest, trivial_upstream
from tests.kit.postgres import asked, empty_database, executed, server_address
from tests.kit.processes import Process

# A session's messages in the made database.
_IN_A_SESSION = 5_000
_KILLED = -9
_LOOK_SECONDS = 0.01


@dataclass(frozen=True)
class Copied:
    """Seconds until the kill, and of the copy that finished."""

    killed_after: float
    resumed: float


def make_database(folder: Path, messages: int) -> str:
    """A database in `folder`, with at least so many messages; returns its address."""
    window = {"WINDOW__WINDOW_TOKENS": "20000"}
    with trivial_upstream() as upstream, palimpsest(upstream, others=window, kept_in=str(folder)) as proxy:
        for number in range(max(1, messages // _IN_A_SESSION)):
            _says(proxy.port, f"session {number}", min(messages, _IN_A_SESSION))
    return f"sqlite:///{folder / 'palimpsest.db'}"


def _says(port: int, session: str, messages: int) -> None:
    """A conversation is brought whole; the second turn is one more."""
    said: list[dict[str, str]] = [
        {"role": ("user", "assistant")[at % 2], "content": f"{session}, message {at}. {'word ' * (at % 60)}"}
        for at in range(messages - 3 | 1)
    ]
    for _ in range(2):
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/chat/completions",
            json.dumps({"model": "m", "messages": said}).encode(),
            {"content-type": "application/json", "x-session-id": session},
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            said += [json.load(answer)["choices"][0]["message"], {"role": "user", "content": "And then?"}]


async def killed_and_resumed(
    source: str, target: str, folder: Path, half: int, broken: Callable[[], None] | None = None
) -> Copied:
    """Copy `source` to `target`, kill the command once `half` messages are there, and run it again.

    AssertionError when the first one was not killed in the middle, or the second does not end with 0.
    """
    settings = {"PALIMPSEST_DATABASE__URL": source, "PALIMPSEST_DATABASE__DATA_FOLDER": str(folder)}
    began = time.monotonic()
    first = Process(folder, "db", "copy", target, settings=settings, out=folder / "out", err=folder / "err")
    while first.returncode is None and await _messages(target) < half:  # noqa: ASYNC110 - a process's work
        await asyncio.sleep(_LOOK_SECONDS)
    first.send_signal(9)
    assert await first.wait() == _KILLED, (folder / "err").read_text()
    killed_after = time.monotonic() - began
    assert await schema_state(target) == "unfinished"
    if broken is not None:
        await asyncio.to_thread(broken)
    began = time.monotonic()
    second = Process(folder, "db", "copy", target, settings=settings, out=folder / "out", err=folder / "err")
    assert await second.wait() == 0, (folder / "err").read_text()
    return Copied(killed_after, time.monotonic() - began)


async def _messages(url: str) -> int:
    """The messages that are there so far; 0 before there is a table."""
    try:
        if url.startswith("postgresql://"):
            return int(str((await asked(url, "SELECT count(*) FROM messages"))[0][0]))
        with closing(readonly(Path(url.removeprefix("sqlite:///")), 5)) as connection:
            return int(connection.execute("SELECT count(*) FROM messages").fetchone()[0])
    except Exception as missing:
        if "messages" not in str(missing) and "unable to open" not in str(missing):
            raise
        return 0


def different_tables(one: str, other: str) -> list[str]:
    """The tables of which two SQLite files do not have the same rows, in SQLite's own comparison."""
    with closing(driver.connect(one.removeprefix("sqlite:///"))) as connection:
        connection.execute("ATTACH ? AS other", [other.removeprefix("sqlite:///")])
        return [table.name for table in COPIED if any(_counts(connection, table.name))]


def _counts(connection: Connection, table: str) -> list[int]:
    ways = (("main", "other"), ("other", "main"))
    return [
        connection.execute(
            f"SELECT count(*) FROM (SELECT * FROM {here}.{table} EXCEPT SELECT * FROM {there}.{table})"
        ).fetchone()[0]
        for here, there in ways
    ]


async def _measure(messages: int, postgres: str, *, is_broken: bool) -> None:
    with tempfile.TemporaryDirectory() as named:
        folder = Path(named)
        source, back = (
            await asyncio.to_thread(make_database, folder, messages),
            f"sqlite:///{folder / 'back.db'}",
        )
        async with empty_database(postgres) as target:

            def broken() -> None:
                asyncio.run(executed(target, "UPDATE messages SET tokens = tokens + 1"))

            half = messages // 2
            there = await killed_and_resumed(source, target, folder, half, broken if is_broken else None)
            here = await killed_and_resumed(target, back, folder, half)
        differing = await asyncio.to_thread(different_tables, source, back)
        print("| copy | messages | killed after, s | resumed and compared, s | in all, s |")
        print("|---|---|---|---|---|")
        for name, took in (("SQLite to PostgreSQL", there), ("PostgreSQL to SQLite", here)):
            parts = f"{took.killed_after:.1f} | {took.resumed:.1f} | {took.killed_after + took.resumed:.0f}"
            print(f"| {name} | {messages:,} | {parts} |")
        print(f"tables that differ after both: {differing or 'none'}")
        sys.exit(bool(differing))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--postgres", default=server_address())
    parser.add_argument("--broken", action="store_true", help="the control: must end with an error")
    options = parser.parse_args()
    asyncio.run(_measure(options.messages, options.postgres, is_broken=options.broken))
