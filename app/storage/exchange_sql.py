"""The statements that record an exchange.

Must not know in which order they run. Message rows are inserted out of the session's own row, so
that each draws its arrival from the session's counter, and nothing is written for a session that
is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Table,
    Update,
    and_,
    exists,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import Insert
from sqlalchemy.sql.expression import FromClause, case, false, literal_column, true

from app.storage.database import InsertInto, Statement, named, p
from app.storage.tables import BODIES, EXCHANGES, MESSAGES, PREAMBLES, REBASES, SESSIONS, VARIANTS

LIVE: ColumnElement[str] = literal_column("'live'")
INCOMPLETE: ColumnElement[str] = literal_column("'incomplete'")
REJECTED: ColumnElement[str] = literal_column("'rejected'")
REFUSED: ColumnElement[str] = literal_column("'refused'")
ON_PATH = (LIVE, INCOMPLETE)
OFF_PATH = (REJECTED, REFUSED)
_ON_PATH_AGAIN = case((MESSAGES.c.state.in_(OFF_PATH), LIVE), else_=MESSAGES.c.state)


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a message would stand: columns of a row, or parameters."""

    namespace: ColumnElement[str]
    session: ColumnElement[str]
    chain: ColumnElement[bytes]


def spot_of(row: FromClause) -> Spot:
    """Where this row stands."""
    return Spot(row.c.namespace, row.c.session, row.c.chain)


def _has_live_child(spot: Spot, name: str) -> ColumnElement[bool]:
    """A message on the path follows directly."""
    child = MESSAGES.alias(name)
    return exists(
        select(1).where(
            child.c.session == spot.session,
            child.c.parent == spot.chain,
            child.c.namespace == spot.namespace,
            child.c.state.in_(ON_PATH),
        )
    )


def is_extended(spot: Spot) -> ColumnElement[bool]:
    """A later message follows, directly or after a rebase that stands on this spot."""

    def stands_on(column: str) -> ColumnElement[bool]:
        # Nested, not joined: SQLite would begin the join with every message of the session.
        rebase = REBASES.alias(f"by_{column}")
        return exists(
            select(1).where(
                rebase.c.session == spot.session,
                rebase.c[column] == spot.chain,
                rebase.c.namespace == spot.namespace,
                _has_live_child(spot_of(rebase), f"after_{column}"),
            )
        )

    return or_(_has_live_child(spot, "child"), stands_on("anchor"), stands_on("base"))


def at(table: Table, chain: ColumnElement[bytes]) -> tuple[ColumnElement[bool], ...]:
    """The row of `table` at `chain` in the session."""
    return (table.c.namespace == p("namespace"), table.c.session == p("session"), table.c.chain == chain)


def arriving(insert: InsertInto, table: Table, own: Iterable[str], *where: ColumnElement[bool]) -> Insert:
    """An INSERT of one row into a session: its arrival is the session's counter less `back`.

    `own` are the columns given as parameters. Nothing is written where there is no such session.
    """
    return _arriving(insert, table, named(table, *own), *where)


def _arriving(
    insert: InsertInto, table: Table, given: Mapping[str, ColumnElement[Any]], *where: ColumnElement[bool]
) -> Insert:
    values = {**given, "arrival": SESSIONS.c.arrivals - p("back", BigInteger)}
    here = (SESSIONS.c.namespace == p("namespace"), SESSIONS.c.id == p("session"))
    return insert(table).from_select(list(values), select(*values.values()).where(*here, *where))


def _without(table: Table, *left_out: str) -> list[str]:
    return [column.name for column in table.columns if column.name not in left_out]


def _put_session(insert: InsertInto) -> Insert:
    new = insert(SESSIONS).values(named(SESSIONS))
    return new.on_conflict_do_update(
        index_elements=[SESSIONS.c.namespace, SESSIONS.c.id],
        set_={
            "arrivals": SESSIONS.c.arrivals + new.excluded.arrivals,
            "full_history": or_(SESSIONS.c.full_history, new.excluded.full_history),
            "model": new.excluded.model,
            "updated_at": new.excluded.updated_at,
        },
    )


def _put_message(insert: InsertInto) -> Insert:
    """A message seen again is on the path again; the head of the request is a branch's head."""
    new = arriving(insert, MESSAGES, _without(MESSAGES, "arrival"))
    head = new.excluded.is_head
    return new.on_conflict_do_update(
        index_elements=list(MESSAGES.primary_key.columns),
        set_={
            "state": _ON_PATH_AGAIN,
            "is_head": or_(MESSAGES.c.is_head, head),
            "preamble": case((head, new.excluded.preamble), else_=MESSAGES.c.preamble),
        },
        where=or_(MESSAGES.c.state.in_(OFF_PATH), head),
    )


