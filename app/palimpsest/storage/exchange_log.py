"""Reads exchanges as they happened, for people: what was asked, sent and answered at each turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from palimpsest.storage.database import Reading, Repository, from_snapshot, p
from palimpsest.storage.exchanges import newest_of_sessions
from palimpsest.storage.sql import (
    DIGEST_BYTES,
    HAS_BODY,
    LIMIT,
    ONE,
    Query,
    among,
    bodies_of,
    columns_of,
    key_of,
    literal,
    of_namespace,
    of_session,
    plain,
    rows_among,
    rows_in,
    same_session,
    sized,
    total_of,
)
from palimpsest.storage.tables import BODIES, EXCHANGES, MESSAGES, PREAMBLES, SESSIONS, VARIANTS

# Sorts after every arrival.
NEWEST = 2**62


@dataclass(frozen=True, slots=True)
class LoggedExchange:
    """One exchange as stored; see `tables.EXCHANGES` and `OpenExchange`, `CloseExchange` for the fields.

    Times are in UTC seconds. `tokens_full` and `tokens_forwarded` are in our count, the other tokens in the
    upstream's. `cost` and `saved` are in the currency of the prices (published: US dollars). None is unknown,
    or not there yet.
    """

    id: str
    arrival: int
    head: bytes
    preamble: bytes
    state: str
    model: str
    found_by: str
    mode: str
    mark: str | None
    client: str | None
    finish_reason: str | None
    status: int | None
    code: str | None
    cause: str | None
    error: str | None
    view: str | None
    compaction: str | None
    tokens_full: int | None
    tokens_forwarded: int | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    written_tokens: int | None
    started_at: float
    first_at: float | None
    finished_at: float | None
    said: int | None
    carried: bytes | None
    sent: bytes | None
    body_digest: bytes | None
    prepared_seconds: float | None
    waited_seconds: float | None
    cost: float | None
    saved: float | None
    answer: bytes | None


@dataclass(frozen=True, slots=True)
class Total:
    """Sums of exchanges of one day, model and end; `day` counts days since 1970 (UTC), 0: all.

    Tokens as in `LoggedExchange`; `priced` are turns whose prompt the upstream counted, `stated_cache` those
    of which it stated the cached part. Sums of seconds: `first_byte` to the first byte of `answered` turns,
    `prepared` until the upstream was asked of `plain` turns, which waited for no compaction, `waited` of
    `waits` turns that did; with the longest of each, 0 without any. `cost` and `saved` of turns of which they
    are known, None without one.
    """

    day: int
    model: str
    state: str
    code: str | None
    cause: str | None
    status: int | None
    turns: int
    compacted: int
    tokens_full: int
    tokens_forwarded: int
    priced: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    written_tokens: int
    stated_cache: int
    first_byte: float
    answered: int
    prepared: float
    plain: int
    most_prepared: float
    waited: float
    waits: int
    most_waited: float
    cost: float | None
    saved: float | None


class ExchangeLog(Repository):
    """See the module docstring; `palimpsest.storage.store` states the guarantees of every method."""

    async def page(
        self, namespace: str, session: str, before: int, limit: int
    ) -> list[tuple[int, LoggedExchange]]:
        """The session's exchanges that arrived before `before`, newest first, each with its number from 1."""
        asked = {"namespace": namespace, "session": session, "before": before}
        rows = await self._rows(_PAGE, **asked, limit=limit)
        if not rows:
            return []
        counted = await self._rows(_COUNT, **asked)
        newest: int = counted[0][0]
        return [(newest - place, LoggedExchange(*row)) for place, row in enumerate(rows)]

    async def one(self, namespace: str, session: str, name: str) -> tuple[int, LoggedExchange] | None:
        """The exchange with this number, or with this id."""
        asked = key_of(namespace, session)
        if name.isascii() and name.isdigit() and len(name) < _DIGITS:
            number = int(name)
            if not number:
                return None
            rows = await self._rows(_NUMBERED, **asked, place=number - 1)
            return (number, LoggedExchange(*rows[0])) if rows else None
        rows = await self._rows(_NAMED, **asked, id=plain(name))
        if not rows:
            return None
        found = LoggedExchange(*rows[0])
        counted = await self._rows(_COUNT, **asked, before=found.arrival + 1)
        return counted[0][0], found

    async def totals(self, namespace: str, since: float | None) -> list[Total]:
        """Sums of the namespace's exchanges since that time (UTC seconds), by day, model and end.

        At most 5,000, newest days first. None: of all exchanges, by model and end only.
        """
        by_day = since is not None
        rows = await self._rows(_TOTALS[by_day], namespace=namespace, since=id_at(since or 0.0))
        return [Total(int(day), *rest) for day, *rest in rows]

    async def totals_of(self, namespace: str, sessions: Sequence[str]) -> dict[str, list[Total]]:
        """The sums of each of `sessions`; those without an exchange are left out."""
        reading = rows_among(_TOTALS_OF, sessions, namespace=namespace)
        found: dict[str, list[Total]] = {}
        for session, day, *rest in await self._db.read_snapshot(reading):
            found.setdefault(session, []).append(Total(int(day), *rest))
        return found

    async def tokens_until(self, namespace: str, session: str, until: float) -> tuple[int, int, int, int]:
        """What the session's answers up to that time (UTC seconds) took, as the upstream counted it.

        Tokens in, out and cached, and the number of exchanges for which it stated any.
        """
        (row,) = await self._rows(_TOKENS_UNTIL, namespace=namespace, session=session, until=until)
        sent, answered, cached, stated = map(int, row)
        return sent, answered, cached, stated

    async def compacted_at(self, namespace: str, sessions: Sequence[str]) -> dict[str, list[int]]:
        """How large the whole prompt was when each compaction of `sessions` came into force, ascending.

        In our count; sessions without a compaction are left out.
        """
        reading = rows_among(_COMPACTED_AT, sessions, namespace=namespace)
        found: dict[str, list[int]] = {}
        for session, tokens in sorted(await self._db.read_snapshot(reading), key=itemgetter(1)):
            found.setdefault(session, []).append(tokens)
        return found

    async def newest(self, namespace: str, sessions: Sequence[str]) -> dict[str, LoggedExchange]:
        """The newest exchange of each of `sessions`; those without one are left out."""
        rows = await self._db.read_snapshot(rows_among(_NEWEST, sessions, namespace=namespace))
        return {session: LoggedExchange(*exchange) for session, *exchange in rows}

    async def openings(self, namespace: str, sessions: Sequence[str]) -> dict[str, list[bytes]]:
        """The first four user messages of each of `sessions`, 8,000 bytes of each, as in `asked_beside`."""
        rows = await self._db.read_snapshot(rows_among(_OPENINGS, sessions, namespace=namespace))
        return {session: [bytes(body) for body in bodies if body is not None] for session, *bodies in rows}

    async def asked_beside(
        self, namespace: str, sessions: Sequence[str]
    ) -> dict[str, list[tuple[bytes, bytes, bytes]]]:
        """Instructions, last message and answer of the side requests and first requests of `sessions`."""
        found: dict[str, list[tuple[bytes, bytes, bytes]]] = {}
        reading = rows_among(_ASKED_BESIDE, sessions, namespace=namespace)
        for session, instructions, asked, answer in await self._db.read_snapshot(reading):
            texts = bytes(instructions or b""), bytes(asked), bytes(answer)
            found.setdefault(session, []).append(texts)
        return found

    @from_snapshot
    def spellings(
        self, namespace: str, session: str, chains: Sequence[bytes]
    ) -> Reading[dict[bytes, list[tuple[float, bytes]]]]:
        """Other spellings of the messages at these chains, oldest first, each with when it was first seen.

        Those that the client has always repeated byte for byte are left out.
        """
        rows = yield from rows_among(_VARIANTS, chains, **key_of(namespace, session))
        bodies = yield from bodies_of(namespace, [row[1] for row in rows])
        found: dict[bytes, list[tuple[float, bytes]]] = {}
        for chain, digest, at in sorted(rows, key=lambda row: row[2]):
            if digest in bodies:
                found.setdefault(chain, []).append((at, bodies[digest]))
        return found


