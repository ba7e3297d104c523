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
    CompoundSelect,
    Table,
    Text,
    and_,
    exists,
    or_,
    select,
    union_all,
    update,
)
from sqlalchemy.dialects.postgresql import Insert
from sqlalchemy.sql.expression import FromClause, case, false, literal_column, null, true

from app.storage.database import InsertInto, Statement, named, p
from app.storage.tables.conversations import (
    BODIES,
    EXCHANGES,
    MESSAGES,
    PREAMBLES,
    REBASES,
    SESSIONS,
    VARIANTS,
)

LIVE: ColumnElement[str] = literal_column("'live'")
INCOMPLETE: ColumnElement[str] = literal_column("'incomplete'")
REJECTED: ColumnElement[str] = literal_column("'rejected'")
REFUSED: ColumnElement[str] = literal_column("'refused'")
ON_PATH = (LIVE, INCOMPLETE)
OFF_PATH = (REJECTED, REFUSED)
ON_PATH_AGAIN = case((MESSAGES.c.state.in_(OFF_PATH), LIVE), else_=MESSAGES.c.state)

_OWN_SESSION = SESSIONS.alias("own_session")


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


def _size_of() -> CompoundSelect[Any]:
    """Depth and relayed answers of the path that ends at a message or a rebase."""
    return union_all(*(select(t.c.depth, t.c.answers).where(*at(t, p("chain"))) for t in (MESSAGES, REBASES)))


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
            "appends": or_(SESSIONS.c.appends, new.excluded.appends),
            "is_side": and_(SESSIONS.c.is_side, new.excluded.is_side),
            # A title is often asked of another model.
            "model": case((new.excluded.is_side.is_(true()), SESSIONS.c.model), else_=new.excluded.model),
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
            "state": ON_PATH_AGAIN,
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
    own = named(MESSAGES, *_without(MESSAGES, "arrival", "preamble"))
    new = _arriving(insert, MESSAGES, {**own, "preamble": preamble})
    cut = MESSAGES.c.state == INCOMPLETE
    better = and_(
        or_(new.excluded.state == LIVE, MESSAGES.c.state.in_(OFF_PATH)),
        or_(MESSAGES.c.state != LIVE, MESSAGES.c.relayed.is_(false())),
    )
    return new.on_conflict_do_update(
        index_elements=list(MESSAGES.primary_key.columns),
        set_={
            # Asked here alone: what is only now stored has nothing after it.
            "is_head": or_(MESSAGES.c.is_head, and_(new.excluded.is_head, ~is_extended(spot))),
            "relayed": true(),
            "state": case((better, new.excluded.state), else_=MESSAGES.c.state),
            "answers": case((better, new.excluded.answers), else_=MESSAGES.c.answers),
            "finish_reason": case((better, new.excluded.finish_reason), else_=MESSAGES.c.finish_reason),
            "digest": case((and_(better, cut), new.excluded.digest), else_=MESSAGES.c.digest),
        },
        where=or_(better, new.excluded.is_head),
    )


def _put_other_spelling(insert: InsertInto) -> Insert:
    """An answer that stands there already, said in other bytes: both spellings stay (rule 12).

    Which of the two is no longer the message's own: that of a cut answer that is whole now, or the new one.
    """
    replaced = and_(MESSAGES.c.state == INCOMPLETE, p(MESSAGES.c.state) == LIVE)
    spelling: dict[str, ColumnElement[Any]] = {
        "chain": MESSAGES.c.chain,
        "session": MESSAGES.c.session,
        "digest": case((replaced, MESSAGES.c.digest), else_=p(MESSAGES.c.digest)),
        "namespace": MESSAGES.c.namespace,
        "created_at": p(VARIANTS.c.created_at),
    }
    other = (
        MESSAGES.c.namespace == p("namespace"),
        MESSAGES.c.session == p("session"),
        MESSAGES.c.chain == p(MESSAGES.c.chain),
        MESSAGES.c.digest != p(MESSAGES.c.digest),
    )
    new = insert(VARIANTS).from_select(list(spelling), select(*spelling.values()).where(*other))
    return new.on_conflict_do_nothing()


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

# Only for a session that begins: repeated later, it must not take the name from the next one.
RELEASE_NAME = Statement(
    lambda _: (
        update(SESSIONS)
        .where(
            SESSIONS.c.external_id == p("external_id"),
            SESSIONS.c.namespace == p("namespace"),
            ~exists(
                select(1).where(
                    _OWN_SESSION.c.namespace == p("namespace"), _OWN_SESSION.c.id == p("id", Text)
                )
            ),
        )
        .values(external_id=null())
    )
)
# The common case of the upsert below, at half of its price.
REOPEN_SESSION = Statement(
    lambda _: (
        update(SESSIONS)
        .where(SESSIONS.c.namespace == p("namespace"), SESSIONS.c.id == p("id"))
        .values(
            arrivals=SESSIONS.c.arrivals + p(SESSIONS.c.arrivals),
            full_history=or_(SESSIONS.c.full_history, p(SESSIONS.c.full_history)),
            appends=or_(SESSIONS.c.appends, p(SESSIONS.c.appends)),
            is_side=and_(SESSIONS.c.is_side, p(SESSIONS.c.is_side)),
            model=case((p(SESSIONS.c.is_side).is_(true()), SESSIONS.c.model), else_=p(SESSIONS.c.model)),
            updated_at=p(SESSIONS.c.updated_at),
        )
    )
)
SIZE_OF = Statement(lambda _: _size_of())
PUT_SESSION = Statement(_put_session)
PUT_BODY = Statement(_put_new(BODIES))
PUT_MESSAGE = Statement(_put_message)
PUT_OTHER_SPELLING = Statement(_put_other_spelling)
PUT_ANSWER = Statement(_put_answer)
PUT_REBASE = Statement(_put_rebase)
PUT_VARIANT = Statement(_put_new(VARIANTS))
PUT_PREAMBLE = Statement(_put_new(PREAMBLES))
PUT_EXCHANGE = Statement(
    lambda insert: arriving(
        insert, EXCHANGES, (*_OPENED, "idempotency_key", "started_at", "server", "mark")
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
                *("response_id", "answer"),
            )
            | {"partial": null()}
        )
    )
)
