"""What the index of words costs the writer, what a search takes, and how large the index is.

    python -m benchmarks recall_store [--seconds 6] [--entries 1000,10000,100000] [--postgres URL]

Messages have 100 words, two fifths of them small ones that are not looked for, the others of 30,000 that are
as unequally common as those of a language. Searches have 1 to 12 of those, common ones more often. With
`--postgres` the same on a database that is made on that server and dropped. About four minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import random
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

import asyncpg
from palimpsest.core.recall.words import STOP, Words
from palimpsest.storage.exchange_units import StoredMessage
from palimpsest.storage.migrate import migrate, with_connection
from palimpsest.storage.search import Indexed, RecallRow, Stretch
from palimpsest.storage.store import Store, open_store
from sqlalchemy import Connection, text

from benchmarks.store_writes import opening, talk

WORDS = 30_000
WORDS_EACH = 60
SMALL_WORDS_EACH = 40
SMALL = sorted(STOP)
CALLERS = 8
ROUNDS = 3
# Messages that wait to be indexed while the writer is measured.
BACKLOG = 4_000
STORED_AT_ONCE = 2_000
READ_AT_ONCE = 512
# As the program adds them: others' writes wait meanwhile.
ADDED_AT_ONCE = 64
# How long the indexing rests, as a share of the time that it worked.
PAUSES = (0.0, 2.0)
SEARCHES = 40


class Language:
    """Texts, always the same ones."""

    def __init__(self) -> None:
        self._random = random.Random(1)
        letters = "abcdefghijklmnopqrstuvwxyz"
        self._words = [
            "".join(self._random.choices(letters, k=self._random.randint(3, 9))) for _ in range(WORDS)
        ]
        self._common = list(itertools.accumulate(1 / (i + 20) for i in range(WORDS)))

    def said(self, count: int) -> list[str]:
        """So many words."""
        return self._random.choices(self._words, cum_weights=self._common, k=count)

    def text(self) -> str:
        """The text of a message."""
        words = self.said(WORDS_EACH) + self._random.choices(SMALL, k=SMALL_WORDS_EACH)
        self._random.shuffle(words)
        return " ".join(words)


def messages(language: Language, count: int, parent: bytes, first: int) -> list[StoredMessage]:
    """So many messages, one after the other."""
    made = []
    for depth in range(first, first + count):
        body = f'{{"role":"user","content":"{language.text()}"}}'.encode()
        digest = hashlib.sha256(body).digest()
        chain = hashlib.sha256(parent + digest).digest()
        made.append(StoredMessage(chain, parent, digest, "user", 80, depth, 0, body, digest))
        parent = chain
    return made


async def filled(store: Store, language: Language, session: str, count: int) -> bytes:
    """The session has so many messages; the last one's chain."""
    parent = b""
    for first in range(0, count, STORED_AT_ONCE):
        said = messages(language, min(STORED_AT_ONCE, count - first), parent, first + 1)
        await store.exchanges.open(opening(session, said, parent))
        parent = said[-1].chain
    return parent


class Catching:
    """Indexes as the program does. `pause`: how long it rests, as a share of the time that it worked."""

    def __init__(self, store: Store, words: Callable[[str], Sequence[str]], pause: float = 0.0) -> None:
        self._store = store
        self._words = words
        self._pause = pause
        self.entries = 0

    async def up(self, session: str) -> None:
        """The whole session is indexed."""
        while missing := await self._store.search.unindexed("n", session, READ_AT_ONCE):
            after, rows = missing.after, missing.rows
            for start in range(0, max(1, len(rows)), ADDED_AT_ONCE):
                begun = time.perf_counter()
                part = rows[start : start + ADDED_AT_ONCE]
                is_last = start + ADDED_AT_ONCE >= len(rows)
                upto = missing.upto if is_last else part[-1].arrival
                entries = await asyncio.to_thread(self._entries, part)
                await self._store.search.index("n", session, Stretch(0, after, upto), entries)
                after = upto
                self.entries += len(part)
                await asyncio.sleep(self._pause * (time.perf_counter() - begun))

    def _entries(self, rows: Sequence[RecallRow]) -> list[Indexed]:
        return [(row.arrival, self._words(row.body.decode())) for row in rows]


async def rate(store: Store, seconds: float) -> float:
    """Commits a second of callers who each write to a session."""
    commits: list[float] = []
    begun = time.perf_counter()
    await asyncio.gather(*(talk(store, begun + seconds, commits) for _ in range(CALLERS)))
    return len(commits) / (time.perf_counter() - begun)


