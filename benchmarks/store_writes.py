"""How fast the store commits: one caller, many callers, beside computation, and what a read costs.

    python -m benchmarks.store_writes [--url sqlite:///file.db] [--seconds 5]

Rows are message rows: each exchange stores a question and an answer of 1.5 kB in two commits.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from palimpsest.core.wire.chat_answers import Usage
from palimpsest.storage.exchange_units import CloseExchange, OpenExchange, StoredMessage
from palimpsest.storage.migrate import migrate
from palimpsest.storage.sqlite_database import SqliteDatabase
from palimpsest.storage.store import Store, open_store

BODY_BYTES = 1_500
LONG = 2_000
# Alternating rounds of the two ways of one caller.
ROUNDS = 3
# What a commit of an exchange writes, about.
SYNC_BYTES = 50_000
SYNCS = 300


def message(session: str, place: int, parent: bytes, *, relayed: bool) -> StoredMessage:
    """A message of `BODY_BYTES` that no other session has."""
    body = (f"{session} {place} ".encode() * BODY_BYTES)[:BODY_BYTES]
    digest = hashlib.sha256(body).digest()
    chain = hashlib.sha256(parent + digest).digest()
    role = "assistant" if relayed else "user"
    return StoredMessage(chain, parent, digest, role, 400, place + 1, (place + 1) // 2, body, digest)


def opening(session: str, messages: list[StoredMessage], base: bytes) -> OpenExchange:
    """A request that brings `messages`."""
    return OpenExchange(
        namespace="n",
        session=session,
        external_id=None,
        exchange=uuid.uuid4().hex,
        base=base,
        head=messages[-1].chain,
        messages=messages,
        variants=(),
        rebase=None,
        preamble=(),
        preamble_digest=b"",
        model="m",
        found_by="new",
        mode="full",
        full_history=True,
        idempotency_key=None,
        started_at=time.time(),
    )


def closing(opened: OpenExchange, answer: StoredMessage) -> CloseExchange:
    """Its answer."""
    return CloseExchange(
        namespace="n",
        session=opened.session,
        exchange=opened.exchange,
        head=opened.head,
        base=opened.base,
        state="done",
        answers=[answer],
        answer_state="live",
        withdrawn=(),
        usage=Usage(),
        finish_reason="stop",
        status=200,
        view="original",
        tokens_full=1,
        tokens_forwarded=1,
        compaction=None,
        finished_at=time.time(),
    )


async def talk(store: Store, until: float, commits: list[float]) -> None:
    """Turns of one session until the time is over; the seconds of every commit are noted."""
    session, base, place = uuid.uuid4().hex, b"", 0
    while time.perf_counter() < until:
        question = message(session, place, base, relayed=False)
        opened = opening(session, [question], base)
        answer = message(session, place + 1, question.chain, relayed=True)
        for write in (store.exchanges.open(opened), store.exchanges.close(closing(opened, answer))):
            begun = time.perf_counter()
            await write
            commits.append(time.perf_counter() - begun)
        base, place = answer.chain, place + 2


async def writes(store: Store, callers: int, seconds: float, note: str = "") -> None:
    """Message rows a second and the time of a commit, with so many callers."""
    commits: list[float] = []
    begun, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(talk(store, begun + seconds, commits) for _ in range(callers)))
    took, cpu = time.perf_counter() - begun, time.process_time() - cpu
    cuts = statistics.quantiles(commits, n=100)
    print(
        f"{callers:3} callers{note}: {len(commits) / took:7.0f} message rows/s,"
        f" commit p50 {cuts[49] * 1e3:.2f} ms p99 {cuts[98] * 1e3:.2f} ms,"
        f" {cpu / len(commits) * 1e6:.0f} us CPU a commit"
    )


@contextmanager
def computing() -> Iterator[None]:
    """A thread that needs the interpreter's lock all the time, as a busy event loop does."""
    done = threading.Event()

    def compute() -> None:
        while not done.is_set():
            sum(range(1_000))

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


async def beside_computation(store: Store, seconds: float) -> None:
    """Sixteen callers beside a thread that computes, whose processor time is counted too."""
    if not isinstance(store.exchanges._db, SqliteDatabase):
        return
    before = sys.getswitchinterval()
    # As `palimpsest serve` sets it.
    sys.setswitchinterval(0.0005)
    with computing():
        await writes(store, 16, seconds, ", beside a thread that computes")
    sys.setswitchinterval(before)


