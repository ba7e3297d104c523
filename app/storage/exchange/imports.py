"""A session that is there at once, with messages that no exchange has brought.

Must not know where the messages are from. One unit: there is all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from app.core.view.compaction import Compaction
from app.storage.contract import OpenExchange
from app.storage.database import Database, Params, Step, Unit
from app.storage.exchange import row_sql as sql
from app.storage.exchange.rows import (
    bodies_of_opening,
    body_rows,
    message_rows,
    preamble_rows,
    session_row,
)
from app.storage.journal import Event
from app.storage.journal_sql.compactions import ADD_COMPACTION_IN_EPOCH, compaction_rows
from app.storage.journal_sql.events import ADD_EVENT, event_rows

# A compaction and when it was made.
Made: TypeAlias = tuple[Compaction, float]


class ImportWrites:
    """See the contract."""

    _db: Database

    async def import_session(
        self, opened: OpenExchange, times: Sequence[float], events: Sequence[Event], made: Sequence[Made] = ()
    ) -> None:
        """See the contract. Conflict: the name already belongs to another session."""
        await self._db.write(_importing(opened, times, events, made))


def _importing(
    opened: OpenExchange, times: Sequence[float], events: Sequence[Event], made: Sequence[Made]
) -> Unit:
    """The steps. Repeating them changes nothing but the counter."""
    key: Params = {"namespace": opened.namespace, "session": opened.session}
    behind = len(made) + len(events)
    messages = message_rows(opened, behind + len(opened.messages) - 1)
    steps = [
        Step(sql.PUT_SESSION, [session_row(opened, len(opened.messages) + behind)]),
        Step(sql.PUT_BODY, body_rows(opened.namespace, bodies_of_opening(opened))),
        Step(
            sql.PUT_MESSAGE,
            [{**row, "created_at": at} for row, at in zip(messages, times, strict=True)],
        ),
        Step(sql.PUT_PREAMBLE, preamble_rows(opened)),
        Step(ADD_COMPACTION_IN_EPOCH, compaction_rows({**key, "epoch": 0}, made, len(events))),
        Step(ADD_EVENT, event_rows(key, events)),
    ]
    return [step for step in steps if step.rows]
