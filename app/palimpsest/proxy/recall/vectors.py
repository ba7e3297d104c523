"""Vectors of messages, made in the background and compared by searches, if `recall.vectors` is on.

A message is embedded after its words are indexed. Until then, or if the model cannot embed it, it is found by
its words alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from palimpsest.core.recall.searchable_text import own_text
from palimpsest.errors import StoreError
from palimpsest.proxy.jobs import Jobs, unless
from palimpsest.proxy.recall.indexing import MOST_DUE, REST_SHARE, RecallSwitch
from palimpsest.storage.search import RecallRow, Search, StoredVector

if TYPE_CHECKING:
    from palimpsest.embedding.minilm import Embedder

# Messages embedded before a pause: a long one takes 0.15 s of CPU (docs/decisions/0017).
_BATCH_ROWS = 8
# The newest vectors that are compared; 384 bytes each, some 20 ms for all.
_MOST_VECTORS = 10_000
# What embedding an unsuitable text may raise: numpy's errors, and words missing in the model's table.
_UNREADABLE = (ArithmeticError, LookupError, MemoryError, ValueError)
_log = structlog.get_logger("palimpsest.recall")

# A message by its session and arrival.
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class VectorMeans:
    """What vectors are made with; `stopping` ends the background work."""

    search: Search
    jobs: Jobs
    stopping: asyncio.Event
    switch: RecallSwitch


class Vectors:
    """Makes and compares vectors."""

    def __init__(self, means: VectorMeans, embedder: Embedder) -> None:
        self._means = means
        self._embedder = embedder
        self._due: set[tuple[str, str]] = set()
        # One session at a time: embedding takes a whole CPU.
        self._turn = asyncio.Lock()

    def later(self, namespace: str, session: str) -> None:
        """Queue the session for embedding in the background, with messages from before vectors were on."""
        if (namespace, session) not in self._due and len(self._due) < MOST_DUE:
            self._due.add((namespace, session))
            self._means.jobs.start(self._caught_up(namespace, session))

    async def alike(self, namespace: str, session: str | None, text: str) -> Mapping[Place, float]:
        """Cosines above 0 between a text and the messages of the session (None: of the namespace).

        Compares the newest 10,000 messages that have a vector. StoreError.
        """
        kept = await self._means.search.vectors(namespace, session, _MOST_VECTORS)
        if not kept or not text.strip():
            return {}
        return await asyncio.to_thread(self._compared, text, kept)

    def _compared(self, text: str, kept: Sequence[StoredVector]) -> dict[Place, float]:
        try:
            cosines = self._embedder.cosines(text, [each.vector for each in kept])
        except _UNREADABLE as error:
            _log.warning("embedding_failed", error=type(error).__name__)
            return {}
        pairs = zip(kept, cosines, strict=True)
        return {(each.session, each.arrival): cosine for each, cosine in pairs if cosine > 0}

    async def _caught_up(self, namespace: str, session: str) -> None:
        is_left = True
        try:
            while is_left and not self._means.stopping.is_set():
                async with self._turn:
                    # What is indexed from here on queues the session again.
                    self._due.discard((namespace, session))
                    began = time.monotonic()
                    is_left = await self._went_on(namespace, session)
                    rest = asyncio.sleep(REST_SHARE * (time.monotonic() - began))
                    await unless(self._means.stopping, rest)
        except StoreError as error:
            _log.warning("embedding_failed", error=type(error).__name__, session=session)
        finally:
            self._due.discard((namespace, session))

    async def _went_on(self, namespace: str, session: str) -> bool:
        """Embed the next messages; False when there were none, or recall is switched off."""
        search = self._means.search
        if not await self._means.switch.is_on(namespace, session):
            return False
        missing = await search.unembedded(namespace, session, _BATCH_ROWS)
        if missing is None:
            return False
        vectors = await asyncio.to_thread(self._vectors, missing.rows)
        return await search.embed(namespace, session, missing.epoch, vectors)

    def _vectors(self, rows: Sequence[RecallRow]) -> dict[int, bytes]:
        return {row.arrival: self._vector(row) for row in rows}

    def _vector(self, row: RecallRow) -> bytes:
        """The row's vector; empty for a message without text of its own, or one that cannot be embedded."""
        text = own_text(row.body)
        try:
            return self._embedder.packed(text) if text.strip() else b""
        except _UNREADABLE as error:
            _log.warning("embedding_failed", error=type(error).__name__, session=row.session)
            return b""
