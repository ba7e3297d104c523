"""Items of answers as rows: one an item, with the place that its answer follows and the digest of its body.

Must not know what stands in a body.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from sqlalchemy import CompoundSelect, Select, select, union_all
from sqlalchemy.sql.expression import ColumnElement, literal_column

from app.storage.contract import CloseExchange
from app.storage.database import Database, InsertInto, Reading, Statement, Step, named, p, plain, rows_of
from app.storage.exchange.items import MOST_ANSWERS
from app.storage.path import bodies_of
from app.storage.tables.conversations import ITEMS

# Ids asked for at once.
_SIZES = (8, 64)
# As many as there are marks of a session.
_MOST_LISTED = 4096


class ItemRows:
    """See the contract in `app/storage/exchange/items.py`."""

    _db: Database

    async def answers_with(
        self, namespace: str, items: Sequence[str], after: bytes | None = None
    ) -> Mapping[str, Sequence[bytes]]:
        """See the contract."""
        reading = _answers_with(namespace, items, after)
        return await (self._db.near(reading) if len(items) <= _SIZES[0] else self._db.far(reading))

    async def items_of(self, namespace: str, session: str) -> Sequence[str]:
        """See the contract."""
        key = {"namespace": namespace, "session": session}
        return [ident for (ident,) in await self._db.far(rows_of(_OF_SESSION, key))]


def items_step(exchange: CloseExchange) -> Step:
    """Writes where the items of an exchange's answer are found; without rows where it has none."""
    answers = exchange.answers if exchange.items else ()
    return Step(
        _PUT_ITEM,
        [
            {
                "id": plain(ident),
                "parent": answer.parent,
                "session": exchange.session,
                "digest": answer.digest,
                "namespace": exchange.namespace,
            }
            for answer in answers
            for ident in exchange.items
        ],
    )


def _answers_with(
    namespace: str, items: Sequence[str], after: bytes | None
) -> Reading[dict[str, list[bytes]]]:
    found: defaultdict[str, set[bytes]] = defaultdict(set)
    size = _SIZES[0] if len(items) <= _SIZES[0] else _SIZES[-1]
    statement = (_NAMED if after is None else _NAMED_AFTER)[size]
    for start in range(0, len(items), size):
        part = [plain(ident) for ident in items[start : start + size]]
        listed = {f"item_{i}": part[min(i, len(part) - 1)] for i in range(size)}
        for ident, digest in (
            yield from rows_of(statement, {"namespace": namespace, "after": after, **listed})
        ):
            found[ident].add(bytes(digest))
    few = {ident: digests for ident, digests in found.items() if len(digests) <= MOST_ANSWERS}
    bodies = yield from bodies_of(namespace, [digest for digests in few.values() for digest in digests])
    return {
        ident: [bodies[digest] for digest in few.get(plain(ident), ())]
        for ident in items
        if plain(ident) in found
    }


def _asked(_: InsertInto, size: int, *, after: bool) -> CompoundSelect[Any]:
    """One more of each than is looked at, that too many are told from enough."""
    return union_all(*(_of_one(at, after=after) for at in range(size)))


def _of_one(at: int, *, after: bool) -> Select[Any]:
    here: list[ColumnElement[bool]] = [ITEMS.c.id == p(f"item_{at}"), ITEMS.c.namespace == p("namespace")]
    if after:
        here.append(ITEMS.c.parent == p("after", ITEMS.c.parent.type))
    most: ColumnElement[int] = literal_column(str(MOST_ANSWERS + 1))
    # The same body may stand in several places.
    rows = select(ITEMS.c.id, ITEMS.c.digest).distinct().where(*here).limit(most)
    return select(rows.subquery(f"asked_{at}"))


_PUT_ITEM = Statement(lambda insert: insert(ITEMS).values(named(ITEMS)).on_conflict_do_nothing())
_OF_SESSION = Statement(
    lambda _: (
        select(ITEMS.c.id)
        .distinct()
        .where(ITEMS.c.session == p("session"), ITEMS.c.namespace == p("namespace"))
        .limit(literal_column(str(_MOST_LISTED)))
    )
)
_NAMED = {size: Statement(partial(_asked, size=size, after=False)) for size in _SIZES}
_NAMED_AFTER = {size: Statement(partial(_asked, size=size, after=True)) for size in _SIZES}