def _put_answer(insert: InsertInto) -> Insert:
    """An answer seen again stays; an incomplete one is completed, one the client told us is now ours.

    A repeated close must not make a head of an answer that was followed in the meantime.
    """
    preamble = (
        select(EXCHANGES.c.preamble)
        .where(EXCHANGES.c.namespace == p("namespace"), EXCHANGES.c.id == p("exchange"))
        .scalar_subquery()
    )
    spot = Spot(p(MESSAGES.c.namespace), p(MESSAGES.c.session), p(MESSAGES.c.chain))
    head = and_(p(MESSAGES.c.is_head), ~is_extended(spot))
    own = named(MESSAGES, *_without(MESSAGES, "arrival", "preamble", "is_head"))
    new = _arriving(insert, MESSAGES, {**own, "preamble": preamble, "is_head": head})
    cut = MESSAGES.c.state == INCOMPLETE
    better = and_(
        or_(new.excluded.state == LIVE, MESSAGES.c.state.in_(OFF_PATH)),
        or_(MESSAGES.c.state != LIVE, MESSAGES.c.relayed.is_(false())),
    )
    return new.on_conflict_do_update(
        index_elements=list(MESSAGES.primary_key.columns),
        set_={
            "is_head": or_(MESSAGES.c.is_head, new.excluded.is_head),
            "relayed": true(),
            "state": case((better, new.excluded.state), else_=MESSAGES.c.state),
            "answers": case((better, new.excluded.answers), else_=MESSAGES.c.answers),
            "finish_reason": case((better, new.excluded.finish_reason), else_=MESSAGES.c.finish_reason),
            "digest": case((and_(better, cut), new.excluded.digest), else_=MESSAGES.c.digest),
        },
        where=or_(better, new.excluded.is_head),
    )


def _put_rebase(insert: InsertInto) -> Insert:
    new = arriving(insert, REBASES, _without(REBASES, "arrival"))
    return new.on_conflict_do_update(
        index_elements=list(REBASES.primary_key.columns), set_={"preamble": new.excluded.preamble}
    )


def _put_new(table: Table) -> Callable[[InsertInto], Insert]:
    """An INSERT of a whole row that leaves an existing one alone."""
    return lambda insert: insert(table).values(named(table)).on_conflict_do_nothing()


_OPENED = (
    "namespace",
    "id",
    "session",
    "head",
    "base",
    "rebase",
    "preamble",
    "state",
    "model",
    "found_by",
    "mode",
)

PUT_SESSION = Statement(_put_session)
PUT_BODY = Statement(_put_new(BODIES))
PUT_MESSAGE = Statement(_put_message)
PUT_ANSWER = Statement(_put_answer)
PUT_REBASE = Statement(_put_rebase)
PUT_VARIANT = Statement(_put_new(VARIANTS))
PUT_PREAMBLE = Statement(_put_new(PREAMBLES))
PUT_EXCHANGE = Statement(
    lambda insert: arriving(
        insert, EXCHANGES, (*_OPENED, "idempotency_key", "started_at")
    ).on_conflict_do_nothing()
)
TOUCH_SESSION = Statement(
    lambda _: (
        update(SESSIONS)
        .where(SESSIONS.c.namespace == p("namespace"), SESSIONS.c.id == p("id"))
        .values(arrivals=SESSIONS.c.arrivals + p(SESSIONS.c.arrivals), updated_at=p(SESSIONS.c.updated_at))
    )
)
CLOSE_EXCHANGE = Statement(
    lambda _: (
        update(EXCHANGES)
        .where(EXCHANGES.c.namespace == p("namespace"), EXCHANGES.c.id == p("exchange"))
        .values(
            named(
                EXCHANGES,
                *(
                    "state",
                    "finish_reason",
                    "status",
                    "view",
                    "tokens_full",
                    "tokens_forwarded",
                    "compaction",
                ),
                *("prompt_tokens", "completion_tokens", "cached_tokens", "finished_at"),
            )
        )
    )
)


def _before_head() -> ColumnElement[bool]:
    """The message the new ones follow, the one before it, and the anchor of a rebase: no leaves now."""
    base = MESSAGES.alias("base_message")
    parent = select(base.c.parent).where(
        base.c.namespace == p("namespace"), base.c.session == p("session"), base.c.chain == p("base")
    )
    chain = MESSAGES.c.chain
    return or_(chain == p("base"), chain == p("anchor"), chain == parent.scalar_subquery())


def _flag(table: Table, flag: ColumnElement[bool], *where: ColumnElement[bool]) -> Update:
    return update(table).where(*where).values(is_head=flag)


SESSION_MESSAGES = (MESSAGES.c.namespace == p("namespace"), MESSAGES.c.session == p("session"))

LEAVE_BASE = Statement(
    lambda _: (
        update(MESSAGES)
        .where(*SESSION_MESSAGES, _before_head(), or_(MESSAGES.c.is_head, MESSAGES.c.chain == p("base")))
        .values(
            is_head=false(),
            preamble=case((MESSAGES.c.chain == p("base"), p(MESSAGES.c.preamble)), else_=MESSAGES.c.preamble),
        )
    )
)
LEAVE_REBASE = Statement(
    lambda _: (
        update(REBASES).where(*at(REBASES, p("base"))).values(is_head=false(), preamble=p(REBASES.c.preamble))
    )
)
SET_HEAD = Statement(
    lambda _: (
        update(MESSAGES)
        .where(*at(MESSAGES, p("head")))
        .values(is_head=true(), preamble=p(MESSAGES.c.preamble))
    )
)
SET_REBASE_HEAD = Statement(lambda _: _flag(REBASES, true(), *at(REBASES, p("head"))))
# An answered message is on the path, whatever another exchange that brought it made of it meanwhile.
LEAVE_HEAD = Statement(
    lambda _: (
        update(MESSAGES)
        .where(*SESSION_MESSAGES, or_(MESSAGES.c.chain == p("head"), MESSAGES.c.chain == p("base")))
        .values(is_head=false(), state=_ON_PATH_AGAIN)
    )
)
KEEP_HEAD = Statement(lambda _: update(MESSAGES).where(*at(MESSAGES, p("head"))).values(state=_ON_PATH_AGAIN))
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
