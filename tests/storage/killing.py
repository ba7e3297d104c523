"""A writer that is killed: what it acknowledged must be stored, whenever the kill comes.

`python -m tests.storage.killing --kills 200` repeats it; the suite does so a few times. The child
writes from many tasks and prints a line for each request after the store said it is durable. The
control prints before it asks the store, and must be caught.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path

from palimpsest.storage.address import sqlite_path
from palimpsest.storage.migrate import migrate
from palimpsest.storage.sqlite.driver import driver
from palimpsest.storage.store import Store, open_store

from tests.storage.talk import Talk

WRITERS = 16
MESSAGES = 3
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Aftermath:
    """What one kill left: acknowledged requests, those of them that are missing, half-stored ones."""

    acknowledged: int
    missing: int
    torn: int
    sound: bool


def bodies_of(name: str) -> list[bytes]:
    return [f"{name} message {i} {'x' * 200}".encode() for i in range(MESSAGES)]


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def write_forever(store: Store, writer: int, *, broken: bool) -> None:
    """Requests of three messages each, in a session of their own, named on stdout when durable."""
    for i in range(1_000_000):
        name = f"{writer}-{i}"
        if broken:
            say(name)
        await Talk(store, session=name).asks(bodies_of(name))
        if not broken:
            say(name)


async def child(url: str, *, broken: bool) -> None:
    store = await open_store(url, deadline_seconds=60, new_id=lambda: uuid.uuid4().hex)
    await asyncio.gather(*(write_forever(store, i, broken=broken) for i in range(WRITERS)))


async def kill_once(url: str, rng: random.Random, *, broken: bool = False) -> Aftermath:
    """One child on an empty, migrated database, killed after a random number of lines."""
    arguments = ["-m", "tests.storage.killing", "--child", url, *(["--broken"] if broken else [])]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    # Whole groups are acknowledged at once: a few lines more or less fall inside a commit or between.
    lines = [await process.stdout.readline() for _ in range(rng.randrange(1, 200))]
    process.send_signal(signal.SIGKILL)
    lines += (await process.stdout.read()).splitlines(keepends=True)
    await process.wait()
    return await _examined(url, [line.decode().strip() for line in lines if line.endswith(b"\n")])


async def _examined(url: str, acknowledged: list[str]) -> Aftermath:
    store = await open_store(url, deadline_seconds=60, new_id=lambda: uuid.uuid4().hex)
    stored: dict[str, int] = {}
    before = None
    while page := await store.history.sessions("ns", 500, before):
        stored.update((row.id, row.messages) for row in page)
        before = page[-1].id
    missing = 0
    for name in acknowledged:
        said = bodies_of(name)
        talk = Talk(store, session=name)
        missing += await talk.said(said) != said
    await store.close()
    torn = sum(messages != MESSAGES for messages in stored.values())
    return Aftermath(len(acknowledged), missing, torn, _is_sound(url))


def _is_sound(url: str) -> bool:
    path = sqlite_path(url)
    if path is None:
        return True
    connection = driver.connect(path)
    verdict = connection.execute("PRAGMA integrity_check").fetchall()
    connection.close()
    return bool(verdict == [("ok",)])


async def repeat(kills: int, *, broken: bool) -> None:
    rng = random.Random(1)
    acknowledged = missing = torn = unsound = 0
    for _ in range(kills):
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{Path(folder) / 'store.db'}"
            await migrate(url)
            after = await kill_once(url, rng, broken=broken)
        acknowledged += after.acknowledged
        missing += after.missing
        torn += after.torn
        unsound += not after.sound
    say(
        f"{kills} kills: {acknowledged} acknowledged, {missing} missing, {torn} torn, {unsound} damaged files"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--child")
    options.add_argument("--kills", type=int, default=200)
    options.add_argument("--broken", action="store_true")
    given = options.parse_args()
    if given.child:
        asyncio.run(child(given.child, broken=given.broken))
    else:
        asyncio.run(repeat(given.kills, broken=given.broken))


if __name__ == "__main__":
    main()
