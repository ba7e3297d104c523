"""What stands beside a message, and whether a path holds it.

Must not know why that is asked. A path is walked back no further than the oldest message asked for, and not
at all where a long session has but one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    LargeBinary,
    Select,
    and_,
    cast,
    exists,
    func,
    literal_column,
    null,
    or_,
    select,
)

from app.core.history.known import Rebase
from app.core.history.lineage import path_of
from app.storage.database import Database, InsertInto, Params, Reading, Row, Statement, p, rows_of
from app.storage.packing import unpacked
from app.storage.recall.contract import Beside, RecallRow
from app.storage.recall.rows import (
    Fact,
    among,
    listed_in,
    message_of,
    messages,
    with_bodies,
)
from app.storage.tables.conversations import MESSAGES, REBASES

# Chains asked for at once.
_SIZES = (8, 128)
_MOST_BESIDE = 64
# Rows that follow: a question may have been asked anew any number of times.
_MOST_AFTER = 256
# Arrivals; for a longer way back it is looked first whether the session has but one path.
_LONG_WALK = 200


class Around:
    """See the contract."""

    _db: Database

    async def beside(self, namespace: str, session: str, chains: Sequence[bytes]) -> Mapping[bytes, Beside]:
        """See the contract."""
        asked = list(dict.fromkeys(chains))[:_MOST_BESIDE]
        return await self._db.far(_beside({"namespace": namespace, "session": session}, asked))

    async def path_holds(
        self, namespace: str, session: str, head: bytes, chains: Sequence[bytes]
    ) -> frozenset[bytes]:
        """See the contract."""
        asked = list(dict.fromkeys(chains))
        return await self._db.far(_path_holds({"namespace": namespace, "session": session}, head, asked))


def _beside(key: Params, chains: Sequence[bytes]) -> Reading[dict[bytes, Beside]]:
    here = yield from _among(_MESSAGES, key, chains)
    parents = yield from _among(_MESSAGES, key, [parent for _, parent in _parents(here)])
    jumps = {row[0]: row[1] for row in (yield from _rows(_ANCHORS, key, [p for _, p in _parents(here)]))}
    anchors = yield from _among(_MESSAGES, key, list(jumps.values()))
    after = yield from _among(_CHILDREN, key, chains)
    jumped = {row[0]: row[1] for row in (yield from _rows(_JUMPS, key, chains))}
    after += yield from _among(_CHILDREN, key, list(jumped))
    facts = {fact.row.chain: fact for fact in (*parents, *anchors, *after)}
    rows = yield from with_bodies(str(key["namespace"]), list(facts.values()))
    return _placed(here, {row.chain: row for row in rows}, jumps, jumped)


def _placed(
    here: Iterable[Fact],
    rows: Mapping[bytes, RecallRow],
    jumps: Mapping[bytes, bytes],
    jumped: Mapping[bytes, bytes],
) -> dict[bytes, Beside]:
    """Each message's rows. `jumps`: rebase to its anchor, before; `jumped`: the same, after."""
    following: dict[bytes, list[RecallRow]] = {}
    for row in sorted(rows.values(), key=lambda row: row.arrival):
        following.setdefault(jumped.get(row.parent, row.parent), []).append(row)
    return {
        chain: Beside(rows.get(jumps.get(parent, parent)), following.get(chain, ()))
        for chain, parent in _parents(here)
    }


def _parents(facts: Iterable[Fact]) -> list[tuple[bytes, bytes]]:
    return [(fact.row.chain, fact.row.parent) for fact in facts]


def _path_holds(key: Params, head: bytes, chains: Sequence[bytes]) -> Reading[frozenset[bytes]]:
    arrivals = {row[0]: row[1] for row in (yield from _rows(_ARRIVALS, key, [*chains, head]))}
    asked = [arrivals[chain] for chain in chains if chain in arrivals]
    if not asked:
        return frozenset()
    end = arrivals.get(head)
    if end is not None and end - min(asked) > _LONG_WALK and (yield from rows_of(_IS_LINE, key))[0][0]:
        return frozenset(chain for chain in chains if arrivals.get(chain, end + 1) <= end)
    walked = yield from rows_of(_WALK, {**key, "head": head, "oldest": min(asked)})
    points = [
        chain if members is None else Rebase(chain, b"", unpacked(members)) for chain, members in walked
    ]
    return frozenset(chains).intersection(path_of(points)).intersection(arrivals)


