"""Erases sessions and namespaces (P6): rows, the daily log, memory, and remains in the database's files.

A scrub is retried with growing delays while a reader or a store error prevents it. An erase is completed
even if the client disconnects. What is held in memory is cleared at once, and again until nothing adds to it:
a request or a job that began before the erase may cache texts of the session after it, and no cache asks whom
its texts belong to.

Sessions that are kept longer than the operator wants are erased too, and disk space is reserved for erasing.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from palimpsest.core.history.quotes import Pieces, all_words_of, pieces_of, quotation, quoted_bytes
from palimpsest.errors import StoreError
from palimpsest.proxy.archive import missing
from palimpsest.proxy.daily_log import DailyLog
from palimpsest.proxy.jobs import Again, Jobs, logged, offload, unless
from palimpsest.proxy.sessions.in_flight import InFlight
from palimpsest.proxy.sessions.reader import MessageReader
from palimpsest.proxy.sessions.tombstones import Tombstones
from palimpsest.storage.database import Scrub, StoreFault
from palimpsest.storage.erasure import Erasure, LoneRequest, RecentlyErased
from palimpsest.storage.namespaces import OldSession
from palimpsest.storage.store import Store

# Share of the time that scrubbing, and erasing what is old, may take: writers wait for a file being written.
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
        # `files` is None until this process has something to scrub.
        self.state = Scrubbed(None)

    async def done(self, seconds: float) -> Scrub:
        """Scrub what was erased so far; "pending" when that takes longer than `seconds`."""
        task = self.begin()
        await asyncio.wait({task}, timeout=seconds)
        if not task.done() or task.cancelled() or task.exception() is not None:
            return "pending"
        return task.result()

    def begin(self) -> asyncio.Task[Scrub]:
        """Start a job that scrubs what was erased so far, and retries until done or stopped."""
        if self.state.files != "pending":
            self.state = Scrubbed("pending", since=self._clock())
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
                self.state = Scrubbed("pending", attempts, self.state.since, self._clock() + rest, trouble)
                await unless(self._stopping, self._rested(rest))
            if self._next is None:
                self.state = Scrubbed(done)
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
class Erased:
    """Sessions of a namespace, and the digests of their bodies."""

    namespace: str
    sessions: Sequence[str]
    digests: Collection[bytes]


class Forgetting:
    """Clears what is held in memory of erased sessions (P6), the messages of `reader` among it.

    `sessions` forget one by namespace and id; `others` are caches without an owner. `jobs` fill them behind
    the answers; `chores` do the clearing, with delays of up to a minute: a request may be answered for an
    hour.
    """

    def __init__(
        self,
        jobs: Jobs,
        chores: Jobs,
        stopping: asyncio.Event,
        in_flight: InFlight,
        reader: MessageReader,
        again: Again,
    ) -> None:
        self.sessions: list[Callable[[str, str], None]] = []
        self.others: list[Callable[[], None]] = []
        self._jobs = jobs
        self._chores = chores
        self._stopping = stopping
        self._in_flight = in_flight
        self._reader = reader
        self._again = again
        # Sessions whose texts may still be added to caches.
        self._unsettled: list[Erased] = []

    def clear(self, *erased: Erased, every_message: bool = False) -> None:
        """Clear what is held; `every_message`: an answer after the erase is not among the digests."""
        for one in erased:
            for session in one.sessions:
                for forget_session in self.sessions:
                    forget_session(one.namespace, session)
        digests = None if every_message else frozenset().union(*(one.digests for one in erased))
        self._reader.forget(digests)
        for forget in self.others:
            forget()

    def clear_for_good(self, erased: Erased) -> None:
        """As `clear`, and again in the background until all that was under way has ended."""
        self.clear(erased)
        self._unsettled.append(erased)
        if len(self._unsettled) == 1:
            self._chores.start(unless(self._stopping, self._clear_until_settled()))

    async def _clear_until_settled(self) -> None:
        while number := len(self._unsettled):
            # Those that are erased meanwhile are cleared too, and settled in another round.
            was_used = False
            for rest in self._again.rests():
                # Before the jobs: a request that ends may leave one.
                used = self._in_flight.sessions
                is_used = any(session in used for one in self._unsettled[:number] for session in one.sessions)
                was_used = was_used or is_used
                running = self._jobs.running
                await asyncio.sleep(rest)
                self.clear(*self._unsettled, every_message=was_used)
                if not is_used and all(job.done() for job in running):
                    del self._unsettled[:number]
                    break


@dataclass(frozen=True, slots=True)
class Eraser:
    """Erases sessions and namespaces. A session is in `gone` before its first row is deleted."""

    store: Store
    jobs: Jobs
    gone: RecentlyErased
    scrubbing: Scrubber
    tombstones: Tombstones
    forgetting: Forgetting
    log: DailyLog | None
    clock: Callable[[], float]

    async def session(self, namespace: str, name: str, *, block: bool) -> Receipt:
        """Erase the session with our id or the client's name; `block` prevents that it is recorded again.

        NotFound when there is none; StoreUnavailable when not all of it could be erased: try again then.
        """
        return await self.jobs.finish(self._session(namespace, name, block=block))

    async def namespace(self, namespace: str) -> Receipt:
        """Erase all sessions of the namespace, and its blocks. StoreUnavailable, as above."""
        return await self.jobs.finish(self._namespace(namespace))

    async def unused(self, namespace: str, session: str, since: float) -> bool:
        """Erase the session with our id, as above; scrub after the last one.

        False, and nothing of it erased from the store, if it was used after `since` or is in use.
        """
        return await self.jobs.finish(self._rows(namespace, session, [], since)) is not None

    def swept(self, namespaces: Sequence[str]) -> None:
        """Erase what is left outside the store of unproven namespaces that were swept."""
        for namespace in namespaces:
            self.gone[namespace, ""] = True
            self.jobs.start(self._erased_from_log(namespace))
        self.scrubbing.begin()

    async def _erased_from_log(self, namespace: str, session: str | None = None) -> int:
        """Erase the session, or all, from the daily log; the number of entries. StoreUnavailable."""
        return await self.log.erased(namespace, session) if self.log is not None else 0

    async def _session(self, namespace: str, name: str, *, block: bool) -> Receipt:
        store, now = self.store, self.clock()
        row = await store.history.named(namespace, name)
        if row is None:
            raise missing()
        marks: list[bytes] = []
        if block:
            chains = await store.erasure.marks(namespace, row.id)
            items = await store.exchanges.items_of(namespace, row.id)
            marks = await self.tombstones.marks_of(namespace, chains, row.external_id, items)
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
        files = await self.scrubbing.done(_SCRUB_SECONDS)
        return Receipt(row.id, counts, entries, files, self.scrubbing.state, block, now, beside)

    async def _quoting(self, namespace: str, session: str) -> list[str]:
        """Sessions of requests that quote it, were not recognized on arrival, and that nobody continued."""
        history, erasure = self.store.history, self.store.erasure
        pieces = dict(pieces_of([]))
        before: int | None = None
        last: str | None = None
        while True:
            said, before = await history.said(namespace, session, before)
            more = await offload(sum(len(one.text) for one in said), pieces_of, said)
            for piece, message in more.items():
                pieces.setdefault(piece, message)
            if before is None:
                break
        found: list[str] = []
        while True:
            requests, last = await erasure.lone_requests(namespace, session, last)
            weight = sum(len(body) for one in requests for body in (*one.instructions, *one.asked))
            found += await offload(8 * weight, _those_that_quote, requests, pieces)
            if last is None:
                return found

    async def _rows(
        self, namespace: str, session: str, marks: Sequence[bytes], unused_since: float | None = None
    ) -> tuple[Mapping[str, int], int] | None:
        """Erase the session from memory, log and store: rows by table, and entries of the log."""
        erasure, place = self.store.erasure, (namespace, session)
        erased = Erased(namespace, [session], await erasure.body_digests(*place))
        self.forgetting.clear(erased)
        self.gone[place] = True
        try:
            entries = await self._erased_from_log(*place)
            rows = await erasure.session(*place, marks, self.clock(), unused_since=unused_since)
        except StoreError:
            self.gone.pop(place, None)
            # What is hidden already is deleted by a scrub.
            self.scrubbing.begin()
            raise
        if rows is None:
            if unused_since is not None:
                self.gone.pop(place, None)
            return None
        self.forgetting.clear_for_good(erased)
        why = "request" if unused_since is None else "retention"
        _log.info("session_erased", session=session, messages=rows["messages"], blocked=bool(marks), why=why)
        return rows, entries

    async def _namespace(self, namespace: str) -> Receipt:
        erasure, now = self.store.erasure, self.clock()
        there: list[str] = []
        digests: set[bytes] = set()
        before: str | None = None
        while found := await erasure.sessions(namespace, before, _SESSIONS_AT_ONCE):
            for ident, _ in found:
                digests.update(await erasure.body_digests(namespace, ident))
                there.append(ident)
            before = found[-1][0]
        erased = Erased(namespace, there, digests)
        self.forgetting.clear(erased)
        for ident in there:
            self.gone[namespace, ident] = True
        try:
            entries = await self._erased_from_log(namespace)
            rows = await erasure.namespace(namespace, now)
        except StoreError:
            for ident in there:
                self.gone.pop((namespace, ident), None)
            raise
        self.forgetting.clear_for_good(erased)
        _log.info("namespace_erased", sessions=rows["sessions"], messages=rows["messages"])
        files = await self.scrubbing.done(_SCRUB_SECONDS)
        return Receipt("", rows, entries, files, self.scrubbing.state, is_blocked=False, at=now)


def _those_that_quote(requests: Sequence[LoneRequest], pieces: Pieces) -> list[str]:
    found = []
    for one in requests:
        quoting = quotation(
            [all_words_of([body]) for body in one.instructions], [all_words_of([body]) for body in one.asked]
        )
        if quoting is not None and quoted_bytes(quoting, pieces, one.at):
            found.append(one.session)
    return found


_retention_log = structlog.get_logger("palimpsest.retention")
# Seconds from the end of a run to the next one.
_PAUSE_SECONDS = 3_600.0
# Longer than the longest erase, which takes at most two minutes.
_LEASE_SECONDS = 300.0
_LEASE = "retention"


class RetentionSweep:
    """Erases what is due: sessions older than `days`, of namespaces over `max_bytes`; 0: no limit.

    Keys may have limits of their own.
    """

    def __init__(
        self,
        store: Store,
        eraser: Eraser,
        days: int,
        max_bytes: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._eraser = eraser
        self._general = days, max_bytes
        self._clock = clock
        self._holder = store.journal.server or "sole"

    async def keep_running(self) -> None:
        """Run now and every hour until cancelled; a store error is logged."""
        while True:
            with logged(_retention_log, "retention_failed"):
                await self.run()
            await asyncio.sleep(_PAUSE_SECONDS)

    async def run(self) -> int:
        """Erase what is due; returns how many sessions. None of them while another server does it."""
        there = self._store.namespaces
        # Keys may get limits while the server runs.
        limits = await there.limits(*self._general)
        if not any(map(any, limits.values())) or not await self._has_lease():
            return 0
        began, erased = time.monotonic(), 0
        try:
            while gone := await self._erased(await there.due(limits, self._clock())):
                erased += gone
        finally:
            if erased:
                self._eraser.scrubbing.begin()
            await self._store.journal.release_lease(_LEASE, self._holder)
        _retention_log.info("retention", sessions=erased, seconds=round(time.monotonic() - began, 1))
        return erased

    async def _erased(self, sessions: Sequence[OldSession]) -> int:
        """How many are gone until another server has the lease."""
        count = 0
        for old in sessions:
            if not await self._has_lease():
                break
            began = time.monotonic()
            count += await self._eraser.unused(old.namespace, old.session, old.updated_at)
            await asyncio.sleep((time.monotonic() - began) * (1 / _SHARE - 1))
        return count

    async def _has_lease(self) -> bool:
        """Take the lease, or renew it."""
        return await self._store.journal.take_lease(_LEASE, self._holder, self._clock(), _LEASE_SECONDS)


# A check costs 20 us; operators should not learn of a problem later than refused callers.
_LOOK_SECONDS = 1.0
# Checks between two attempts to restore the reserve: disk space is seldom freed faster.
_RESERVE_LOOKS = 10
_store_log = structlog.get_logger("palimpsest.store")


class StoreWatch:
    """Watches the store. `reserve_bytes` are kept free for erasing on a full disk; 0: none."""

    def __init__(self, store: Store, reserve_bytes: int) -> None:
        self._store = store
        self._reserve_bytes = reserve_bytes
        self._trouble: StoreFault | None = None
        self._has_reserve = True

    async def keep(self) -> None:
        """Check until cancelled."""
        looks = 0
        while True:
            trouble, before = await asyncio.to_thread(self._store.trouble), self._trouble
            self._trouble = trouble
            if trouble is None and before is not None:
                _store_log.info("database_usable_again")
            elif trouble is not None and trouble != before:
                _store_log.error("database_unusable", reason=trouble.reason, remedy=trouble.remedy)
            if looks % _RESERVE_LOOKS == 0 and trouble is None:
                has = await self._store.keep_reserve(self._reserve_bytes)
                if self._has_reserve and not has:
                    _store_log.warning("no_room_for_reserve", bytes=self._reserve_bytes)
                self._has_reserve = has
            looks += 1
            await asyncio.sleep(_LOOK_SECONDS)
