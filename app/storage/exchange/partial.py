"""Partial answers in the rows of their exchanges: written while they grow, found after a crash.

Must not know which database runs the statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, select, update
from sqlalchemy.sql.expression import literal_column

from app.storage.database import Database, InsertInto, Reading, Statement, Step, p, rows_of
from app.storage.exchange.row_sql import SIZE_OF, Spot, is_extended
from app.storage.interrupted import Interrupted
from app.storage.tables.conversations import EXCHANGES, MESSAGES


class PartialRows:
    """See the contract in `app/storage/interrupted.py`."""

    _db: Database

    async def save_partial(self, namespace: str, session: str, exchange: str, body: bytes) -> None:
        """See the contract."""
        row = {"namespace": namespace, "session": session, "exchange": exchange, "partial": body}
        await self._db.write([Step(_SAVE_PARTIAL, [row])])

    async def interrupted(self) -> Sequence[Interrupted]:
        """See the contract."""
        return await self._db.far(_interrupted())


def _interrupted() -> Reading[list[Interrupted]]:
    found = []
    for namespace, session, exchange, head, base, model, partial in (yield from rows_of(_INTERRUPTED, {})):
        point = {"namespace": namespace, "session": session, "chain": bytes(head)}
        sizes = yield from rows_of(SIZE_OF, point)
        depth, answers = sizes[0] if sizes else (0, 0)
        followed = yield from rows_of(_IS_FOLLOWED, point)
        found.append(
            Interrupted(
                namespace=namespace,
                session=session,
                exchange=exchange,
                head=bytes(head),
                base=bytes(base),
                model=model,
                partial=bytes(partial),
                depth=depth,
                answers=answers,
                is_followed=bool(followed[0][0]),
            )
        )
    return found


def _of_the_dead(_: InsertInto) -> Select[Any]:
    names = ("namespace", "session", "id", "head", "base", "model", "partial")
    return (
        select(*(EXCHANGES.c[name] for name in names))
        .where(EXCHANGES.c.partial.is_not(None), EXCHANGES.c.state == literal_column("'failed'"))
        .order_by(EXCHANGES.c.id)
    )


_HEAD = Spot(p(MESSAGES.c.namespace), p(MESSAGES.c.session), p(MESSAGES.c.chain))
_IS_FOLLOWED = Statement(lambda _: select(is_extended(_HEAD)))
_INTERRUPTED = Statement(_of_the_dead)
_SAVE_PARTIAL = Statement(
    lambda _: (
        update(EXCHANGES)
        .where(
            EXCHANGES.c.id == p("exchange"),
            EXCHANGES.c.namespace == p("namespace"),
            EXCHANGES.c.session == p("session"),
            EXCHANGES.c.state == literal_column("'open'"),
        )
        .values(partial=p(EXCHANGES.c.partial))
    )
)