def _rows(statements: Mapping[int, Statement], key: Params, chains: Sequence[bytes]) -> Reading[list[Row]]:
    found: list[Row] = []
    for listed, size in listed_in("chain", list(dict.fromkeys(chains)), _SIZES):
        found += yield from rows_of(statements[size], {**key, **listed})
    return found


def _among(statements: Mapping[int, Statement], key: Params, chains: Sequence[bytes]) -> Reading[list[Fact]]:
    return [message_of(row) for row in (yield from _rows(statements, key, chains))]


def _here(table: Any) -> Any:
    return and_(table.c.session == p("session"), table.c.namespace == p("namespace"))


def _is_line(_: InsertInto) -> Select[Any]:
    """Nothing in the session has a sibling, and no list was put together anew: all of it is one path.

    Counted over an index, at a twentieth of the price of the walk.
    """
    parents = func.count(MESSAGES.c.parent.distinct())
    jumps = exists(select(1).select_from(REBASES).where(_here(REBASES)))
    return select(and_(func.count() == parents, ~jumps)).select_from(MESSAGES).where(_here(MESSAGES))


def _walk(_: InsertInto) -> Select[Any]:
    """Points from `head` back to what arrived at `oldest`. Arrival falls at each step, so that it ends.

    A list that was put together anew has arrived before the new messages in it: it is looked at beyond.
    """
    start = select(
        cast(null(), LargeBinary).label("chain"),
        p("head", LargeBinary).label("next"),
        literal_column("9223372036854775807", BigInteger).label("arrival"),
        cast(null(), LargeBinary).label("members"),
    ).cte("walk", recursive=True)
    arrival = func.coalesce(MESSAGES.c.arrival, REBASES.c.arrival)
    message = and_(_here(MESSAGES), MESSAGES.c.chain == start.c.next)
    rebase = and_(_here(REBASES), REBASES.c.chain == start.c.next, MESSAGES.c.chain.is_(None))
    step = (
        select(start.c.next, func.coalesce(MESSAGES.c.parent, REBASES.c.base), arrival, REBASES.c.members)
        .select_from(start.outerjoin(MESSAGES, message).outerjoin(REBASES, rebase))
        .where(
            arrival < start.c.arrival,
            or_(arrival >= p("oldest", BigInteger), REBASES.c.members.is_not(None)),
        )
    )
    walk = start.union_all(step)
    return select(walk.c.chain, walk.c.members).where(walk.c.chain.is_not(None))


def _sized(build: Any) -> dict[int, Statement]:
    """The statement for either number of chains."""

    def of(size: int) -> Statement:
        return Statement(lambda _: build(size))

    return {size: of(size) for size in _SIZES}


_MESSAGES = _sized(lambda size: messages().where(_here(MESSAGES), among(MESSAGES.c.chain, "chain", size)))
_CHILDREN = _sized(
    lambda size: (
        messages()
        .where(_here(MESSAGES), among(MESSAGES.c.parent, "chain", size))
        # In no order: asked for one, SQLite reads the whole session by its arrivals.
        .limit(literal_column(str(_MOST_AFTER)))
    )
)
_ANCHORS = _sized(
    lambda size: select(REBASES.c.chain, REBASES.c.anchor).where(
        _here(REBASES), among(REBASES.c.chain, "chain", size)
    )
)
_JUMPS = _sized(
    lambda size: (
        select(REBASES.c.chain, REBASES.c.anchor)
        .where(_here(REBASES), among(REBASES.c.anchor, "chain", size))
        .limit(literal_column(str(_MOST_AFTER)))
    )
)
_ARRIVALS = _sized(
    lambda size: select(MESSAGES.c.chain, MESSAGES.c.arrival).where(
        _here(MESSAGES), among(MESSAGES.c.chain, "chain", size)
    )
)
_IS_LINE = Statement(_is_line)
_WALK = Statement(_walk)
