"""Erases a session or a namespace (P6): rows, the daily log, memory, and remains in the database's files.

A scrub is retried with growing delays while a reader or a store error prevents it. An erase is completed
even if the client disconnects.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from palimpsest.core.history.quotes import Pieces, all_words_of, pieces_of, quotation, quoted_bytes
from palimpsest.errors import StoreError
from palimpsest.proxy.archive import missing
from palimpsest.proxy.forgetting import Erased, Forgetting
from palimpsest.proxy.jobs import Again, Jobs, offload, unless
from palimpsest.proxy.sessions.tombstones import Tombstones
from palimpsest.storage.database import Scrub
from palimpsest.storage.erasure import Erasure, LoneRequest, RecentlyErased
from palimpsest.storage.history import NamedSession
from palimpsest.storage.store import Store

# Share of the time that scrubbing may take: all writers wait while a file is rewritten.
_SHARE = 0.1
_scrub_log = structlog.get_logger("palimpsest.scrubbing")


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """The state of scrubbing: `files` is "pending" when something was erased since the last scrub.

    While pending: `attempts` so far, due `since`, next attempt at `next_at` (UTC seconds; None: one is
    running or queued), and `trouble`, the last store error; "" when a reader prevents it.
    """

    files: Scrub | None
    attempts: int = 0
    since: float | None = None
    next_at: float | None = None
    trouble: str = ""


class Scrubber:
    """Removes erased data from the database's files. Once `stopping` is set it neither waits nor retries."""

    def __init__(
        self,
        erasure: Erasure,
        jobs: Jobs,
        stopping: asyncio.Event,
        again: Again,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._erasure = erasure
        self._jobs = jobs
        self._stopping = stopping
        self._again = again
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()
        self._next: asyncio.Task[Scrub] | None = None
        self._asked = asyncio.Event()
        self._rests_until = 0.0
        self._state = Scrubbed(None)

    @property
    def state(self) -> Scrubbed:
        """The current state; `files` is None until this process has something to scrub."""
        return self._state

    async def done(self, seconds: float) -> Scrub:
        """Scrub what was erased so far; "pending" when that takes longer than `seconds`."""
        task = self.begin()
        await asyncio.wait({task}, timeout=seconds)
        if not task.done() or task.cancelled() or task.exception() is not None:
            return "pending"
        return task.result()

    def begin(self) -> asyncio.Task[Scrub]:
        """Start a job that scrubs what was erased so far, and retries until done or stopped."""
        if self._state.files != "pending":
            self._state = Scrubbed("pending", since=self._clock())
        # End the delay of a running job: the obstacle may be gone.
        self._asked.set()
        if self._next is None:
            self._next = self._jobs.start(self._scrubbed())
        return self._next

    async def _scrubbed(self) -> Scrub:
        async with self._one_at_a_time:
            await self._keeps_the_share()
            # What is erased from here on needs another job.
            self._next = None
            attempts, rests = 0, self._again.rests()
            while True:
                self._asked.clear()
                attempts += 1
                done, trouble = await self._tried()
                if done != "pending" or self._stopping.is_set():
                    break
                rest = next(rests)
                self._state = Scrubbed("pending", attempts, self._state.since, self._clock() + rest, trouble)
                await unless(self._stopping, self._rested(rest))
            if self._next is None:
                self._state = Scrubbed(done)
            return done

    async def _rested(self, seconds: float) -> None:
        """Wait `seconds`, or less if something else is erased and the share allows."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._asked.wait()
                await self._keeps_the_share()

    async def _keeps_the_share(self) -> None:
        await unless(self._stopping, asyncio.sleep(max(0.0, self._rests_until - time.monotonic())))

    async def _tried(self) -> tuple[Scrub, str]:
        began = time.monotonic()
        try:
            return await self._erasure.scrub(), ""
        except StoreError as error:
            _scrub_log.warning("scrub_failed", error=type(error).__name__)
            return "pending", type(error).__name__
        finally:
            now = time.monotonic()
            self._rests_until = now + (now - began) * (1 / _SHARE - 1)


# An erase request waits this long for the scrub (seconds), which then continues in the background.
_SCRUB_SECONDS = 3.0
_SESSIONS_AT_ONCE = 100
_log = structlog.get_logger("palimpsest.erasing")


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was erased: rows by table, entries of the daily log; `at` is UTC seconds.

    `session` is "" for a whole namespace; `beside` are the sessions of side requests that quoted it and went
    with it. `files`: whether the database's files are scrubbed; `scrub`: the
    state of scrubbing.
    """

    session: str
    rows: Mapping[str, int]
    log_entries: int
    files: Scrub
    scrub: Scrubbed
    is_blocked: bool
    at: float
    beside: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class EraseMeans:
    """What erasing works with. A session is in `gone` before its first row is deleted."""

    store: Store
    jobs: Jobs
    gone: RecentlyErased
    scrubbing: Scrubber
    tombstones: Tombstones
    forgetting: Forgetting
    clock: Callable[[], float]

    def swept(self, namespaces: Sequence[str]) -> None:
        """Erase what is left outside the store of unproven namespaces that were swept."""
        for namespace in namespaces:
            self.gone.add((namespace, ""))
            self.jobs.start(self.erased_from_logs(namespace))
        self.scrubbing.begin()

    async def erased_from_logs(self, namespace: str, session: str | None = None) -> int:
        """Erase the session, or all, from the daily logs; the number of entries. StoreUnavailable."""
        held = self.forgetting.held
        return await held.log.erased(namespace, session) if held is not None and held.log is not None else 0


class Eraser:
    """Erases sessions and namespaces."""

    def __init__(self, means: EraseMeans) -> None:
        self._means = means

    @property
    def scrub(self) -> Scrubbed:
        """The state of scrubbing, for all callers."""
        return self._means.scrubbing.state

    async def session(self, namespace: str, name: str, *, block: bool) -> Receipt:
        """Erase the session with our id or the client's name; `block` prevents that it is recorded again.

        NotFound when there is none; StoreUnavailable when not all of it could be erased: try again then.
        """
        return await self._means.jobs.finish(self._session(namespace, name, block=block))

    async def namespace(self, namespace: str) -> Receipt:
        """Erase all sessions of the namespace, and its blocks. StoreUnavailable, as above."""
        return await self._means.jobs.finish(self._namespace(namespace))

    async def unused(self, namespace: str, session: str, since: float) -> bool:
        """Erase the session with our id, as above; `begin_scrub` after the last one.

        False, and nothing of it erased from the store, if it was used after `since` or is in use.
        """
        return await self._means.jobs.finish(self._rows(namespace, session, [], since)) is not None

    def begin_scrub(self) -> None:
        """Scrub what was erased so far, in the background."""
        self._means.scrubbing.begin()

    async def _session(self, namespace: str, name: str, *, block: bool) -> Receipt:
        row = await self._means.store.history.named(namespace, name)
        if row is None:
            raise missing()
        now = self._means.clock()
        marks = await self._marks(namespace, row) if block else []
        beside = await self._quoting(namespace, row.id)
        counts, entries = Counter[str](), 0
        # The session last: until then the order can be repeated.
        for session in (*beside, row.id):
            erased = await self._rows(namespace, session, marks if session == row.id else [])
            if erased is not None:
                counts.update(erased[0])
                entries += erased[1]
            elif session == row.id:
                raise missing()
        files = await self._means.scrubbing.done(_SCRUB_SECONDS)
        return Receipt(row.id, counts, entries, files, self.scrub, block, now, beside)

    async def _quoting(self, namespace: str, session: str) -> list[str]:
        """Sessions of requests that quote it, were not recognized on arrival, and that nobody continued."""
        history, erasure = self._means.store.history, self._means.store.erasure
        said, before = await history.said(namespace, session, None)
        pieces = dict(await offload(sum(len(one.text) for one in said), pieces_of, said))
        while before is not None:
            said, before = await history.said(namespace, session, before)
            more = await offload(sum(len(one.text) for one in said), pieces_of, said)
            for piece, message in more.items():
                pieces.setdefault(piece, message)
        found: list[str] = []
        requests, last = await erasure.lone_requests(namespace, session, None)
        while requests or last is not None:
            weight = sum(len(body) for one in requests for body in (*one.instructions, *one.asked))
            found += await offload(8 * weight, _those_that_quote, requests, pieces)
            if last is None:
                break
            requests, last = await erasure.lone_requests(namespace, session, last)
        return found

    async def _rows(
        self, namespace: str, session: str, marks: Sequence[bytes], unused_since: float | None = None
    ) -> tuple[Mapping[str, int], int] | None:
        """Erase the session from memory, log and store: rows by table, and entries of the log."""
        store, place = self._means.store, (namespace, session)
        erased = Erased(namespace, [session], await store.erasure.body_digests(*place))
        self._means.forgetting.clear(erased)
        self._means.gone.add(place)
        try:
            entries = await self._means.erased_from_logs(*place)
            rows = await store.erasure.session(*place, marks, self._means.clock(), unused_since=unused_since)
        except StoreError:
            self._means.gone.discard(place)
            # What is hidden already is deleted by a scrub.
            self.begin_scrub()
            raise
        if rows is None:
            if unused_since is not None:
                self._means.gone.discard(place)
            return None
        self._means.forgetting.clear_for_good(erased)
        why = "request" if unused_since is None else "retention"
        _log.info("session_erased", session=session, messages=rows["messages"], blocked=bool(marks), why=why)
        return rows, entries

    async def _marks(self, namespace: str, row: NamedSession) -> list[bytes]:
        """The marks by which the session is recognized if it comes back."""
        store = self._means.store
        chains, items = (
            await store.erasure.marks(namespace, row.id),
            await store.exchanges.items_of(namespace, row.id),
        )
        return await self._means.tombstones.marks_of(namespace, chains, row.external_id, items)

    async def _namespace(self, namespace: str) -> Receipt:
        store, now = self._means.store, self._means.clock()
        there: list[str] = []
        digests: set[bytes] = set()
        before: str | None = None
        while found := await store.erasure.sessions(namespace, before, _SESSIONS_AT_ONCE):
            for ident, _ in found:
                digests.update(await store.erasure.body_digests(namespace, ident))
            there += [ident for ident, _ in found]
            before = found[-1][0]
        erased = Erased(namespace, there, digests)
        self._means.forgetting.clear(erased)
        for ident in there:
            self._means.gone.add((namespace, ident))
        try:
            entries = await self._means.erased_from_logs(namespace)
            rows = await store.erasure.namespace(namespace, now)
        except StoreError:
            for ident in there:
                self._means.gone.discard((namespace, ident))
            raise
        self._means.forgetting.clear_for_good(erased)
        _log.info("namespace_erased", sessions=rows["sessions"], messages=rows["messages"])
        files = await self._means.scrubbing.done(_SCRUB_SECONDS)
        return Receipt("", rows, entries, files, self.scrub, is_blocked=False, at=now)


def _those_that_quote(requests: Sequence[LoneRequest], pieces: Pieces) -> list[str]:
    found = []
    for one in requests:
        quoting = quotation(
            [all_words_of([body]) for body in one.instructions], [all_words_of([body]) for body in one.asked]
        )
        if quoting is not None and quoted_bytes(quoting, pieces, one.at):
            found.append(one.session)
    return found
