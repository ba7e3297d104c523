"""Reads of all namespaces: who is there, how much of what, what went wrong, and what is over its limits.

For the operator counts, times and codes only: no text, title or name of a session is read here. Reads are of
a page of namespaces, by their keys; turns are found by their ids, which grow with time. Of sessions over a
limit as little is read as an erase needs; one with an exchange in progress is never among them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import sqlalchemy as sa

from palimpsest.core.utc import DAY
from palimpsest.storage.database import Repository, Row, p, rows_of
from palimpsest.storage.erasure import AT_REST, SESSION, digests
from palimpsest.storage.exchange_log import id_at
from palimpsest.storage.sql import (
    LIMIT,
    ONE,
    among,
    columns_of,
    key_of,
    literal,
    of_namespace,
    plain,
    rows_among,
    same_session,
    sized,
    total_of,
)
from palimpsest.storage.tables import BODIES, EXCHANGES, KEYS, MESSAGES, NAMESPACES, SESSIONS

# A row is looked at for each message of the page's namespaces, and for each turn of a day.
_SECONDS = 60.0
# A row for each session is looked at: a large database takes its time, beside which others write.
_LONG_SECONDS = 3_600.0
# Sessions found at once; more are found when these are gone.
_MOST_FOUND = 1_000
# For how many days after their newest turn sessions are kept, and in how many bytes a namespace; 0: no limit.
# "" stands for all namespaces whose keys have no limits of their own.
Limits: TypeAlias = Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class NamespaceRow:
    """A namespace; `proven_at` is when the upstream first answered it with a 2xx, None: never (rule 26)."""

    id: str
    created_at: float
    proven_at: float | None


@dataclass(frozen=True, slots=True)
class Stored:
    """What is stored for a namespace; when a session was written to last, and when the first began.

    Both None without a session.
    """

    sessions: int = 0
    messages: int = 0
    updated_at: float | None = None
    created_at: float | None = None


@dataclass(frozen=True, slots=True)
class Turns:
    """Turns since a time, those that failed, and of some of them the tokens as the upstream counts.

    And the cost of those of which it is known, None without one.
    """

    turns: int = 0
    failures: int = 0
    tokens: int = 0
    dollars: float | None = None


@dataclass(frozen=True, slots=True)
class FailedTurn:
    """A turn that failed: its id, as in the log and in errors of ours, when, how, and by whose fault."""

    id: str
    started_at: float
    state: str
    code: str | None
    cause: str | None
    status: int | None


@dataclass(frozen=True, slots=True)
class OldSession:
    """A session at rest, and when it was written to last (UTC seconds)."""

    namespace: str
    session: str
    external_id: str | None
    updated_at: float


class Namespaces(Repository):
    """See the module docstring; `palimpsest.storage.store` states the guarantees of every method."""

    async def page(self, after: str, limit: int) -> list[NamespaceRow]:
        """The namespaces with ids after `after`, in the order of their ids."""
        return await self._all(NamespaceRow, _PAGE, after=plain(after), limit=limit)

    async def named(self, ident: str) -> NamespaceRow | None:
        """The namespace with this id."""
        rows = await self._few(_NAMED, id=plain(ident))
        return NamespaceRow(*rows[0]) if rows else None

    async def stored(self, namespaces: Sequence[str]) -> dict[str, Stored]:
        """What is stored for each of `namespaces`; those without a session are left out."""
        sessions = await self._each(_SESSION_COUNTS, namespaces)
        messages = dict(await self._each(_MESSAGE_COUNTS, namespaces))
        return {each: Stored(count, messages.get(each, 0), *times) for each, count, *times in sessions}

    async def turns(self, namespaces: Sequence[str], since: float, tokens_since: float) -> dict[str, Turns]:
        """The turns of each of `namespaces` since then; tokens, cost since the later time (UTC seconds).

        Those without a turn are left out.
        """
        asked = {"since": id_at(since), "tokens_since": id_at(tokens_since)}
        return {each: Turns(*sums) for each, *sums in await self._each(_TURN_COUNTS, namespaces, **asked)}

    async def failures(self, namespace: str, since: float, limit: int) -> list[FailedTurn]:
        """The namespace's turns since that time that failed, newest first."""
        asked = {"namespace": namespace, "since": id_at(since), "limit": limit}
        rows = await self._db.read_snapshot(rows_of(_FAILURES, **asked), seconds=_SECONDS)
        return [FailedTurn(*row) for row in rows]

    async def _each(self, statements: Any, namespaces: Sequence[str], **asked: object) -> Any:
        reading = rows_among(statements, namespaces, **asked)
        return await self._db.read_snapshot(reading, seconds=_SECONDS)

    async def limits(self, days: int, max_bytes: int) -> Limits:
        """The limits of namespaces whose keys have some, or had some and are revoked; these for all others.

        Of several keys of a namespace the valid ones count, and the largest limit. Where none is valid the
        revoked ones count: a key that ends leaves what was said for as long as was agreed.
        """
        keys: defaultdict[str, list[Row]] = defaultdict(list)
        for namespace, *key in await self._rows(_KEYS):
            keys[namespace].append(key)
        found = {"": (days, max_bytes)}
        for namespace, its in keys.items():
            if any(own_days or own_bytes for _, own_days, own_bytes in its):
                valid = [key for key in its if key[0] is None] or its
                found[namespace] = max(key[1] or 0 for key in valid), max(key[2] or 0 for key in valid)
        return found

    async def due(self, limits: Limits, now: float) -> list[OldSession]:
        """The sessions to be erased, the first 1,000 of each limit and namespace.

        A text that several sessions share counts for each of them, so that more may be due once these are
        gone.
        """
        days, most_bytes = limits[""]
        found = []
        if days:
            asked = {"at": now - days * DAY, "limit": _MOST_FOUND}
            rows = await self._db.read_snapshot(rows_of(_BEFORE, **asked), seconds=_LONG_SECONDS)
            found = [OldSession(*row) for row in rows]
        for namespace, (own_days, _) in limits.items():
            # Those read above are of namespaces without limits of their own.
            if namespace and (kept := own_days or days):
                oldest = await self._oldest(namespace)
                found += [old for old in oldest if old.updated_at < now - kept * DAY]
        bounds = [most for _, most in limits.values() if most]
        for namespace, size in (await self.sizes(min(bounds))).items() if bounds else ():
            most = limits.get(namespace, limits[""])[1] or most_bytes
            excess = size - most if most else 0
            for old in await self._oldest(namespace) if excess > 0 else ():
                if excess <= 0:
                    break
                found.append(old)
                excess -= await self.size(namespace, old.session)
        return list(dict.fromkeys(found))

    async def _oldest(self, namespace: str) -> list[OldSession]:
        """The namespace's sessions, the oldest first."""
        return await self._all(OldSession, _OLDEST, namespace=namespace, limit=_MOST_FOUND)

    async def sizes(self, above: int = 0) -> dict[str, int]:
        """Bytes of the bodies of each namespace, each body once; only of those with more than `above`.

        Reads the table of bodies: seconds for gigabytes, in a sort that spills to disk.
        """
        rows = await self._db.read_snapshot(rows_of(_SIZES, above=above), seconds=_LONG_SECONDS)
        return {namespace: int(size) for namespace, size in rows}

    async def size(self, namespace: str, session: str) -> int:
        """Bytes of the session's bodies, those included that other sessions share."""
        return int((await self._rows(_SIZE, **key_of(namespace, session)))[0][0])


