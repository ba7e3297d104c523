"""What was answered last: a bounded look at the newest exchanges, for requests that quote one.

Must not know what is made of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Integer, Select, literal, select
from sqlalchemy.sql.expression import literal_column, true

from app.storage.database import Database, InsertInto, Params, Reading, Statement, p, rows_of
from app.storage.exchange.row_sql import ON_PATH
from app.storage.naming import SaidLast
from app.storage.path import bodies_of
from app.storage.tables.conversations import EXCHANGES, MESSAGES

# Exchanges looked at, of all namespaces, and of those this namespace's that are read.
_LOOKED_AT = 64
_READ = 8
# Results of tools between a question and its newest answer.
_MOST_STEPS = 64


class SaidReads:
    """See the contract in `app/storage/naming.py`."""

    _db: Database

    async def said_last(self, namespace: str) -> Sequence[SaidLast]:
        """See the contract."""
        return await self._db.near(_said_last(namespace))


def _said_last(namespace: str) -> Reading[Sequence[SaidLast]]:
    newest = yield from rows_of(_NEWEST_OF_ALL, {"namespace": namespace})
    found: list[tuple[str, bytes, int, bytes, bytes]] = []
    for session, head in newest:
        key: Params = {"namespace": namespace, "session": session, "chain": head}
        answers = yield from rows_of(_ANSWER, key)
        questions = yield from rows_of(_QUESTION, key)
        if answers and questions:
            _, chain, count, digest = max(answers, key=itemgetter(0))
            found.append((session, chain, count, digest, questions[0][0]))
    bodies = yield from bodies_of(namespace, [digest for row in found for digest in row[3:]])
    return [
        SaidLast(session, chain, count, bodies[question], bodies[answer])
        for session, chain, count, answer, question in found
    ]


def _newest(_: InsertInto) -> Select[Any]:
    """Ids grow with time, so that the newest are at the end of the key."""
    columns = ("id", "namespace", "session", "head", "state", "mark")
    looked_at = (
        select(*(EXCHANGES.c[name] for name in columns))
        .order_by(EXCHANGES.c.id.desc())
        .limit(literal_column(str(_LOOKED_AT)))
        .subquery()
    )
    return (
        select(looked_at.c.session, looked_at.c.head)
        .where(
            looked_at.c.namespace == p("namespace"),
            looked_at.c.state == "done",
            looked_at.c.mark.is_(None) | (looked_at.c.mark != "side"),
        )
        .order_by(looked_at.c.id.desc())
        .limit(literal_column(str(_READ)))
    )


def _question(_: InsertInto) -> Select[Any]:
    """From the request's last message back to the user's."""
    here = (MESSAGES.c.namespace == p("namespace"), MESSAGES.c.session == p("session"))
    columns = (MESSAGES.c.parent, MESSAGES.c.role, MESSAGES.c.digest)
    walk = (
        select(*columns, literal(1, Integer).label("step"))
        .where(*here, MESSAGES.c.chain == p("chain"))
        .cte("walk", recursive=True)
    )
    step = (
        select(*columns, walk.c.step + 1)
        .select_from(walk)
        .join(MESSAGES, MESSAGES.c.chain == walk.c.parent)
        .where(*here, walk.c.role != "user", walk.c.step < _MOST_STEPS)
    )
    walk = walk.union_all(step)
    return select(walk.c.digest).where(walk.c.role == "user").limit(literal_column("1"))


_NEWEST_OF_ALL = Statement(_newest)
_QUESTION = Statement(_question)
# Sorted where they are read: for an ORDER BY, SQLite reads the session from its newest message on.
_ANSWER = Statement(
    lambda _: select(MESSAGES.c.arrival, MESSAGES.c.chain, MESSAGES.c.answers, MESSAGES.c.digest).where(
        MESSAGES.c.namespace == p("namespace"),
        MESSAGES.c.session == p("session"),
        MESSAGES.c.parent == p("chain"),
        MESSAGES.c.relayed.is_(true()),
        MESSAGES.c.state.in_(ON_PATH),
    )
)
