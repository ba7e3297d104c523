"""Reading paths, transcripts and single messages with their bodies.

Must not know what the messages are read for. A path is walked by one recursive query, whatever its
length and however often the client rebased: no round trip a message, none a rebase.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias

from sqlalchemy import BigInteger, LargeBinary, Select, and_, cast, func, literal_column, null, or_, select

from app.core.history.known import Rebase
from app.core.history.lineage import Point, bases_of, lineage_of, path_of
from app.storage.contract import MessageRow, PathEntry
from app.storage.database import Database, InsertInto, Params, Reading, Row, Statement, p, rows_of
from app.storage.packing import unpacked
from app.storage.tables.conversations import BODIES, MESSAGES, PREAMBLES, REBASES

_MIN_PREFIX_BYTES = 12
_DIGEST_BYTES = 32
# Rows asked for by their digests at once.
_SIZES = (8, 256)
# A message row without its body, in this order: kept as the driver's tuple, for a path has thousands.
_FACTS = (
    *("chain", "canonical", "role", "tokens", "depth", "arrival"),
    *("relayed", "state", "finish_reason", "created_at", "digest"),
)
_ARRIVAL = _FACTS.index("arrival")
_DIGEST = _FACTS.index("digest")
_Facts: TypeAlias = Row


@dataclass(frozen=True, slots=True)
class _Walk:
    """Points oldest first, and the messages among them."""

    points: Sequence[Point]
    facts: dict[bytes, _Facts]


class PathReads:
    """The contract's reads of whole lists and of single bodies."""

    _db: Database

    async def path(self, namespace: str, session: str, chain: bytes) -> Sequence[PathEntry]:
        """See the contract."""
        return await self._db.far(_entries(_Place(namespace, session), chain))

    async def bodies(
        self, namespace: str, session: str, chain: bytes, since: bytes = b""
    ) -> Sequence[MessageRow]:
        """See the contract."""
        return await self._db.far(_bodies(_Place(namespace, session), chain, since))

    async def transcript(self, namespace: str, session: str, chain: bytes) -> Sequence[MessageRow]:
        """See the contract."""
        return await self._db.far(_transcript(_Place(namespace, session), chain))

    async def message(self, namespace: str, prefix: bytes) -> tuple[str, MessageRow] | None:
        """See the contract; None for a prefix too short to name one. Of twins, the newest session's."""
        if not _MIN_PREFIX_BYTES <= len(prefix) <= _DIGEST_BYTES:
            return None
        return await self._db.near(_message(namespace, prefix))

    async def preamble(self, namespace: str, session: str, digest: bytes) -> Sequence[bytes]:
        """See the contract; empty when unknown."""
        return await self._db.far(_preamble(namespace, session, digest))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where all rows of one reading are."""

    namespace: str
    session: str

    def at(self, chain: bytes) -> Params:
        return {"namespace": self.namespace, "session": self.session, "chain": chain}


def _path(place: _Place, chain: bytes, since: bytes = b"") -> Reading[list[_Facts]]:
    walk = yield from _walk(place, chain, _BY_BASE, since)
    chains = path_of(walk.points)
    if since in chains:
        # It may stand within a rebased list: then the walk has gone on before it.
        chains = chains[len(chains) - 1 - chains[::-1].index(since) :]
    facts = yield from _with_missing(place, walk.facts, chains)
    return [facts[c] for c in chains if c in facts]


def _entries(place: _Place, chain: bytes) -> Reading[list[PathEntry]]:
    path = yield from _path(place, chain)
    return [PathEntry(f[0], f[1], f[_DIGEST], f[2], bool(f[6])) for f in path]


def _bodies(place: _Place, chain: bytes, since: bytes) -> Reading[list[MessageRow]]:
    path = yield from _path(place, chain, since)
    bodies = yield from bodies_of(place.namespace, [f[_DIGEST] for f in path])
    return [_row(f, bodies[f[_DIGEST]], in_path=True) for f in path]


def _transcript(place: _Place, chain: bytes) -> Reading[list[MessageRow]]:
    path = yield from _path(place, chain)
    walk = yield from _walk(place, chain, _BY_ANCHOR)
    paths: dict[bytes, list[bytes]] = {}
    for base in bases_of(walk.points):
        if base not in paths:
            paths[base] = [f[0] for f in (yield from _path(place, base))]
    in_path = {f[0]: f for f in path}
    line = lineage_of(walk.points, paths)
    facts = yield from _with_missing(place, walk.facts | in_path, line)
    said = [facts[c] for c in line if c in facts]
    bodies = yield from bodies_of(place.namespace, [f[_DIGEST] for f in said])
    return [_row(f, bodies[f[_DIGEST]], in_path=f[0] in in_path) for f in said]


def _message(namespace: str, prefix: bytes) -> Reading[tuple[str, MessageRow] | None]:
    last = prefix + b"\xff" * (_DIGEST_BYTES - len(prefix))
    found = yield from rows_of(_MESSAGE, {"namespace": namespace, "first": prefix, "last": last})
    if not found:
        return None
    session, body, *facts = found[0]
    return session, _row(facts, body, in_path=True)


def _preamble(namespace: str, session: str, digest: bytes) -> Reading[list[bytes]]:
    key = {"namespace": namespace, "session": session, "digest": digest}
    found = yield from rows_of(_PREAMBLE, key)
    if not found:
        return []
    digests = unpacked(found[0][0])
    bodies = yield from bodies_of(namespace, digests)
    return [bodies[d] for d in digests]


def _walk(place: _Place, chain: bytes, statement: Statement, since: bytes = b"") -> Reading[_Walk]:
    rows = yield from rows_of(statement, {**place.at(chain), "since": since})
    points: list[Point] = []
    facts: dict[bytes, _Facts] = {}
    # Arrival falls at every step, so that it orders the walk whatever order the rows come in.
    for row in sorted(rows, key=itemgetter(_ARRIVAL)):
        base, members = row[-2:]
        if members is None:
            facts[row[0]] = row[:-2]
            points.append(row[0])
        else:
            points.append(Rebase(row[0], base, unpacked(members)))
    return _Walk(points, facts)


def _with_missing(
    place: _Place, known: dict[bytes, _Facts], chains: Iterable[bytes]
) -> Reading[dict[bytes, _Facts]]:
    """`known` and, read now, what it lacks of `chains`."""
    missing = [chain for chain in dict.fromkeys(chains) if chain not in known]
    found = dict(known)
    for listed, size in _listed("chain", missing):
        rows = yield from rows_of(_MESSAGES_AMONG[size], {**place.at(b""), **listed})
        found.update((row[0], row) for row in rows)
    return found


def bodies_of(namespace: str, digests: Iterable[bytes]) -> Reading[dict[bytes, bytes]]:
    """Bodies by their digests."""
    found: dict[bytes, bytes] = {}
    for listed, size in _listed("digest", list(dict.fromkeys(digests))):
        rows = yield from rows_of(_BODIES_AMONG[size], {"namespace": namespace, **listed})
        found.update((row[0], row[1]) for row in rows)
    return found


def _listed(name: str, digests: Sequence[bytes]) -> Iterable[tuple[Params, int]]:
    """Parameters that name `digests` in groups; the last of a group fills it up."""
    size = _SIZES[0] if len(digests) <= _SIZES[0] else _SIZES[-1]
    for start in range(0, len(digests), size):
        part = digests[start : start + size]
        yield {f"{name}_{i}": part[min(i, len(part) - 1)] for i in range(size)}, size


def _row(facts: _Facts, body: bytes, *, in_path: bool) -> MessageRow:
    chain, canonical, role, tokens, depth, arrival, relayed, state, finish_reason, created_at, _ = facts
    said = (chain, canonical, role, tokens, depth, arrival, bool(relayed), state, in_path, body)
    return MessageRow(*said, finish_reason, created_at)


def _walked(_: InsertInto, via: str) -> Select[Any]:
    """Points from `chain` back to the message `since`: a message leads to its parent, a rebase to its `via`.

    Arrival must fall, so that the walk ends whatever the rows say.
    """
    columns = [MESSAGES.c[name] for name in _FACTS if name not in ("chain", "arrival")]
    nothing = [cast(null(), c.type).label(c.name) for c in columns]
    start = select(
        cast(null(), LargeBinary).label("chain"),
        p("chain", LargeBinary).label("next"),
        literal_column("9223372036854775807", BigInteger).label("arrival"),
        cast(null(), LargeBinary).label("base"),
        cast(null(), LargeBinary).label("members"),
        *nothing,
    ).cte("walk", recursive=True)
    here = [and_(t.c.namespace == p("namespace"), t.c.session == p("session")) for t in (MESSAGES, REBASES)]
    arrival = func.coalesce(MESSAGES.c.arrival, REBASES.c.arrival)
    step = (
        select(
            start.c.next,
            func.coalesce(MESSAGES.c.parent, REBASES.c[via]),
            arrival,
            REBASES.c.base,
            REBASES.c.members,
            *columns,
        )
        .select_from(
            start.outerjoin(MESSAGES, and_(here[0], MESSAGES.c.chain == start.c.next)).outerjoin(
                REBASES, and_(here[1], REBASES.c.chain == start.c.next, MESSAGES.c.chain.is_(None))
            )
        )
        .where(
            arrival < start.c.arrival,
            # A rebase may bear the digest too: what stands before it is still to come.
            or_(start.c.chain.is_distinct_from(p("since", LargeBinary)), start.c.members.is_not(None)),
        )
    )
    walk = start.union_all(step)
    facts = [walk.c[name] for name in _FACTS]
    return select(*facts, walk.c.base, walk.c.members).where(walk.c.chain.is_not(None))


def _messages_among(_: InsertInto, size: int) -> Select[Any]:
    return select(*(MESSAGES.c[name] for name in _FACTS)).where(
        MESSAGES.c.namespace == p("namespace"),
        MESSAGES.c.chain.in_([p(f"chain_{i}", LargeBinary) for i in range(size)]),
        MESSAGES.c.session == p("session"),
    )


def _bodies_among(_: InsertInto, size: int) -> Select[Any]:
    return select(BODIES.c.digest, BODIES.c.body).where(
        BODIES.c.namespace == p("namespace"),
        BODIES.c.digest.in_([p(f"digest_{i}", LargeBinary) for i in range(size)]),
    )


def _message_from(_: InsertInto) -> Select[Any]:
    return (
        select(MESSAGES.c.session, BODIES.c.body, *(MESSAGES.c[name] for name in _FACTS))
        .join(BODIES, and_(BODIES.c.namespace == MESSAGES.c.namespace, BODIES.c.digest == MESSAGES.c.digest))
        .where(
            MESSAGES.c.namespace == p("namespace"),
            MESSAGES.c.chain >= p("first", LargeBinary),
            MESSAGES.c.chain <= p("last", LargeBinary),
        )
        .order_by(MESSAGES.c.chain, MESSAGES.c.session.desc())
        .limit(literal_column("1"))
    )


_BY_BASE = Statement(partial(_walked, via="base"))
_BY_ANCHOR = Statement(partial(_walked, via="anchor"))
_MESSAGES_AMONG = {size: Statement(partial(_messages_among, size=size)) for size in _SIZES}
_BODIES_AMONG = {size: Statement(partial(_bodies_among, size=size)) for size in _SIZES}
_MESSAGE = Statement(_message_from)
_PREAMBLE = Statement(
    lambda _: select(PREAMBLES.c.bodies).where(
        PREAMBLES.c.namespace == p("namespace"),
        PREAMBLES.c.session == p("session"),
        PREAMBLES.c.digest == p("digest"),
    )
)