_BY_NAMESPACE = sa.select(SESSIONS.c.namespace, sa.func.count()).where(among(SESSIONS.c.namespace))
_BY_NAMESPACE = _BY_NAMESPACE.group_by(SESSIONS.c.namespace)
_TIMES = sa.func.max(SESSIONS.c.updated_at), sa.func.min(SESSIONS.c.created_at)
_SESSION_COUNTS = sized(_BY_NAMESPACE.add_columns(*_TIMES))
_MESSAGE_COUNTS = sized(_BY_NAMESPACE.join(MESSAGES, same_session(MESSAGES, SESSIONS)))
_SINCE = EXCHANGES.c.id >= p("since")
_FAILED = EXCHANGES.c.state.not_in([literal("done"), literal("open")])
_NUMBERS = (EXCHANGES.c[f"{name}_tokens"] for name in ("prompt", "completion"))
_TOKENS = sum(sa.func.coalesce(tokens, literal(0)) for tokens in _NUMBERS)
_LATER = EXCHANGES.c.id >= p("tokens_since")
_TURN_COUNTS = sized(
    sa.select(
        EXCHANGES.c.namespace,
        sa.func.count(),
        *(total_of(sa.case((_FAILED, ONE))), total_of(sa.case((_LATER, _TOKENS)))),
        sa.func.sum(sa.case((_LATER, EXCHANGES.c.cost))),
    )
    .where(_SINCE, among(EXCHANGES.c.namespace))
    .group_by(EXCHANGES.c.namespace)
)
_COLUMNS = columns_of(NAMESPACES, *NamespaceRow.__slots__)
_PAGE = sa.select(*_COLUMNS).where(NAMESPACES.c.id > p("after")).order_by(NAMESPACES.c.id).limit(LIMIT)
_NAMED = sa.select(*_COLUMNS).where(NAMESPACES.c.id == p("id"))
_FAILURES = (
    sa.select(*columns_of(EXCHANGES, *FailedTurn.__slots__))
    .where(of_namespace(EXCHANGES), _SINCE, _FAILED)
    .order_by(EXCHANGES.c.id.desc())
    .limit(LIMIT)
)
_OF_OLD = columns_of(SESSIONS, "namespace", "id", "external_id", "updated_at")
_OLDEST_FIRST = sa.select(*_OF_OLD).where(AT_REST).order_by(SESSIONS.c.updated_at, SESSIONS.c.id).limit(LIMIT)
_KEYS = sa.select(*columns_of(KEYS, "namespace", "revoked_at", "retention_days", "retention_bytes"))
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