async def timed(name: str, read: Callable[[], Coroutine[object, object, object]], times: int) -> None:
    """The median time of a read, and the CPU it took on all threads: neighbours disturb that less."""
    taken = []
    cpu = time.process_time()
    for _ in range(times):
        begun = time.perf_counter()
        await read()
        taken.append(time.perf_counter() - begun)
    cpu = (time.process_time() - cpu) / times
    print(f"{name:46} p50 {statistics.median(taken) * 1e6:8.0f} us, {cpu * 1e6:8.0f} us CPU")


async def reads(store: Store) -> None:
    """What the questions of a request cost, and a whole path."""
    chain, talk_ = b"", []
    for place in range(LONG):
        talk_.append(message("long", place, chain, relayed=False))
        chain = talk_[-1].chain
    begun = time.perf_counter()
    opened = opening("long", talk_, b"")
    await store.exchanges.open(opened)
    print(f"{LONG} messages in one request: {(time.perf_counter() - begun) * 1e3:.0f} ms")
    last = message("long", LONG, chain, relayed=True)
    await store.exchanges.close(closing(opened, last))
    chains = [m.chain for m in talk_]
    unknown = [hashlib.sha256(c).digest() for c in chains]
    await timed(
        "known, new conversation of 1 message", lambda: store.history.known("n", unknown[:1], None), 300
    )
    await timed(
        "known, the last answer is third from the end",
        lambda: store.history.known("n", [*chains, last.chain, *unknown[:2]], None),
        300,
    )
    await timed(f"known, {LONG} messages, none stored", lambda: store.history.known("n", unknown, None), 20)
    await timed("relayed, 8 digests, none stored", lambda: store.history.relayed("n", unknown[:8], None), 300)
    await timed("compactions, none", lambda: store.compactions.of_session("n", "long"), 300)
    await timed("session", lambda: store.history.session("n", "long"), 100)
    await timed("heads", lambda: store.history.heads("n", "long"), 100)
    await timed(f"path of {LONG}", lambda: store.history.path("n", "long", chain), 20)
    await timed(f"bodies of {LONG}", lambda: store.history.messages("n", "long", chain), 20)
    await timed(f"transcript of {LONG}", lambda: store.history.transcript("n", "long", chain), 20)


def disk(folder: Path) -> None:
    """What making a write durable costs where a file grows, and where it is written over."""
    page = os.urandom(SYNC_BYTES)
    for name, size in (("grows", 0), ("is written over", SYNCS * SYNC_BYTES)):
        file = os.open(folder / "sync.bin", os.O_CREAT | os.O_RDWR | os.O_TRUNC)
        os.pwrite(file, bytes(size), 0)
        os.fsync(file)
        taken = []
        for number in range(SYNCS):
            os.pwrite(file, page, number * SYNC_BYTES)
            begun = time.perf_counter()
            os.fdatasync(file)
            taken.append(time.perf_counter() - begun)
        os.close(file)
        print(
            f"{SYNC_BYTES:,} bytes made durable, the file {name}: p50 {statistics.median(taken) * 1e6:.0f} us"
        )


async def run(url: str, seconds: float, synchronous: str) -> None:
    """The whole measurement on one database."""
    await migrate(url)
    mode: Literal["full", "normal"] = "normal" if synchronous == "normal" else "full"
    store = await open_store(url, synchronous=mode, deadline_seconds=60, new_id=lambda: uuid.uuid4().hex)
    try:
        # A single caller commits where it is; beside an exchange that is open, the writer's thread does.
        waiting = opening("waiting", [message("waiting", 0, b"", relayed=False)], b"")
        for _ in range(ROUNDS):
            await writes(store, 1, seconds / ROUNDS, ", alone")
            await store.exchanges.open(waiting)
            await writes(store, 1, seconds / ROUNDS, ", beside an open exchange")
            await store.exchanges.close(closing(waiting, message("waiting", 1, b"", relayed=True)))
        for callers in (8, 64):
            await writes(store, callers, seconds)
        await beside_computation(store, seconds)
        await reads(store)
    finally:
        await store.close()


def main() -> None:
    """The command line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--url")
    options.add_argument("--seconds", type=float, default=3)
    options.add_argument("--synchronous", default="full")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.url or f"sqlite:///{Path(folder) / 'bench.db'}"
        disk(Path(folder))
        asyncio.run(run(url, given.seconds, given.synchronous))


if __name__ == "__main__":
    main()
