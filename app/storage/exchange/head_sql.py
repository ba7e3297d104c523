"""The statements that say which message is a branch's newest, and which are on the path (rules 6, 7, 11).

Must not know in which order they run. Only rows that change are written: a message row stands in
three indexes.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, LargeBinary, Table, Update, and_, exists, or_, select, update
from sqlalchemy.sql.expression import false, true

from app.storage.database import Statement, p
from app.storage.exchange.row_sql import LIVE, OFF_PATH, ON_PATH, ON_PATH_AGAIN, at, is_extended, spot_of
from app.storage.tables.conversations import EXCHANGES, MESSAGES, REBASES


def _before_base() -> ColumnElement[bool]:
    """The message before the base and the anchor of a rebase: no leaves now."""
    base = MESSAGES.alias("base_message")
    parent = select(base.c.parent).where(
        base.c.namespace == p("namespace"), base.c.session == p("session"), base.c.chain == p("base")
    )
    return MESSAGES.c.chain.in_([p("anchor", LargeBinary), parent.scalar_subquery()])


def _flag(table: Table, flag: ColumnElement[bool], *where: ColumnElement[bool]) -> Update:
    """Rows that have the flag already are not written again."""
    return update(table).where(*where, table.c.is_head.is_not(flag)).values(is_head=flag)


def _leave_base(table: Table) -> Update:
    """No leaf any more; its preamble is that of the newest exchange that began there."""
    preamble = p(table.c.preamble)
    return (
        update(table)
        .where(*at(table, p("base")), or_(table.c.is_head.is_(true()), table.c.preamble != preamble))
        .values(is_head=false(), preamble=preamble)
    )


def _revive(*where: ColumnElement[bool]) -> Update:
    """On the path again. Only rows that are off it: `state` stands in an index."""
    return update(MESSAGES).where(*where, MESSAGES.c.state.in_(OFF_PATH)).values(state=LIVE)


SESSION_MESSAGES = (MESSAGES.c.namespace == p("namespace"), MESSAGES.c.session == p("session"))

LEAVE_BASE = Statement(lambda _: _leave_base(MESSAGES))
LEAVE_REBASE = Statement(lambda _: _leave_base(REBASES))
LEAVE_BEFORE = Statement(lambda _: _flag(MESSAGES, false(), *SESSION_MESSAGES, _before_base()))
SET_HEAD = Statement(
    lambda _: (
        update(MESSAGES)
        .where(*at(MESSAGES, p("head")))
        .values(is_head=true(), preamble=p(MESSAGES.c.preamble))
    )
)
SET_REBASE_HEAD = Statement(lambda _: _flag(REBASES, true(), *at(REBASES, p("head"))))
LEAVE_HEAD = Statement(lambda _: _flag(MESSAGES, false(), *at(MESSAGES, p("head"))))
REVIVE_HEAD = Statement(lambda _: _revive(*at(MESSAGES, p("head"))))
REVIVE_BASE = Statement(
    lambda _: update(MESSAGES).where(*at(MESSAGES, p("base"))).values(is_head=false(), state=ON_PATH_AGAIN)
)
CLEAR_REBASE_HEAD = Statement(lambda _: _flag(REBASES, false(), *at(REBASES, p("head"))))
WITHDRAW = Statement(
    lambda _: (
        update(MESSAGES)
        .where(*at(MESSAGES, p("chain")), ~is_extended(spot_of(MESSAGES)))
        .values(state=p("state"), is_head=false())
    )
)


def _left_behind() -> ColumnElement[bool]:
    """The closing exchange's base, and its rebase's anchor."""
    anchor = (
        select(REBASES.c.anchor)
        .join(
            EXCHANGES, and_(EXCHANGES.c.rebase == REBASES.c.chain, EXCHANGES.c.session == REBASES.c.session)
        )
        .where(
            EXCHANGES.c.namespace == p("namespace"),
            EXCHANGES.c.id == p("exchange"),
            REBASES.c.namespace == p("namespace"),
        )
    )
    return or_(MESSAGES.c.chain == p("base"), MESSAGES.c.chain == anchor.scalar_subquery())


def _has_child_head() -> ColumnElement[bool]:
    child = MESSAGES.alias("child")
    return exists(
        select(1).where(
            child.c.namespace == MESSAGES.c.namespace,
            child.c.session == MESSAGES.c.session,
            child.c.parent == MESSAGES.c.chain,
            child.c.is_head.is_(true()),
        )
    )


RESTORE_HEADS = Statement(
    lambda _: _flag(
        MESSAGES,
        true(),
        *SESSION_MESSAGES,
        _left_behind(),
        MESSAGES.c.state.in_(ON_PATH),
        ~is_extended(spot_of(MESSAGES)),
    )
)
RESTORE_REBASE_HEAD = Statement(
    lambda _: _flag(REBASES, true(), *at(REBASES, p("base")), ~is_extended(spot_of(REBASES)))
)
# A regenerate that failed leaves the earlier answer as the branch's head.
CLEAR_ANSWERED_HEAD = Statement(
    lambda _: _flag(MESSAGES, false(), *at(MESSAGES, p("head")), _has_child_head())
)