async def writer_beside(store: Store, language: Language, seconds: float) -> None:
    """How much of its rate the writer keeps while a long session is indexed, made of real words."""
    words, kept = Words(), {pause: list[float]() for pause in PAUSES}
    for i in range(ROUNDS):
        for pause in PAUSES:
            session = f"waits{i}{pause}"
            await filled(store, language, session, BACKLOG)
            alone = await rate(store, seconds / ROUNDS)
            catching = Catching(store, words.of, pause)
            busy = asyncio.create_task(catching.up(session))
            beside = await rate(store, seconds / ROUNDS)
            is_over = busy.done()
            busy.cancel()
            await asyncio.gather(busy, return_exceptions=True)
            kept[pause].append(beside / alone)
            done = f"{catching.entries} entries{', all' if is_over else ''}"
            print(
                f"writer alone {alone:6.0f} commits/s, beside the indexing {beside:6.0f}"
                f" ({beside / alone:.2f}), which rests {pause:.0f} x its work: {done}"
            )
    for pause, shares in kept.items():
        print(
            f"kept of the rate, median, resting for {pause:.0f} x the work: {statistics.median(shares):.2f}"
        )


async def timed(
    name: str, read: Callable[[], Coroutine[object, object, object]], times: int = SEARCHES
) -> None:
    """The times of so many calls."""
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        await read()
        taken.append((time.perf_counter() - begun) * 1e3)
    cuts = statistics.quantiles(taken, n=20)
    print(f"{name:34} p50 {cuts[9]:7.1f} ms p95 {cuts[18]:7.1f} ms", flush=True)


def large_words(body: str) -> list[str]:
    """The made-up words of a body as they are: stems would take most of the time, and change nothing."""
    return [word for word in body.split('"')[7].split() if word not in STOP]


async def searches(url: str, store: Store, language: Language, count: int) -> None:
    """A session of so many messages: filling its index, and searching it."""
    session = f"of{count}"
    head = await filled(store, language, session, count)
    begun = time.perf_counter()
    await Catching(store, large_words).up(session)
    took = time.perf_counter() - begun
    await with_connection(url, _analyzed)
    print(f"\n{count:,} entries: read and added in {took:.1f} s, {count / took:,.0f} a second")
    for words in (1, 4, 12):
        await timed(
            f"found, {words} words, the best 200",
            lambda words=words: store.search.find("n", session, language.said(words), 200),  # type: ignore[misc]
        )
    await timed(
        "found in the namespace, 4 words", lambda: store.search.find("n", None, language.said(4), 200)
    )
    some = (await store.search.find("n", session, language.said(12), 200)).rows
    chains = [row.chain for row in some]
    await timed("path", lambda: store.history.path("n", session, head), 20)
    await timed(f"those {len(chains)}", lambda: store.search.those("n", session, chains), 20)
    await timed("scanned for what is nowhere", lambda: store.search.scan("n", [session], _is_nowhere, 10), 10)


def _is_nowhere(row: RecallRow) -> bool:
    return b"\0" in row.body


def _analyzed(connection: Connection) -> None:
    """PostgreSQL has statistics, as it has some time after such a filling."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("ANALYZE"))
        connection.commit()


async def sizes(url: str) -> None:
    """The index's bytes for each byte of the messages in it."""

    def read(connection: Connection) -> tuple[int, int]:
        index = (
            "SELECT sum(length(block)) + (SELECT sum(length(sz) + 8) FROM recall_words_docsize)"
            " FROM recall_words_data"
            if connection.dialect.name == "sqlite"
            else "SELECT pg_total_relation_size('recall_words')"
        )
        bodies = (
            "SELECT sum(length(b.body)) FROM messages m JOIN bodies b ON b.digest = m.digest"
            " AND b.namespace = m.namespace WHERE m.session LIKE 'of%'"
        )
        return int(connection.execute(text(index)).scalar_one()), int(
            connection.execute(text(bodies)).scalar_one()
        )

    index, said = await with_connection(url, read)
    print(f"\nindex: {index / 1e6:.1f} MB for {said / 1e6:.1f} MB of messages, {index / said:.2f} of them")


async def run(url: str, entries: Sequence[int], seconds: float) -> None:
    """The whole measurement on one database."""
    await migrate(url)
    store = await open_store(url, deadline_seconds=60, new_id=lambda: uuid.uuid4().hex)
    language = Language()
    try:
        for count in entries:
            await searches(url, store, language, count)
        await sizes(url)
        print()
        await writer_beside(store, language, seconds)
    finally:
        await store.close()


async def on_postgres(server: str, entries: Sequence[int], seconds: float) -> None:
    """On a database of that server, which is gone afterwards."""
    name = f"palimpsest_{uuid.uuid4().hex}"
    connection = await asyncpg.connect(server)
    try:
        await connection.execute(f'CREATE DATABASE "{name}"')
        await run(f"{server.rsplit('/', 1)[0]}/{name}", entries, seconds)
    finally:
        await connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        await connection.close()


def main() -> None:
    """The command line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=6, help="of writing, alone and beside each")
    options.add_argument("--entries", default="1000,10000,100000")
    options.add_argument("--postgres")
    given = options.parse_args()
    entries = [int(count) for count in given.entries.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        print("SQLite")
        asyncio.run(run(f"sqlite:///{Path(folder) / 'bench.db'}", entries, given.seconds))
    if given.postgres:
        print("\nPostgreSQL")
        asyncio.run(on_postgres(given.postgres, entries, given.seconds))


if __name__ == "__main__":
    main()
