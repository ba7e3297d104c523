"""Reads of all namespaces, for the operator: who is there, how much of what, and what went wrong lately.

Counts, times and codes only: no text, title or name of a session is read here. Every read is of a page of
namespaces, by their keys; turns are found by their ids, which grow with time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from palimpsest.storage.database import Repository, p, rows_of
from palimpsest.storage.exchange_log import id_at
from palimpsest.storage.sql import (
    LIMIT,
    ONE,
    Query,
    among,
    columns_of,
    literal,
    of_namespace,
    plain,
    rows_among,
    same_session,
    sized,
    total_of,
)
from palimpsest.storage.tables import EXCHANGES, MESSAGES, NAMESPACES, SESSIONS

# A row is looked at for each message of the page's namespaces, and for each turn of a day.
_SECONDS = 60.0


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
class Failure:
    """A turn that failed: its id, as in the log and in errors of ours, when, how, and by whose fault."""

    id: str
    started_at: float
    state: str
    code: str | None
    cause: str | None
    status: int | None


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
        sessions = await self._each(_SESSIONS, namespaces)
        messages = dict(await self._each(_MESSAGES, namespaces))
        return {each: Stored(count, messages.get(each, 0), *times) for each, count, *times in sessions}

    async def turns(self, namespaces: Sequence[str], since: float, tokens_since: float) -> dict[str, Turns]:
        """The turns of each of `namespaces` since then; tokens, cost since the later time (UTC seconds).

        Those without a turn are left out.
        """
        asked = {"since": id_at(since), "tokens_since": id_at(tokens_since)}
        return {each: Turns(*sums) for each, *sums in await self._each(_TURNS, namespaces, **asked)}

    async def failures(self, namespace: str, since: float, limit: int) -> list[Failure]:
        """The namespace's turns since that time that failed, newest first."""
        asked = {"namespace": namespace, "since": id_at(since), "limit": limit}
        rows = await self._db.read_snapshot(rows_of(_FAILURES, **asked), seconds=_SECONDS)
        return [Failure(*row) for row in rows]

    async def _each(self, statements: Any, namespaces: Sequence[str], **asked: object) -> Any:
        reading = rows_among(statements, namespaces, **asked)
        return await self._db.read_snapshot(reading, seconds=_SECONDS)


def _sessions() -> Query:
    times = sa.func.max(SESSIONS.c.updated_at), sa.func.min(SESSIONS.c.created_at)
    counted = sa.select(SESSIONS.c.namespace, sa.func.count(), *times).where(among(SESSIONS.c.namespace))
    return counted.group_by(SESSIONS.c.namespace)


def _messages() -> Query:
    same = same_session(MESSAGES, SESSIONS)
    counted = sa.select(SESSIONS.c.namespace, sa.func.count()).join(MESSAGES, same)
    return counted.where(among(SESSIONS.c.namespace)).group_by(SESSIONS.c.namespace)


_SINCE = EXCHANGES.c.id >= p("since")
_FAILED = EXCHANGES.c.state.not_in([literal("done"), literal("open")])
_TOKENS = sa.func.coalesce(EXCHANGES.c.prompt_tokens, literal(0)) + sa.func.coalesce(
    EXCHANGES.c.completion_tokens, literal(0)
)


def _turns() -> Query:
    later = EXCHANGES.c.id >= p("tokens_since")
    tokens, cost = (sa.case((later, each)) for each in (_TOKENS, EXCHANGES.c.cost))
    sums = sa.func.count(), total_of(sa.case((_FAILED, ONE))), total_of(tokens), sa.func.sum(cost)
    counted = sa.select(EXCHANGES.c.namespace, *sums).where(_SINCE, among(EXCHANGES.c.namespace))
    return counted.group_by(EXCHANGES.c.namespace)


_COLUMNS = columns_of(NAMESPACES, *NamespaceRow.__slots__)
_PAGE = sa.select(*_COLUMNS).where(NAMESPACES.c.id > p("after")).order_by(NAMESPACES.c.id).limit(LIMIT)
_NAMED = sa.select(*_COLUMNS).where(NAMESPACES.c.id == p("id"))
_SESSIONS, _MESSAGES = sized(_sessions()), sized(_messages())
_TURNS = sized(_turns())
_FAILURES = (
    sa.select(*columns_of(EXCHANGES, *Failure.__slots__))
    .where(of_namespace(EXCHANGES), _SINCE, _FAILED)
    .order_by(EXCHANGES.c.id.desc())
    .limit(LIMIT)
)