def _cut_bodies() -> sa.Select[tuple[bytes]]:
    """Bodies, cut by the database: one may have megabytes."""
    return sa.select(
        sa.func.substr(BODIES.c.body, ONE, literal(_OPENING_BYTES), type_=sa.LargeBinary).label("body")
    )


def _asked_beside() -> Query:
    """A title is asked for near the beginning: arrivals count messages and requests."""
    asked, answer = MESSAGES.alias("asked"), MESSAGES.alias("answer")
    first = sa.func.substr(PREAMBLES.c.bodies, ONE, literal(DIGEST_BYTES), type_=sa.LargeBinary)
    own = _cut_bodies().where(BODIES.c.namespace == EXCHANGES.c.namespace)
    digests = (first, asked.c.digest, answer.c.digest)
    texts = [own.where(BODIES.c.digest == digest).scalar_subquery() for digest in digests]
    beside = sa.and_(EXCHANGES.c.mark == literal("side"), EXCHANGES.c.arrival <= literal(_EARLY_ARRIVALS))
    replies = sa.and_(same_session(answer, EXCHANGES), answer.c.parent == EXCHANGES.c.head, answer.c.relayed)
    stated = sa.and_(same_session(PREAMBLES, EXCHANGES), PREAMBLES.c.digest == EXCHANGES.c.preamble)
    return (
        sa.select(EXCHANGES.c.session, *texts)
        .join(asked, sa.and_(same_session(asked, EXCHANGES), asked.c.chain == EXCHANGES.c.head))
        .join(answer, sa.and_(replies, answer.c.preamble == EXCHANGES.c.preamble))
        .outerjoin(PREAMBLES, stated)
        .where(of_namespace(EXCHANGES), among(EXCHANGES.c.session))
        .where(sa.or_(EXCHANGES.c.arrival <= literal(_FIRST_ARRIVALS), beside))
        .order_by(EXCHANGES.c.arrival)
    )


