"""Drawing from a session's counter, so that what follows in the unit has its place.

Must not know what arrives. The draw locks the session's row: writers of one session take turns.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, ColumnElement, Update, update

from app.storage.database import Params, Statement, Step, p
from app.storage.tables.conversations import SESSIONS


def drawing(key: Params, count: int) -> Step:
    """`count` arrivals are drawn in the session of `key`; no row is touched when there is none."""
    return Step(DRAW, [{**key, "count": count}])


def drawing_in_epoch(key: Params, count: int) -> Step:
    """As `drawing`, only while the session has the epoch of `key`."""
    return Step(DRAW_IN_EPOCH, [{**key, "count": count}])


def _draw(*where: ColumnElement[bool]) -> Update:
    return (
        update(SESSIONS)
        .where(SESSIONS.c.namespace == p("namespace"), SESSIONS.c.id == p("session"), *where)
        .values(arrivals=SESSIONS.c.arrivals + p("count", BigInteger))
    )


def in_epoch() -> ColumnElement[bool]:
    """The session has the epoch that is asked for."""
    return SESSIONS.c.epoch == p("epoch")


DRAW = Statement(lambda _: _draw())
DRAW_IN_EPOCH = Statement(lambda _: _draw(in_epoch()))
