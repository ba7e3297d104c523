"""Keeps the search index up with what is recorded: a little later, or when somebody searches.

Knows nothing of what is looked for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from weakref import WeakValueDictionary

import structlog

from app.core.recall.reading import message_text, own_text, summary_text
from app.core.recall.words import Words
from app.errors import StoreError
from app.proxy.fair_places import FairPlaces
from app.proxy.jobs import Jobs, unless
from app.proxy.recall.switch import RecallSwitch
from app.storage.contract import Store
from app.storage.recall.contract import Indexed, RecallRow, Stretch

# An answer's session is indexed so much later: turns that follow at once are indexed together (seconds).
DELAY_SECONDS = 2.0
# Sessions that wait to be indexed; of more a search reads what is missing when it is asked.
MOST_DUE = 2_000
# Rows indexed before a rest, and entries written in one transaction: others' writes wait for the latter.
_READ_ROWS = 128
_WRITTEN_ROWS = 64
# Beside the turns it rests so many times as long as it worked: making words takes the interpreter from the
# turns. A writer keeps 0.75 of its rate so, and 0.27 of it without a rest (docs/benchmarks.md).
_REST_SHARE = 2.0
_log = structlog.get_logger("palimpsest.recall")


class Indexing:
    """One for the application."""

    def __init__(self, store: Store, jobs: Jobs, stopping: asyncio.Event, switch: RecallSwitch) -> None:
        self._store = store
        self._jobs = jobs
        self._stopping = stopping
        self._switch = switch
        self._words = Words()
        # One at a time: indexing must not crowd turns out. Each namespace has its turn.
        self._turn = FairPlaces(1)
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._due: set[tuple[str, str]] = set()
        # Of what is indexed beside the turns only one session's rows are in memory.
        self._behind = asyncio.Lock()

    def later(self, namespace: str, session: str) -> None:
        """The session is indexed soon, once for all that is recorded until then."""
        key = namespace, session
        if self._store.has_index and key not in self._due and len(self._due) < MOST_DUE:
            self._due.add(key)
            self._jobs.start(self._soon(namespace, session))

    def forget(self) -> None:
        """No word that was read is remembered (P6)."""
        self._words.forget()

    async def drop(self, namespace: str, session: str) -> None:
        """Nothing of the session is in the index: recall was switched off for it. StoreError.

        Its words are removed a little later. Switched on again, it is indexed from its beginning.
        """
        async with self._lock(namespace, session):
            await self._store.forget_session(namespace, session)
        self._jobs.start(self._scrubbed(session))

    async def catch_up(self, namespace: str, session: str) -> None:
        """Everything recorded before this call is in the index. StoreError."""
        while await self._went_on(namespace, session):
            pass

    async def _soon(self, namespace: str, session: str) -> None:
        # What a stop leaves undone the next search does.
        await unless(self._stopping, asyncio.sleep(DELAY_SECONDS))
        try:
            is_left = True
            while is_left and not self._stopping.is_set():
                async with self._behind:
                    # What is recorded from here on asks again; until then it is one job for each session.
                    self._due.discard((namespace, session))
                    began = time.monotonic()
                    is_left = await self._went_on(namespace, session)
                    rest = asyncio.sleep(_REST_SHARE * (time.monotonic() - began))
                    await unless(self._stopping, rest)
        except StoreError as error:
            # A search catches up by itself.
            _log.warning("indexing_failed", error=type(error).__name__, session=session)

    async def _scrubbed(self, session: str) -> None:
        try:
            await self._store.scrub_words()
        except StoreError as error:
            # They are found by nobody, and go with the next that are removed.
            _log.warning("words_not_removed", error=type(error).__name__, session=session)

    def _lock(self, namespace: str, session: str) -> asyncio.Lock:
        return self._locks.setdefault((namespace, session), asyncio.Lock())

    async def _went_on(self, namespace: str, session: str) -> bool:
        """The next rows are in the index; False when there were none, or recall is switched off."""
        async with self._lock(namespace, session):
            if not await self._switch.is_on(namespace, session):
                return False
            missing = await self._store.unindexed(namespace, session, _READ_ROWS)
            if missing is None:
                return False
            rows, stretch = missing.rows, missing.stretch
            for start in range(0, max(1, len(rows)), _WRITTEN_ROWS):
                part = rows[start : start + _WRITTEN_ROWS]
                is_last = start + _WRITTEN_ROWS >= len(rows)
                upto = stretch.upto if is_last else part[-1].arrival
                step = Stretch(stretch.epoch, stretch.after, upto)
                if not await self._added(namespace, session, step, part):
                    # Another server was faster, or the session is gone: look again.
                    break
                stretch = Stretch(stretch.epoch, upto, stretch.upto)
        return True

    async def _added(self, namespace: str, session: str, stretch: Stretch, rows: Sequence[RecallRow]) -> bool:
        async with self._turn.place(namespace):
            entries = await asyncio.to_thread(self._entries, rows)
        return await self._store.add_indexed(namespace, session, stretch, entries)

    def _entries(self, rows: Sequence[RecallRow]) -> list[Indexed]:
        return [Indexed(row.arrival, self._words.of(_looked_for(row))) for row in rows]


def text_of(row: RecallRow) -> str:
    """The text of a row that is searched."""
    return message_text(row.body) if row.kind == "message" else summary_text(row.body)


def _looked_for(row: RecallRow) -> str:
    """What it is found by: echoes have no words (C07)."""
    return own_text(row.body) if row.kind == "message" else summary_text(row.body)
