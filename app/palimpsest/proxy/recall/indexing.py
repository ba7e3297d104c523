"""The search index: whether a session has one, and how it is kept up to date.

The switch is read each time, so that a change takes effect at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

import structlog

from palimpsest.core.recall.searchable_text import index_words, known_words, message_text, summary_text
from palimpsest.errors import BackgroundFailed, RecallDisabled, StoreError
from palimpsest.proxy.background import Background
from palimpsest.proxy.jobs import FairPlaces, Jobs, logged, unless
from palimpsest.storage.journal import Journal
from palimpsest.storage.search import RecallRow, Search, Stretch


@dataclass(frozen=True, slots=True)
class RecallSwitch:
    """Whether recall is enabled; `enables` reads a session's stored settings, None for none."""

    journal: Journal
    enables: Callable[[bytes | None], bool]

    @property
    def by_default(self) -> bool:
        """Whether it is on for sessions without a setting."""
        return self.enables(None)

    async def is_on(self, namespace: str, session: str) -> bool:
        """Whether the session is indexed and can be searched by tools. StoreError."""
        return self.enables(await self.journal.settings_of(namespace, session))

    async def check(self, namespace: str, session: str) -> None:
        """RecallDisabled if it is off. StoreError."""
        if not await self.is_on(namespace, session):
            raise RecallDisabled(
                "Recall is switched off for this session (recall.enabled). "
                "GET /api/sessions/{id}/search still finds what was said."
            )


# Sessions that a search of a whole namespace indexes or scans first: those written last.
_SESSIONS = 256
# Delay after an answer before its session is indexed, so that quick turns are indexed together (seconds).
DELAY_SECONDS = 2.0
# Sessions queued for indexing; beyond this a search indexes what is missing.
MOST_DUE = 2_000
# Rows indexed before a pause, and entries written in one transaction, for which other writers wait.
_READ_ROWS = 128
_WRITTEN_ROWS = 64
# In the background a pause is this many times as long as the work before it: stemming holds the GIL. A writer
# keeps 0.75 of its rate with the pauses, and 0.27 without (docs/benchmarks.md).
REST_SHARE = 2.0
_log = structlog.get_logger("palimpsest.recall")


@dataclass(frozen=True, slots=True)
class IndexLag:
    """Sessions that are not fully indexed, those written last first. `is_all`: there are no others."""

    sessions: Sequence[str]
    is_all: bool


class Indexer:
    """Keeps the index up to date, in the background and, before a search, for at most `wait_seconds`."""

    def __init__(
        self,
        search: Search,
        jobs: Jobs,
        background: Background,
        stopping: asyncio.Event,
        switch: RecallSwitch,
        wait_seconds: float,
    ) -> None:
        self._wait_seconds = wait_seconds
        self._search = search
        self._jobs = jobs
        self._background = background
        self._stopping = stopping
        self._switch = switch
        # One at a time, by namespace in turn: indexing must not starve the turns.
        self._turn = FairPlaces(1)
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._due: set[tuple[str, str]] = set()
        # In the background only one session's rows are in memory.
        self._behind = asyncio.Lock()

    def later(self, namespace: str, session: str) -> None:
        """Queue the session for indexing in the background."""
        key = namespace, session
        if key not in self._due and len(self._due) < MOST_DUE:
            self._due.add(key)
            self._jobs.start(self._soon(namespace, session))

    def forget(self) -> None:
        """Forget all cached words (P6)."""
        known_words.cache_clear()
        self._background.forget()

    async def drop(self, namespace: str, session: str) -> None:
        """Remove the session from the index: recall was switched off for it. StoreError.

        Its words are scrubbed in the background. Switched on again, it is indexed from its beginning.
        """
        async with self._lock(namespace, session):
            await self._search.forget(namespace, session)

        async def scrubbed() -> None:
            # The words cannot be found, and are removed by the next scrub.
            with logged(_log, "words_not_removed", session=session):
                await self._search.scrub()

        self._jobs.start(scrubbed())

    async def caught_up(self, namespace: str, session: str | None) -> IndexLag:
        """Index what was recorded of the session, or of all, before this call; what is behind. StoreError.

        Of a whole namespace, sessions with recall switched off are always behind.
        """
        on, off, is_all = [session] if session else [], list[str](), True
        if session is None:
            lagging = await self._search.lagging(namespace, _SESSIONS)
            is_all = len(lagging) < _SESSIONS
            for name in lagging:
                (on if await self._switch.is_on(namespace, name) else off).append(name)
        done = 0
        try:
            async with asyncio.timeout(self._wait_seconds):
                for name in on:
                    while await self._went_on(namespace, name):
                        pass
                    done += 1
        except (TimeoutError, BackgroundFailed):
            _log.warning("search_before_the_index", sessions=len(on) - done)
        return IndexLag([*on[done:], *off], is_all)

    async def _soon(self, namespace: str, session: str) -> None:
        # What is left undone by a stop is indexed by the next search.
        await unless(self._stopping, asyncio.sleep(DELAY_SECONDS))
        try:
            is_left = True
            while is_left and not self._stopping.is_set():
                async with self._behind:
                    # What is recorded from here on queues the session again.
                    self._due.discard((namespace, session))
                    began = time.monotonic()
                    is_left = await self._went_on(namespace, session)
                    rest = asyncio.sleep(REST_SHARE * (time.monotonic() - began))
                    await unless(self._stopping, rest)
        except (StoreError, BackgroundFailed) as error:
            # A search catches up by itself.
            _log.warning("indexing_failed", error=type(error).__name__, session=session)

    def _lock(self, namespace: str, session: str) -> asyncio.Lock:
        return self._locks.setdefault((namespace, session), asyncio.Lock())

    async def _went_on(self, namespace: str, session: str) -> bool:
        """Index the next rows; False when there were none, or recall is switched off."""
        async with self._lock(namespace, session):
            if not await self._switch.is_on(namespace, session):
                return False
            missing = await self._search.unindexed(namespace, session, _READ_ROWS)
            if missing is None:
                return False
            rows, after = missing.rows, missing.after
            for start in range(0, max(1, len(rows)), _WRITTEN_ROWS):
                part = rows[start : start + _WRITTEN_ROWS]
                is_last = start + _WRITTEN_ROWS >= len(rows)
                upto = missing.upto if is_last else part[-1].arrival
                texts = [(row.body, row.kind == "summary") for row in part]
                weight = sum([len(row.body) for row in part])
                async with self._turn.place(namespace):
                    words = await self._background.run(weight, index_words, texts)
                entries = [(row.arrival, found) for row, found in zip(part, words, strict=True)]
                stretch = Stretch(missing.epoch, after, upto)
                if not await self._search.index(namespace, session, stretch, entries):
                    # Another server was faster, or the session was erased: read again.
                    break
                after = upto
        return True


def text_of(row: RecallRow) -> str:
    """The text of a row, for scans and quotes."""
    return message_text(row.body) if row.kind == "message" else summary_text(row.body)
