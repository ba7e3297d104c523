"""The limits an operator sets, and the sessions that are over them; `palimpsest.proxy.erasing` erases them.

Reads rows of all namespaces, and of each session as little as an erase needs. A session with an exchange in
progress is never among them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from palimpsest.core.utc import DAY
from palimpsest.storage.accounts import KeyRow
from palimpsest.storage.database import Repository, p, rows_of
from palimpsest.storage.erasure import AT_REST, SESSION, digests
from palimpsest.storage.sql import LIMIT, key_of, of_namespace, total_of
from palimpsest.storage.tables import BODIES, KEYS, SESSIONS

# A row for each session is looked at: a large database takes its time, beside which others write.
_SECONDS = 3_600.0
# Sessions found at once; more are found when these are gone.
_MOST_FOUND = 1_000


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


@dataclass(frozen=True, slots=True)
class OldSession:
    """A session at rest, and when it was written to last (UTC seconds)."""

    namespace: str
    session: str
    external_id: str | None
    updated_at: float


class OldSessions(Repository):
    """See the module docstring; `palimpsest.storage.store` states the guarantees of every method."""

    async def before(self, at: float, limit: int) -> list[OldSession]:
        """Sessions that were written to last before `at`, the oldest first.

        Of all namespaces but those whose keys have limits of their own, or had some.
        """
        rows = await self._db.read_snapshot(rows_of(_BEFORE, at=at, limit=limit), seconds=_SECONDS)
        return [OldSession(*row) for row in rows]

    async def oldest(self, namespace: str, limit: int) -> list[OldSession]:
        """The namespace's sessions, the oldest first."""
        asked = {"namespace": namespace, "limit": limit}
        return await self._all(OldSession, _OLDEST, **asked)

    async def sizes(self, above: int = 0) -> dict[str, int]:
        """Bytes of the bodies of each namespace, each body once; only of those with more than `above`.

        Reads the table of bodies: seconds for gigabytes, in a sort that spills to disk.
        """
        rows = await self._db.read_snapshot(rows_of(_SIZES, above=above), seconds=_SECONDS)
        return {namespace: int(size) for namespace, size in rows}

    async def size(self, namespace: str, session: str) -> int:
        """Bytes of the session's bodies, those included that other sessions share."""
        asked = key_of(namespace, session)
        return int((await self._rows(_SIZE, **asked))[0][0])


async def due(there: OldSessions, limits: NamespaceLimits, now: float) -> list[OldSession]:
    """The sessions to be erased, the first 1,000 of each limit and namespace.

    A text that several sessions share counts for each of them, so that more may be due once these are gone.
    """
    days = limits.general.days
    found = await there.before(now - days * DAY, _MOST_FOUND) if days else []
    for namespace, own in limits.own.items():
        # `before` leaves these namespaces out.
        kept = own.days or days
        oldest = await there.oldest(namespace, _MOST_FOUND) if kept else []
        found += [old for old in oldest if old.updated_at < now - kept * DAY]
    bounds = [most for each in (limits.general, *limits.own.values()) if (most := each.max_bytes)]
    sizes = await there.sizes(min(bounds)) if bounds else {}
    for namespace, size in sizes.items():
        most = limits.bytes_of(namespace)
        excess = size - most if most else 0
        for old in await there.oldest(namespace, _MOST_FOUND) if excess > 0 else ():
            if excess <= 0:
                break
            found.append(old)
            excess -= await there.size(namespace, old.session)
    return list(dict.fromkeys(found))


_COLUMNS = (SESSIONS.c.namespace, SESSIONS.c.id, SESSIONS.c.external_id, SESSIONS.c.updated_at)
_OLDEST_FIRST = (
    sa.select(*_COLUMNS).where(AT_REST).order_by(SESSIONS.c.updated_at, SESSIONS.c.id).limit(LIMIT)
)
_WITH_LIMITS = sa.select(KEYS.c.namespace).where(
    sa.or_(KEYS.c.retention_days.is_not(None), KEYS.c.retention_bytes.is_not(None))
)
_BEFORE = _OLDEST_FIRST.where(SESSIONS.c.updated_at < p("at"), SESSIONS.c.namespace.not_in(_WITH_LIMITS))
_OLDEST = _OLDEST_FIRST.where(of_namespace(SESSIONS))
_BYTES = total_of(sa.func.length(BODIES.c.body))
_SIZES = (
    sa.select(BODIES.c.namespace, _BYTES)
    .group_by(BODIES.c.namespace)
    .having(p("above", sa.BigInteger) < _BYTES)
)
_SIZE = sa.select(_BYTES).where(BODIES.c.digest.in_(digests(SESSION)), of_namespace(BODIES))
