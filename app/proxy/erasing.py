"""Erases a session, or everything of a namespace: rows, derived files, memory, the files' own remains (P6).

Carried out to the end also when the caller hangs up. Knows nothing of HTTP, nor of which tables there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from app.errors import StoreError
from app.proxy.archive import missing
from app.proxy.chronicle.daily_log import DailyLog
from app.proxy.jobs import Jobs
from app.proxy.scrubbing import Scrubbed, Scrubbing
from app.proxy.sessions.reader import MessageReader
from app.proxy.sessions.tombstones import Tombstones
from app.storage.contract import Store
from app.storage.erase.contract import Scrub
from app.storage.erase.gone import Gone
from app.storage.naming import NamedSession

# Whoever erases waits for the scrub at most so long (seconds); it goes on.
_SCRUB_SECONDS = 3.0
_SESSIONS_AT_ONCE = 100
_log = structlog.get_logger("palimpsest.erasing")


class Remembers(Protocol):
    """Holds something of sessions in memory."""

    def erased(self, namespace: str, session: str) -> None:
        """The session was erased: nothing of it is held."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was erased: rows by table, entries of the daily log; `at` is UTC seconds.

    `session` is "" for a whole namespace. `files` says what is left in the database's files, and `scrub` how
    far that is.
    """

    session: str
    rows: Mapping[str, int]
    log_entries: int
    files: Scrub
    scrub: Scrubbed
    is_blocked: bool
    at: float


@dataclass(frozen=True, slots=True)
class EraseMeans:
    """What erasing takes. Sessions being erased are in `gone` before the first of their rows goes."""

    store: Store
    jobs: Jobs
    gone: Gone
    scrubbing: Scrubbing
    tombstones: Tombstones
    log: DailyLog | None
    clock: Callable[[], float]

    def swept(self, namespaces: Sequence[str]) -> None:
        """Namespaces are gone from the store, for nobody ever answered them: the rest of them goes soon."""
        for namespace in namespaces:
            self.gone.add((namespace, ""))
            if self.log is not None:
                self.jobs.start(self.log.erased(namespace))
        self.scrubbing.begin()


@dataclass(frozen=True, slots=True)
class Memory:
    """What is held in memory: of single sessions, of messages by their bytes, and of nobody knows whom."""

    sessions: Sequence[Remembers]
    reader: MessageReader
    others: Sequence[Callable[[], None]]


class Erasing:
    """One for the application."""

    def __init__(self, means: EraseMeans, memory: Memory) -> None:
        self._means = means
        self._memory = memory

    @property
    def scrub(self) -> Scrubbed:
        """How far the files are scrubbed of what anybody erased."""
        return self._means.scrubbing.state

    async def session(self, namespace: str, name: str, *, block: bool) -> Receipt:
        """Nothing is left of the session of our id or the client's name. `block`: nor does it come back.

        NotFound when there is none; StoreUnavailable when not all of it could be erased: try again then.
        """
        return await self._means.jobs.finish(self._session(namespace, name, block=block))

    async def namespace(self, namespace: str) -> Receipt:
        """Nothing is left of the sessions there are, nor of what was blocked. StoreUnavailable, as above."""
        return await self._means.jobs.finish(self._namespace(namespace))

    async def _session(self, namespace: str, name: str, *, block: bool) -> Receipt:
        store, now = self._means.store, self._means.clock()
        row = await store.named(namespace, name)
        if row is None:
            raise missing()
        marks = await self._marks(namespace, row) if block else []
        digests = await store.digests_of(namespace, row.id)
        place = namespace, row.id
        self._forget([row.id], namespace, digests)
        self._means.gone.add(place)
        try:
            entries = await self._means.log.erased(*place) if self._means.log else 0
            rows = await store.erase_session(*place, marks, now)
        except StoreError:
            self._means.gone.discard(place)
            raise
        # Once more: what was under way until then may have been remembered meanwhile.
        self._forget([row.id], namespace, digests)
        if rows is None:
            raise missing()
        _log.info("session_erased", session=row.id, messages=rows["messages"], blocked=block)
        files = await self._means.scrubbing.done(_SCRUB_SECONDS)
        return Receipt(row.id, rows, entries, files, self.scrub, block, now)

    async def _marks(self, namespace: str, row: NamedSession) -> list[bytes]:
        """What the session would be known by, if it came back."""
        store = self._means.store
        chains, items = await store.marks_of(namespace, row.id), await store.items_of(namespace, row.id)
        return await self._means.tombstones.marks_of(namespace, chains, row.external_id, items)

    async def _namespace(self, namespace: str) -> Receipt:
        store, now = self._means.store, self._means.clock()
        there: list[str] = []
        digests: set[bytes] = set()
        before: str | None = None
        while found := await store.sessions_before(namespace, before, _SESSIONS_AT_ONCE):
            for ident, _ in found:
                digests.update(await store.digests_of(namespace, ident))
            there += [ident for ident, _ in found]
            before = found[-1][0]
        self._forget(there, namespace, digests)
        for ident in there:
            self._means.gone.add((namespace, ident))
        try:
            entries = await self._means.log.erased(namespace) if self._means.log else 0
            rows = await store.erase_namespace(namespace)
        except StoreError:
            for ident in there:
                self._means.gone.discard((namespace, ident))
            raise
        self._forget(there, namespace, digests)
        _log.info("namespace_erased", sessions=rows["sessions"], messages=rows["messages"])
        files = await self._means.scrubbing.done(_SCRUB_SECONDS)
        return Receipt("", rows, entries, files, self.scrub, is_blocked=False, at=now)

    def _forget(self, sessions: Sequence[str], namespace: str, digests: Sequence[bytes] | set[bytes]) -> None:
        for memory in self._memory.sessions:
            for session in sessions:
                memory.erased(namespace, session)
        self._memory.reader.forget(frozenset(digests))
        for forget in self._memory.others:
            forget()
