"""Compactions and pins: what, with the messages, determines a view.

Must not know how a view is made. A compaction is fenced by its session's epoch, not by a lock: one
that comes too late stores nothing.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

from sqlalchemy import delete, select, update

from app.core.view.compaction import Compaction, Mask
from app.storage.contract import PinRow, StoredCompaction
from app.storage.database import (
    Database,
    Params,
    Row,
    Statement,
    Step,
    p,
    plain,
    plain_or_none,
    rows_of,
)
from app.storage.exchange_sql import arriving
from app.storage.exchanges import packed, unpacked
from app.storage.tables import COMPACTIONS, PINS, SESSIONS

_MASK = struct.Struct(">32sQ")
_COLUMNS = (
    *("id", "kind", "watermark", "kept", "masks", "summary", "policy", "trigger", "author", "model"),
    *("tokens_before", "tokens_after", "messages_folded", "parents", "reason", "created_at"),
)


class CompactionRows:
    """Reads and writes of compactions and pins."""

    _db: Database

    async def compactions(self, namespace: str, session: str) -> Sequence[StoredCompaction]:
        """See the contract."""
        rows = await self._db.near(rows_of(_COMPACTIONS, {"namespace": namespace, "session": session}))
        return [_stored(row) for row in rows]

    async def add_compaction(
        self, namespace: str, session: str, epoch: int, compaction: Compaction, now: float
    ) -> bool:
        """See the contract. True again when the same compaction is added again."""
        key: Params = {"namespace": namespace, "session": session, "epoch": epoch}
        row = {**key, **_row(compaction), "created_at": now, "back": 0}
        drawn, _ = await self._db.write([Step(_DRAW, [key]), Step(_ADD_COMPACTION, [row])])
        return drawn > 0

    async def pins(self, namespace: str, session: str) -> Sequence[PinRow]:
        """See the contract."""
        rows = await self._db.near(rows_of(_PINS, {"namespace": namespace, "session": session}))
        return [PinRow(*row) for row in rows]

    async def add_pin(self, namespace: str, session: str, chain: bytes, now: float) -> None:
        """See the contract. Nothing happens when there is no such session."""
        key: Params = {"namespace": namespace, "session": session, "chain": chain}
        pin = {**key, "created_at": now, "back": 0}
        await self._db.write([Step(_DRAW_ANY, [key]), Step(_ADD_PIN, [pin])])

    async def remove_pin(self, namespace: str, session: str, chain: bytes) -> bool:
        """See the contract."""
        key: Params = {"namespace": namespace, "session": session, "chain": chain}
        (removed,) = await self._db.write([Step(_REMOVE_PIN, [key])])
        return removed > 0


def _row(compaction: Compaction) -> Params:
    return {
        "id": compaction.id,
        "kind": compaction.kind,
        "watermark": compaction.watermark,
        "kept": packed(compaction.kept),
        "masks": b"".join(_MASK.pack(mask.chain, mask.limit_chars) for mask in compaction.masks),
        # A summary may quote half of a surrogate pair, as its messages may.
        "summary": compaction.summary.encode("utf-8", "surrogatepass"),
        "policy": compaction.policy,
        "trigger": compaction.trigger,
        "author": compaction.author,
        "model": plain_or_none(compaction.model),
        "tokens_before": compaction.tokens_before,
        "tokens_after": compaction.tokens_after,
        "messages_folded": compaction.messages_folded,
        "parents": json.dumps(compaction.parents),
        "reason": plain(compaction.reason),
    }


def _stored(row: Row) -> StoredCompaction:
    arrival, *rest = row
    values = dict(zip(_COLUMNS, rest, strict=True))
    created_at = values.pop("created_at")
    values["kept"] = unpacked(values["kept"])
    values["masks"] = tuple(Mask(*mask) for mask in _MASK.iter_unpack(values["masks"]))
    values["summary"] = values["summary"].decode("utf-8", "surrogatepass")
    values["parents"] = tuple(json.loads(values["parents"]))
    return StoredCompaction(Compaction(**values), arrival, created_at)


_COMPACTIONS = Statement(
    lambda _: (
        select(COMPACTIONS.c.arrival, *(COMPACTIONS.c[name] for name in _COLUMNS))
        .where(COMPACTIONS.c.namespace == p("namespace"), COMPACTIONS.c.session == p("session"))
        .order_by(COMPACTIONS.c.arrival)
    )
)
_PINS = Statement(
    lambda _: (
        select(PINS.c.chain, PINS.c.created_at)
        .where(PINS.c.namespace == p("namespace"), PINS.c.session == p("session"))
        .order_by(PINS.c.arrival)
    )
)
_DRAW_ANY = Statement(
    lambda _: (
        update(SESSIONS)
        .where(SESSIONS.c.namespace == p("namespace"), SESSIONS.c.id == p("session"))
        .values(arrivals=SESSIONS.c.arrivals + 1)
    )
)
_DRAW = Statement(
    lambda _: (
        update(SESSIONS)
        .where(
            SESSIONS.c.namespace == p("namespace"),
            SESSIONS.c.id == p("session"),
            SESSIONS.c.epoch == p("epoch"),
        )
        .values(arrivals=SESSIONS.c.arrivals + 1)
    )
)
_ADD_COMPACTION = Statement(
    lambda insert: arriving(
        insert, COMPACTIONS, ("namespace", "session", *_COLUMNS), SESSIONS.c.epoch == p("epoch")
    ).on_conflict_do_nothing()
)
_ADD_PIN = Statement(
    lambda insert: arriving(
        insert, PINS, ("namespace", "session", "chain", "created_at")
    ).on_conflict_do_nothing()
)
_REMOVE_PIN = Statement(
    lambda _: delete(PINS).where(
        PINS.c.namespace == p("namespace"), PINS.c.session == p("session"), PINS.c.chain == p("chain")
    )
)