def _totals(*by: sa.ColumnElement[Any], by_day: bool = True) -> Query:
    """Exchanges of a namespace, summed `by` these, by model and end, and by day."""
    days = [sa.func.floor(EXCHANGES.c.started_at / literal(86400)).label("day")] if by_day else []
    ends = columns_of(EXCHANGES, "model", "state", "code", "cause", "status")
    said = EXCHANGES.c.prompt_tokens.is_not(None)
    waited = EXCHANGES.c.waited_seconds
    sums = [
        sa.func.count(),
        sa.func.count(EXCHANGES.c.compaction),
        *(total_of(EXCHANGES.c[name]) for name in ("tokens_full", "tokens_forwarded")),
        sa.func.count(EXCHANGES.c.prompt_tokens),
        *(total_of(sa.case((said, EXCHANGES.c[f"{name}_tokens"]))) for name in _COUNTED),
        sa.func.count(EXCHANGES.c.cached_tokens),
        _or_zero(sa.func.sum(EXCHANGES.c.first_at - EXCHANGES.c.started_at)),
        sa.func.count(EXCHANGES.c.first_at),
        *_durations(sa.case((waited.is_(None), EXCHANGES.c.prepared_seconds))),
        *_durations(waited),
        *(sa.func.sum(EXCHANGES.c[name]) for name in ("cost", "saved")),
    ]
    columns: list[Any] = [*by, *(days or [literal(0).label("day")]), *ends, *sums]
    return sa.select(*columns).where(of_namespace(EXCHANGES)).group_by(*by, *days, *ends)


