"""Who works on what, of the servers that share a database: one row a key, changed by single statements.

Must not know what is worked on.
"""

from __future__ import annotations

from sqlalchemy import Double, delete, or_, select, update
from sqlalchemy.dialects.postgresql import Insert

from app.storage.database import Database, InsertInto, Statement, Step, named, p, rows_of
from app.storage.tables.servers import LEASES


class LeaseRows:
    """See the contract in `app/storage/journal.py`."""

    _db: Database

    async def take_lease(self, key: str, holder: str, now: float, seconds: float) -> bool:
        """See the contract."""
        row = {"key": key, "holder": holder, "now": now, "expires_at": now + seconds}
        (taken,) = await self._db.write([Step(_TAKE_LEASE, [row])])
        return taken > 0

    async def renew_lease(self, key: str, holder: str, now: float, seconds: float) -> bool:
        """See the contract."""
        row = {"key": key, "holder": holder, "expires_at": now + seconds}
        (renewed,) = await self._db.write([Step(_RENEW_LEASE, [row])])
        return renewed > 0

    async def release_lease(self, key: str, holder: str) -> None:
        """See the contract."""
        await self._db.write([Step(_RELEASE_LEASE, [{"key": key, "holder": holder}])])

    async def is_leased(self, key: str, now: float, besides: str = "") -> bool:
        """See the contract."""
        asked = {"key": key, "now": now, "besides": besides}
        return bool(await self._db.near(rows_of(_IS_LEASED, asked)))


def _take_lease(insert: InsertInto) -> Insert:
    new = insert(LEASES).values(named(LEASES))
    return new.on_conflict_do_update(
        index_elements=[LEASES.c.key],
        set_={"holder": new.excluded.holder, "expires_at": new.excluded.expires_at},
        # Asked of the row as it is once locked: of two takers the second finds the first's lease.
        where=or_(LEASES.c.expires_at <= p("now", Double), LEASES.c.holder == new.excluded.holder),
    )


_HELD = (LEASES.c.key == p("key"), LEASES.c.holder == p("holder"))
_TAKE_LEASE = Statement(_take_lease)
_RENEW_LEASE = Statement(lambda _: update(LEASES).where(*_HELD).values(expires_at=p(LEASES.c.expires_at)))
_RELEASE_LEASE = Statement(lambda _: delete(LEASES).where(*_HELD))
_IS_LEASED = Statement(
    lambda _: select(LEASES.c.key).where(
        LEASES.c.key == p("key"), LEASES.c.expires_at > p("now", Double), LEASES.c.holder != p("besides")
    )
)
