"""Erases sessions that are kept longer than the operator wants, at the start and every hour.

A session goes as by an erase (P6), one at a time and with rests, so that requests hardly notice. Of several
servers on a database one does it. A session in use stays. An issued key may have limits of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from palimpsest.core.utc import DAY
from palimpsest.errors import StoreError
from palimpsest.proxy.erasing import Eraser
from palimpsest.storage.accounts import KeyRow
from palimpsest.storage.retention import OldSession
from palimpsest.storage.store import Store

_log = structlog.get_logger("palimpsest.retention")
# Seconds from the end of a run to the next one.
_PAUSE_SECONDS = 3_600.0
# Share of the time that erasing may take.
_SHARE = 0.1
# Longer than the longest erase, which takes at most two minutes.
_LEASE_SECONDS = 300.0
_LEASE = "retention"
# Sessions found at once; more are found when these are gone.
MOST_FOUND = 1_000


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """For how many days after their newest turn sessions are kept, and in how many bytes a namespace.

    0: no limit.
    """

    days: int
    max_bytes: int

    def __bool__(self) -> bool:
        """True when there is a limit."""
        return bool(self.days or self.max_bytes)


@dataclass(frozen=True, slots=True)
class NamespaceLimits:
    """The limits in `general`, and those of namespaces whose keys have some; 0 there: the general one."""

    general: RetentionLimits
    own: Mapping[str, RetentionLimits] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """True when there is a limit."""
        return bool(self.general or any(self.own.values()))

    def bytes_of(self, namespace: str) -> int:
        """The most bytes of the namespace; 0: no limit."""
        own = self.own.get(namespace)
        return (own.max_bytes if own else 0) or self.general.max_bytes


def own_limits(keys: Sequence[KeyRow]) -> dict[str, RetentionLimits]:
    """The limits of the namespaces of keys that have some, or had some and are revoked.

    Of several keys of a namespace the valid ones count, and the largest limit. Where none is valid the
    revoked ones count: a key that ends leaves what was said for as long as was agreed.
    """
    by_namespace: defaultdict[str, list[KeyRow]] = defaultdict(list)
    for key in keys:
        by_namespace[key.namespace].append(key)
    found = {}
    for namespace, its in by_namespace.items():
        if any(key.retention_days or key.retention_bytes for key in its):
            valid = [key for key in its if key.revoked_at is None] or its
            days = max(key.retention_days or 0 for key in valid)
            found[namespace] = RetentionLimits(days, max(key.retention_bytes or 0 for key in valid))
    return found


async def due(store: Store, limits: NamespaceLimits, now: float) -> list[OldSession]:
    """The sessions to be erased, the first 1,000 of each limit and namespace.

    A text that several sessions share counts for each of them, so that more may be due once these are gone.
    """
    there, days = store.old_sessions, limits.general.days
    found = await there.before(now - days * DAY, MOST_FOUND) if days else []
    for namespace, own in limits.own.items():
        # `before` leaves these namespaces out.
        kept = own.days or days
        oldest = await there.oldest(namespace, MOST_FOUND) if kept else []
        found += [old for old in oldest if old.updated_at < now - kept * DAY]
    has_bytes = limits.general.max_bytes or any(own.max_bytes for own in limits.own.values())
    sizes = await store.body_bytes.all() if has_bytes else {}
    for namespace, size in sizes.items():
        most = limits.bytes_of(namespace)
        excess = size - most if most else 0
        for old in await there.oldest(namespace, MOST_FOUND) if excess > 0 else ():
            if excess <= 0:
                break
            found.append(old)
            excess -= await there.size(namespace, old.session)
    return list(dict.fromkeys(found))


class Retention:
    """Erases what is due, under the limits in `general` and those of keys."""

    def __init__(
        self,
        store: Store,
        eraser: Eraser,
        general: RetentionLimits,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._journal = store.journal
        self._eraser = eraser
        self._general = general
        self._clock = clock
        self._holder = store.journal.server or "sole"

    async def keep_running(self) -> None:
        """Run now and every hour until cancelled; a store error is logged."""
        while True:
            try:
                await self.run()
            except StoreError as error:
                _log.warning("retention_failed", error=type(error).__name__)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def run(self) -> int:
        """Erase what is due; returns how many sessions. None of them while another server does it."""
        limits = NamespaceLimits(self._general, own_limits(await self._store.accounts.keys()))
        if not limits or not await self._has_lease():
            return 0
        began, erased = time.monotonic(), 0
        try:
            while gone := await self._erased(await due(self._store, limits, self._clock())):
                erased += gone
        finally:
            if erased:
                self._eraser.begin_scrub()
            await self._journal.release_lease(_LEASE, self._holder)
        _log.info("retention", sessions=erased, seconds=round(time.monotonic() - began, 1))
        return erased

    async def _erased(self, sessions: list[OldSession]) -> int:
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
        return await self._journal.take_lease(_LEASE, self._holder, self._clock(), _LEASE_SECONDS)