def _durations(seconds: sa.ColumnElement[float]) -> Sequence[sa.ColumnElement[Any]]:
    """Sum, number and longest."""
    return _or_zero(sa.func.sum(seconds)), sa.func.count(seconds), _or_zero(sa.func.max(seconds))


def _or_zero(seconds: sa.ColumnElement[float]) -> sa.ColumnElement[float]:
    return sa.func.coalesce(seconds, sa.literal_column("0.0"))


def id_at(seconds: float) -> str:
    """The first UUIDv7 of that time."""
    digits = f"{max(0, int(seconds * 1000)):012x}"
    return f"{digits[:8]}-{digits[8:]}-"


_COUNTED = ("prompt", "completion", "cached", "written")
_MOST_TOTALS = 5_000
_OPENING_BYTES, _OPENING_MESSAGES = 8_000, 4
_FIRST_ARRIVALS, _EARLY_ARRIVALS = 8, 64
# Longer numbers are no numbers of exchanges.
_DIGITS = 12
_COLUMNS = columns_of(EXCHANGES, *LoggedExchange.__slots__)
_BEFORE = EXCHANGES.c.arrival < p("before")
_OF_SESSION = sa.select(*_COLUMNS).where(of_session(EXCHANGES))
_PAGE = _OF_SESSION.where(_BEFORE).order_by(EXCHANGES.c.arrival.desc()).limit(LIMIT)
_NUMBERED = _OF_SESSION.order_by(EXCHANGES.c.arrival).limit(ONE).offset(p("place", sa.BigInteger))
_NAMED = _OF_SESSION.where(EXCHANGES.c.id == p("id"))
_VARIANTS = sized(rows_in(VARIANTS, "chain", "digest", "created_at").where(among(VARIANTS.c.chain)))
_NEWEST = sized(newest_of_sessions(_COLUMNS))
_OPENING = [
    _cut_bodies()
    .join(MESSAGES, HAS_BODY)
    .where(same_session(MESSAGES, SESSIONS), MESSAGES.c.role == literal("user"))
    .order_by(MESSAGES.c.arrival)
    .limit(ONE)
    .offset(literal(place))
    .scalar_subquery()
    for place in range(_OPENING_MESSAGES)
]
_OPENINGS = sized(sa.select(SESSIONS.c.id, *_OPENING).where(among(SESSIONS.c.id), of_namespace(SESSIONS)))
_ASKED_BESIDE = sized(_asked_beside())
# Ids grow with time, so that older rows are not read.
_TOTALS = {
    by_day: _totals(by_day=by_day)
    .where(EXCHANGES.c.id >= p("since"))
    .order_by(sa.desc("day"), EXCHANGES.c.model)
    .limit(literal(_MOST_TOTALS))
    for by_day in (True, False)
}
_TOTALS_OF = sized(_totals(EXCHANGES.c.session).where(among(EXCHANGES.c.session)))
# The least whole prompt of each compaction's turns: that of the first one.
_COMPACTED_AT = sized(
    sa.select(EXCHANGES.c.session, sa.func.min(EXCHANGES.c.tokens_full))
    .where(of_namespace(EXCHANGES), among(EXCHANGES.c.session))
    .where(EXCHANGES.c.compaction.is_not(None), EXCHANGES.c.tokens_full.is_not(None))
    .group_by(EXCHANGES.c.session, EXCHANGES.c.compaction)
)
_TOKENS_UNTIL = sa.select(
    *(total_of(EXCHANGES.c[f"{name}_tokens"]) for name in ("prompt", "completion", "cached")),
    sa.func.count(sa.func.coalesce(EXCHANGES.c.prompt_tokens, EXCHANGES.c.completion_tokens)),
).where(of_session(EXCHANGES), EXCHANGES.c.finished_at <= p("until"))
_COUNT = sa.select(sa.func.count()).where(of_session(EXCHANGES), _BEFORE)
