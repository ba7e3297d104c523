"""What a namespace has spent on models, day by day. Must not know prices or limits."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import Insert

from app.storage.database import Database, InsertInto, Statement, Step, named, p, rows_of
from app.storage.journal import Spending
from app.storage.tables.conversations import SPENDING

_ADDED = ("calls", "prompt_tokens", "completion_tokens", "cached_tokens")


class SpendingRows:
    """See the contract in `app/storage/journal.py`."""

    _db: Database

    async def add_spending(self, namespace: str, day: str, spent: Spending) -> None:
        """See the contract."""
        added = {name: getattr(spent, name) for name in _ADDED}
        await self._db.write([Step(_ADD_SPENDING, [{"namespace": namespace, "day": day, **added}])])

    async def spending(self, namespace: str, day: str) -> Spending:
        """See the contract."""
        rows = await self._db.near(rows_of(_SPENDING, {"namespace": namespace, "day": day}))
        return Spending(*rows[0]) if rows else Spending()


def _add_spending(insert: InsertInto) -> Insert:
    new = insert(SPENDING).values(named(SPENDING))
    return new.on_conflict_do_update(
        index_elements=list(SPENDING.primary_key.columns),
        # Of the cache older rows say nothing.
        set_={name: func.coalesce(SPENDING.c[name], 0) + new.excluded[name] for name in _ADDED},
    )


_ADD_SPENDING = Statement(_add_spending)
_SPENDING = Statement(
    lambda _: select(*(func.coalesce(SPENDING.c[name], 0) for name in _ADDED)).where(
        SPENDING.c.namespace == p("namespace"), SPENDING.c.day == p("day")
    )
)
