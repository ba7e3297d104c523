"""What one exchange stores, as values, and the units that write it: a request, its end, an import.

Units are built from values, without reads. The first step locks the session's row and takes arrivals from its
counter, so that two writers of one session cannot interleave. Bodies are written in the order of their
digests: otherwise two sessions that share texts could deadlock. Hidden rounds (messages a model saw and the
client did not) and items belong to no path or transcript.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from operator import itemgetter
from typing import Any, Literal, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import Insert, insert

from palimpsest.core.history.branches import Mark
from palimpsest.core.history.stored_points import MessageState, Rebase
from palimpsest.core.recall.rounds.hidden import HiddenRounds
from palimpsest.core.wire.chat_answers import Usage
from palimpsest.core.wire.json_text import array_of
from palimpsest.storage.accounts import Charge
from palimpsest.storage.database import Params, Statement, Step, Unit, p
from palimpsest.storage.history_sql import INCOMPLETE, LIVE, OFF_PATH, ON_PATH, is_extended
from palimpsest.storage.journal import (
    ADD_DATED_COMPACTION,
    ADD_NUMBERED_EVENT,
    DatedCompaction,
    EventRow,
    compaction_row,
)
from palimpsest.storage.sql import (
    SESSION_ROW,
    Where,
    arrivals_step,
    fields_of,
    new_row,
    of_namespace,
    of_session,
    packed,
    plain,
    replacing,
    row_in_session,
    same_session,
    there_is,
    unfinished,
)
from palimpsest.storage.tables import (
    BODIES,
    EXCHANGES,
    HIDDEN_ROUNDS,
    ITEMS,
    MESSAGES,
    PREAMBLES,
    REBASES,
    SESSIONS,
    VARIANTS,
)

ExchangeState = Literal["open", "done", "incomplete", "failed", "rejected", "refused"]

# Messages or other bodies, each with its sha256.
Bodies: TypeAlias = Sequence[tuple[bytes, bytes]]

_WITHDRAWN = frozenset({"rejected", "refused"})
# The rows of more messages are built on another thread (3 us each); more messages or bytes are committed on
# the writer's thread.
INLINE_MESSAGES = 256
INLINE_BYTES = 256 * 1024
# Rows of a unit of an import, some 10 ms, where this many bytes more count as a further row.
_SLICE_ROWS = 256
_ROW_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message to be stored: `body` is its exact bytes, `digest` their sha256."""

    chain: bytes
    parent: bytes
    canonical: bytes
    role: str
    tokens: int
    depth: int
    answers: int
    body: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class Variant:
    """Another spelling, byte for byte, of the message stored at `chain`."""

    chain: bytes
    body: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class OpenExchange:
    """Everything about a request that is committed before a byte of it goes upstream (P2).

    The session is created when it does not exist (`external_id` is the client's name for it, or None).
    `messages` that exist already stay as they are, except that a rejected or refused one becomes live again.
    `head` is the chain of the request's last message; it becomes a branch head and `base` stops being one.
    `preamble` are the instructions in order, each as its body and the body's sha256; `preamble_digest` is
    their joint sha256. `mode`: how the request was read, or `history.BEGINS_UNSEEN`. `full_history`: it
    contained answers or instructions. `appends`: it contained only messages new to the named session. `mark`:
    it is beside a conversation (rule 33). `takes_name`: a new session takes the name from the one that had it
    (rule 9). `continues`: the session exists; if it was erased since, nothing is stored and nothing raised.
    `said`: messages of the conversation that the request contained. `carried` is what it carried beside them
    (`core.wire.request`), `carried_digest` the joint sha256. `client` is the program that sent it.
    """

    namespace: str
    session: str
    external_id: str | None
    exchange: str
    base: bytes
    head: bytes
    messages: Sequence[StoredMessage]
    variants: Sequence[Variant]
    rebase: Rebase | None
    preamble: Bodies
    preamble_digest: bytes
    model: str
    found_by: str
    mode: str
    full_history: bool
    idempotency_key: str | None
    started_at: float
    takes_name: bool = False
    continues: bool = False
    appends: bool = False
    mark: Mark = ""
    said: int | None = None
    carried: Bodies = ()
    carried_digest: bytes | None = None
    client: str | None = None


@dataclass(frozen=True, slots=True)
class CloseExchange:
    """How an exchange ended, with its answers: committed before the client sees the end (P3).

    `answers` follow `head`; a single one becomes the branch head (rule 6), unless `is_overtaken`: the
    conversation has continued from `head` meanwhile. `answer_state` is "incomplete" for a cut stream. With
    `state` "rejected" or "refused" the messages `withdrawn` (chains of those the request brought) leave the
    path but stay stored, and `base` is a branch head again (rule 11). `view` and its tokens are None when
    unknown. `response_id` is the upstream's id of the answer; of equal ids the newest counts. `hidden` are
    the hidden rounds of a single answer; results are stored separately (rule 31). `by_upstream`: the upstream
    answered, which proves the namespace (rule 26). `items` are the ids of items in the answers. `sent` is
    what was sent beside the messages, empty if that is what the client's request carried; `body_digest` is
    the sha256 of the body that was sent first, before hidden rounds. `first_at`: when
    the answer's first byte came. `prepared_seconds`: from the request's arrival to when the upstream was
    asked; `waited_seconds`: how long the turn waited for a compaction, None without one.
    `code` and `cause` (client, proxy, upstream) of a failure, None if unknown; `error`: the upstream's words.
    `cost`: what the upstream asks for it by the prices of now, `saved`: what it would ask more without
    compaction; None if unknown.
    `charge`: what the answer adds to the use of an account with a limit.
    """

    namespace: str
    session: str
    exchange: str
    head: bytes
    base: bytes
    state: ExchangeState
    answers: Sequence[StoredMessage]
    answer_state: MessageState
    withdrawn: Sequence[bytes]
    usage: Usage
    finish_reason: str | None
    status: int | None
    view: Literal["original", "compacted"] | None
    tokens_full: int | None
    tokens_forwarded: int | None
    compaction: str | None
    finished_at: float
    response_id: str | None = None
    hidden: HiddenRounds | None = None
    by_upstream: bool = True
    items: Sequence[str] = ()
    is_overtaken: bool = False
    sent: Bodies = ()
    sent_digest: bytes | None = None
    body_digest: bytes | None = None
    first_at: float | None = None
    prepared_seconds: float | None = None
    waited_seconds: float | None = None
    code: str | None = None
    cause: str | None = None
    cost: float | None = None
    saved: float | None = None
    error: str | None = None
    charge: Charge | None = None


def opening(exchange: OpenExchange, size: tuple[int, int], server: str | None) -> Unit:
    """The steps that record a request that `server` works on; `size` is its rebase's.

    Without `preamble` and `carried` if they are stored. Repeating them changes only the counter.
    """
    # One arrival for the rebase, one for each message, one for the exchange; the last is the newest.
    arrivals = len(exchange.messages) + 2
    given = _given(exchange, arrivals) | {"server": server}
    rebase = exchange.rebase
    rebased = {"members": packed(rebase.members), "depth": size[0], "answers": size[1]} if rebase else {}
    bodies = _body_rows(
        exchange, (*exchange.messages, *exchange.variants), (*exchange.preamble, *exchange.carried)
    )
    is_there, is_likely = exchange.continues, bool(exchange.base or rebase)
    steps = [
        Step(RELEASE_NAME, [given] if exchange.takes_name else []),
        # Without a base the session rarely exists.
        Step(REOPEN_SESSION, [given] if is_there or is_likely else [], needed=is_there),
        Step(PUT_SESSION, [] if is_there else [given], "untouched" if is_likely else "any"),
        Step(PUT_BODY, bodies),
        Step(
            PUT_REBASE,
            [{**given, **fields_of(rebase), **rebased, "back": arrivals - 1, "is_head": False}]
            if rebase
            else [],
        ),
        Step(PUT_MESSAGE, _asked_rows(exchange, exchange.messages, arrivals - 2)),
        Step(PUT_VARIANT, [{**given, **fields_of(variant)} for variant in exchange.variants]),
        Step(PUT_PREAMBLE, _set_rows(exchange, exchange.preamble_digest, exchange.preamble)),
        Step(PUT_PREAMBLE, _set_rows(exchange, exchange.carried_digest, exchange.carried)),
        Step(PUT_EXCHANGE, [given]),
    ]
    if exchange.base:
        steps += [Step(LEAVE_BASE, [given]), Step(LEAVE_REBASE, [given], "untouched")]
    if is_likely:
        steps.append(Step(LEAVE_BEFORE, [given]))
    if not any(message.chain == exchange.head for message in exchange.messages):
        steps += [Step(SET_HEAD, [given]), Step(SET_REBASE_HEAD, [given], "untouched")]
    return [each for each in steps if each.rows]


def closing(exchange: CloseExchange) -> Unit:
    """The steps that record how an exchange ended. Repeating them changes only the counter.

    An exchange that no longer exists was erased: nothing else is written then.
    """
    answers, hidden = exchange.answers, exchange.hidden
    first = answers[0].chain if answers else None
    # A single answer becomes the head; of several, none does until the client sends one (rule 6).
    is_head = len(answers) == 1 and not exchange.is_overtaken and exchange.answer_state not in _WITHDRAWN
    given = fields_of(exchange) | fields_of(exchange.usage)
    given["answer"] = given["chain"] = first
    given["arrivals"] = len(answers)
    given["created_at"] = given["updated_at"] = exchange.finished_at
    given["sent"] = exchange.sent_digest
    rows = _message_rows(
        exchange,
        answers,
        len(answers) - 1,
        first if is_head else None,
        exchange=exchange.exchange,
        relayed=True,
        state=exchange.answer_state,
        finish_reason=given["finish_reason"],
        created_at=exchange.finished_at,
    )
    rounds = []
    if hidden and len(answers) == 1:
        rounds = [{**given, **fields_of(hidden), "messages": array_of(hidden.before), "results": None}]
    steps = [
        Step(TOUCH_SESSION, [given], needed=True),
        Step(CLOSE_EXCHANGE, [given], needed=True),
        Step(PUT_BODY, _body_rows(exchange, answers, exchange.sent)),
        Step(PUT_PREAMBLE, _set_rows(exchange, exchange.sent_digest, exchange.sent)),
        Step(PUT_OTHER_SPELLING, rows),
        Step(PUT_ANSWER, rows),
        Step(PUT_ROUNDS, rounds),
        Step(PUT_ITEM, [row | {"id": plain(item)} for row in rows for item in exchange.items]),
    ]
    # The branch heads (rules 6 and 11).
    if exchange.state in _WITHDRAWN:
        # Newest first: a message that another request continued meanwhile stays.
        withdrawn = [{**given, "chain": chain} for chain in reversed(exchange.withdrawn)]
        steps += [Step(WITHDRAW, withdrawn), Step(CLEAR_REBASE_HEAD, [given])]
        steps += [Step(RESTORE_HEADS, [given]), Step(RESTORE_REBASE_HEAD, [given])]
    if is_head:
        # An answered message is on the path, even if another exchange that brought it was withdrawn
        # meanwhile.
        steps += [Step(LEAVE_HEAD, [given]), Step(CLEAR_REBASE_HEAD, [given], "untouched")]
        steps += [Step(REVIVE_HEAD, [given]), Step(REVIVE_BASE, [given], "touched")]
    else:
        steps.append(Step(REVIVE_HEAD if answers else CLEAR_ANSWERED_HEAD, [given]))
    return [each for each in steps if each.rows]


def beginning(exchange: OpenExchange, server: str | None) -> Iterator[Unit]:
    """The units of a request that brings a long history of a new session, in slices as an import."""
    steps = opening(replace(exchange, messages=()), (0, 0), server)
    free = [step for step in steps if step.statement is RELEASE_NAME]
    rest = [step for step in steps if step.statement is not RELEASE_NAME]
    return importing(exchange, [exchange.started_at] * len(exchange.messages), (), (), free, rest)


def importing(
    opened: OpenExchange,
    times: Sequence[float],
    events: Sequence[EventRow],
    made: Sequence[DatedCompaction],
    before: Sequence[Step] = (),
    after: Sequence[Step] = (),
) -> Iterator[Unit]:
    """The units of an import, each of some rows: other callers' units are written between them.

    The session's row is put in its place by the last one; until then no reader finds the session. Each unit
    ends with its first step, which touches no row, when the session is there already or was erased meanwhile.
    `before` and `after` are written with the last one.
    """
    hidden = {"namespace": unfinished(opened.namespace), "session": opened.session, "into": opened.namespace}
    begun = _given(opened, len(opened.messages) + len(made) + len(events)) | hidden | {"external_id": None}
    first, size = Step(BEGIN_IMPORT, [begun], needed=True), 0
    rows: defaultdict[Statement, list[Params]] = defaultdict(list)
    for statement, row in _imported(opened, times, events, made):
        rows[statement].append(row)
        size += 1 + sum([len(value) for value in row.values() if isinstance(value, bytes)]) // _ROW_BYTES
        # Bodies are written with the messages that name them: an erase finds them by these.
        if size >= _SLICE_ROWS and statement not in (PUT_BODY, PUT_PREAMBLE):
            yield [first, *_steps(rows)]
            first, size = replace(arrivals_step(hidden, 0), needed=True), 0
            rows.clear()
    end = Step(END_IMPORT, [hidden | {"external_id": opened.external_id}])
    yield [first, *_steps(rows), *before, end, *after]


def _steps(rows: Mapping[Statement, list[Params]]) -> Iterator[Step]:
    for statement, own in rows.items():
        yield Step(statement, sorted(own, key=itemgetter("digest")) if statement is PUT_BODY else [*own])


def _imported(
    opened: OpenExchange, times: Sequence[float], events: Sequence[EventRow], made: Sequence[DatedCompaction]
) -> Iterator[tuple[Statement, Params]]:
    """The rows of an import with the statements that add them; a body comes before what names it."""
    key = {"namespace": opened.namespace, "session": opened.session}
    arrivals = count(1)
    for body, digest in opened.preamble:
        yield PUT_BODY, {**key, "digest": digest, "body": body}
    for preamble in _set_rows(opened, opened.preamble_digest, opened.preamble):
        yield PUT_PREAMBLE, preamble
    for message, at in zip(opened.messages, times, strict=True):
        yield PUT_BODY, {**key, "digest": message.digest, "body": message.body}
        (row,) = _asked_rows(opened, [message], 0)
        yield ADD_MESSAGE, {**row, "created_at": at, "arrival": next(arrivals)}
    for compaction, at in made:
        yield ADD_DATED_COMPACTION, {**key, **compaction_row(compaction, at), "arrival": next(arrivals)}
    for event in events:
        yield ADD_NUMBERED_EVENT, {**key, **fields_of(event), "seq": next(arrivals)}


def _given(exchange: OpenExchange, arrivals: int) -> dict[str, object]:
    """A request's parameters; `arrivals` is how many numbers it takes from the counter."""
    given, rebase = fields_of(exchange), exchange.rebase
    given |= {
        "epoch": 0,
        "arrivals": arrivals,
        "back": 0,
        "state": "open",
        "mark": exchange.mark or None,
        "is_side": exchange.mark == "side",
        "preamble": exchange.preamble_digest,
        "carried": exchange.carried_digest,
        "rebase": rebase.chain if rebase else b"",
        "anchor": rebase.anchor if rebase else b"",
        "created_at": exchange.started_at,
        "updated_at": exchange.started_at,
    }
    return given


def _body_rows(
    exchange: OpenExchange | CloseExchange, texts: Iterable[StoredMessage | Variant], sets: Bodies
) -> list[Params]:
    """One row per body, in the order of the digests."""
    bodies = {text.digest: text.body for text in texts} | {digest: body for body, digest in sets}
    return [
        {"namespace": exchange.namespace, "digest": digest, "body": bodies[digest]}
        for digest in sorted(bodies)
    ]


def _asked_rows(exchange: OpenExchange, messages: Sequence[StoredMessage], back: int) -> list[dict[str, Any]]:
    """The rows of messages of a request."""
    return _message_rows(
        exchange,
        messages,
        back,
        exchange.head,
        relayed=False,
        state="live",
        preamble=exchange.preamble_digest,
        finish_reason=None,
        created_at=exchange.started_at,
    )


def _message_rows(
    exchange: OpenExchange | CloseExchange,
    messages: Sequence[StoredMessage],
    back: int,
    head: bytes | None,
    /,
    **shared: object,
) -> list[dict[str, Any]]:
    """The messages in order; the first is `back` places before the newest arrival."""
    shared |= {"namespace": exchange.namespace, "session": exchange.session}
    return [
        {**shared, **fields_of(message), "back": back - i, "is_head": message.chain == head}
        for i, message in enumerate(messages)
    ]


def _set_rows(exchange: OpenExchange | CloseExchange, digest: bytes | None, bodies: Bodies) -> list[Params]:
    """The row that lists these bodies in their order; none without bodies."""
    key = {"namespace": exchange.namespace, "session": exchange.session, "digest": digest}
    return [{**key, "bodies": packed(of for _, of in bodies)}] if bodies else []


_ON_PATH_AGAIN = sa.case((MESSAGES.c.state.in_(OFF_PATH), LIVE), else_=MESSAGES.c.state)
THE_EXCHANGE = sa.and_(of_namespace(EXCHANGES), EXCHANGES.c.id == p("exchange"))


def at_chain(table: sa.FromClause, chain: str = "chain") -> Where:
    """The session's row of `table` whose chain is the parameter `chain`."""
    return sa.and_(of_session(table), table.c.chain == p(chain))


def _reopened(given: Any) -> dict[str, Any]:
    """What a request changes in an existing session, by the values given."""
    return {
        "arrivals": SESSIONS.c.arrivals + given["arrivals"],
        "full_history": sa.or_(SESSIONS.c.full_history, given["full_history"]),
        "appends": sa.or_(SESSIONS.c.appends, given["appends"]),
        "is_side": sa.and_(SESSIONS.c.is_side, given["is_side"]),
        # Titles are often requested from another model.
        "model": sa.case((given["is_side"].is_(sa.true()), SESSIONS.c.model), else_=given["model"]),
        "updated_at": given["updated_at"],
    }


def _put_answer() -> Insert:
    """An existing answer stays; an incomplete one is completed, one that the client sent becomes relayed.

    A repeated close must not make an answer a head that was followed in the meantime.
    """
    preamble = sa.select(EXCHANGES.c.preamble).where(THE_EXCHANGE).scalar_subquery()
    new = row_in_session(MESSAGES, preamble=preamble)
    there = {name: p(MESSAGES.c[name]) for name in ("namespace", "session", "chain")}
    cut = MESSAGES.c.state == INCOMPLETE
    better = sa.and_(
        sa.or_(new.excluded.state == LIVE, MESSAGES.c.state.in_(OFF_PATH)),
        sa.or_(MESSAGES.c.state != LIVE, MESSAGES.c.relayed.is_(sa.false())),
    )
    kept = {
        name: sa.case((better, new.excluded[name]), else_=MESSAGES.c[name])
        for name in ("state", "answers", "finish_reason")
    }
    return replacing(
        new,
        where=sa.or_(better, new.excluded.is_head),
        # Only needed on conflict: a new row has nothing after it.
        is_head=sa.or_(MESSAGES.c.is_head, sa.and_(new.excluded.is_head, ~is_extended(there))),
        relayed=sa.true(),
        digest=sa.case((sa.and_(better, cut), new.excluded.digest), else_=MESSAGES.c.digest),
        **kept,
    )


# The common case of the upsert below, at half its cost.
REOPEN_SESSION = (
    sa.update(SESSIONS)
    .where(SESSION_ROW)
    .values(_reopened({column.name: p(column) for column in SESSIONS.c}))
)
_NEW_SESSION = new_row(SESSIONS, id=p("session"))
PUT_SESSION = replacing(_NEW_SESSION, **_reopened(_NEW_SESSION.excluded))
# Only for a session that begins: a repeated call must not take the name from the next one.
_OWN = SESSIONS.alias("own_session")
RELEASE_NAME = (
    sa.update(SESSIONS)
    .where(SESSIONS.c.external_id == p("external_id"), of_namespace(SESSIONS))
    .where(~there_is(_OWN.c.namespace == p("namespace"), _OWN.c.id == p("session")))
    .values(external_id=sa.null())
)
TOUCH_SESSION = (
    sa.update(SESSIONS)
    .where(SESSION_ROW)
    .values(arrivals=SESSIONS.c.arrivals + p(SESSIONS.c.arrivals), updated_at=p(SESSIONS.c.updated_at))
)
# Unless it is there in its place. An import that was cut is taken up again.
_BEGUN = {column.name: p(column) for column in SESSIONS.c} | {"id": p("session", sa.Text)}
_THERE = there_is(_OWN.c.namespace == p("into"), _OWN.c.id == p("session"))
BEGIN_IMPORT = replacing(
    insert(SESSIONS).from_select(list(_BEGUN), sa.select(*_BEGUN.values()).where(~_THERE)), "updated_at"
)
END_IMPORT = (
    sa.update(SESSIONS).where(SESSION_ROW).values(namespace=p("into"), external_id=p(SESSIONS.c.external_id))
)
ADD_MESSAGE = new_row(MESSAGES).on_conflict_do_nothing()
PUT_BODY = new_row(BODIES).on_conflict_do_nothing()
# A message sent again returns to the path; the request's head becomes a branch head.
_NEW_MESSAGE = row_in_session(MESSAGES)
_NEW_HEAD = _NEW_MESSAGE.excluded.is_head
PUT_MESSAGE = replacing(
    _NEW_MESSAGE,
    where=sa.or_(MESSAGES.c.state.in_(OFF_PATH), _NEW_HEAD),
    state=_ON_PATH_AGAIN,
    is_head=sa.or_(MESSAGES.c.is_head, _NEW_HEAD),
    preamble=sa.case((_NEW_HEAD, _NEW_MESSAGE.excluded.preamble), else_=MESSAGES.c.preamble),
)
PUT_ANSWER = _put_answer()
# An existing answer arrives with other bytes: both spellings stay (rule 12). The variant is the old spelling
# if a cut answer is now whole, otherwise the new one.
_REPLACED = sa.and_(MESSAGES.c.state == INCOMPLETE, p(MESSAGES.c.state) == LIVE)
_SPELLING: Mapping[str, sa.ColumnElement[Any]] = {
    **{name: MESSAGES.c[name] for name in ("chain", "session", "namespace")},
    "digest": sa.case((_REPLACED, MESSAGES.c.digest), else_=p(MESSAGES.c.digest)),
    "created_at": p(VARIANTS.c.created_at),
}
_OTHER = sa.select(*_SPELLING.values()).where(
    of_session(MESSAGES), MESSAGES.c.chain == p("chain"), MESSAGES.c.digest != p(MESSAGES.c.digest)
)
PUT_OTHER_SPELLING = insert(VARIANTS).from_select(list(_SPELLING), _OTHER).on_conflict_do_nothing()
PUT_REBASE = replacing(row_in_session(REBASES), "preamble")
PUT_VARIANT = new_row(VARIANTS).on_conflict_do_nothing()
PUT_PREAMBLE = new_row(PREAMBLES).on_conflict_do_nothing()
_CLOSED = (
    *("state", "finish_reason", "status", "view", "tokens_full", "tokens_forwarded", "compaction"),
    *("prompt_tokens", "completion_tokens", "cached_tokens", "finished_at", "response_id", "answer"),
    *("sent", "body_digest", "first_at", "written_tokens", "code", "cause", "error"),
    *("prepared_seconds", "waited_seconds", "cost", "saved"),
)
PUT_EXCHANGE = row_in_session(
    EXCHANGES,
    names=[c.name for c in EXCHANGES.c if c.name == "state" or c.name not in (*_CLOSED, "partial")],
    id=p("exchange", sa.Text),
).on_conflict_do_nothing()
CLOSE_EXCHANGE = (
    sa.update(EXCHANGES)
    .where(THE_EXCHANGE)
    .values({name: p(EXCHANGES.c[name]) for name in _CLOSED} | {"partial": sa.null()})
)


# Branch heads, and which messages are on the path (rules 6, 7, 11).


def _flag(table: sa.Table, flag: Where, *where: Where) -> sa.Update:
    """Set `is_head` only where it changes: other rows are not written again."""
    return sa.update(table).where(*where, table.c.is_head.is_not(flag)).values(is_head=flag)


def _leave_base(table: sa.Table) -> sa.Update:
    """The base is no head any more; its preamble is that of the newest exchange that began there."""
    preamble = p(table.c.preamble)
    changes = sa.or_(table.c.is_head.is_(sa.true()), table.c.preamble != preamble)
    return (
        sa.update(table).where(at_chain(table, "base"), changes).values(is_head=sa.false(), preamble=preamble)
    )


LEAVE_BASE = _leave_base(MESSAGES)
LEAVE_REBASE = _leave_base(REBASES)
# The message before the base and the anchor of a rebase are no heads any more.
_BASE = MESSAGES.alias("base_message")
_PARENT = sa.select(_BASE.c.parent).where(at_chain(_BASE, "base")).scalar_subquery()
LEAVE_BEFORE = _flag(
    MESSAGES,
    sa.false(),
    of_session(MESSAGES),
    MESSAGES.c.chain.in_([p("anchor", sa.LargeBinary), _PARENT]),
)
SET_HEAD = (
    sa.update(MESSAGES)
    .where(at_chain(MESSAGES, "head"))
    .values(is_head=sa.true(), preamble=p(MESSAGES.c.preamble))
)
SET_REBASE_HEAD = _flag(REBASES, sa.true(), at_chain(REBASES, "head"))
LEAVE_HEAD = _flag(MESSAGES, sa.false(), at_chain(MESSAGES, "head"))
# Only a row that is off the path: `state` is in an index.
REVIVE_HEAD = (
    sa.update(MESSAGES).where(at_chain(MESSAGES, "head"), MESSAGES.c.state.in_(OFF_PATH)).values(state=LIVE)
)
REVIVE_BASE = (
    sa.update(MESSAGES).where(at_chain(MESSAGES, "base")).values(is_head=sa.false(), state=_ON_PATH_AGAIN)
)
CLEAR_REBASE_HEAD = _flag(REBASES, sa.false(), at_chain(REBASES, "head"))
WITHDRAW = (
    sa.update(MESSAGES)
    .where(at_chain(MESSAGES), ~is_extended(MESSAGES.c))
    .values(state=p("state"), is_head=sa.false())
)
# The closing exchange's base and its rebase's anchor are heads again where nothing follows them.
_ANCHOR = (
    sa.select(REBASES.c.anchor)
    .join(EXCHANGES, sa.and_(EXCHANGES.c.rebase == REBASES.c.chain, EXCHANGES.c.session == REBASES.c.session))
    .where(THE_EXCHANGE, of_namespace(REBASES))
    .scalar_subquery()
)
RESTORE_HEADS = _flag(
    MESSAGES,
    sa.true(),
    of_session(MESSAGES),
    sa.or_(MESSAGES.c.chain == p("base"), MESSAGES.c.chain == _ANCHOR),
    *(MESSAGES.c.state.in_(ON_PATH), ~is_extended(MESSAGES.c)),
)
RESTORE_REBASE_HEAD = _flag(REBASES, sa.true(), at_chain(REBASES, "base"), ~is_extended(REBASES.c))
# A regenerate that failed leaves the earlier answer as the branch's head.
_CHILD = MESSAGES.alias("child")
_HAS_CHILD_HEAD = there_is(
    same_session(_CHILD, MESSAGES),
    _CHILD.c.parent == MESSAGES.c.chain,
    _CHILD.c.is_head.is_(sa.true()),
)
CLEAR_ANSWERED_HEAD = _flag(MESSAGES, sa.false(), at_chain(MESSAGES, "head"), _HAS_CHILD_HEAD)


# Hidden rounds (one row per answer, its messages as JSON arrays of their exact bytes), and items of answers.
FOLLOWS = there_is(
    MESSAGES.c.session == p("session"), MESSAGES.c.parent == p("chain"), of_namespace(MESSAGES)
)
ROUNDS = ("messages", "tokens", "written", "results", "written_tokens")
# The newest rounds that led to an answer; unchanged rounds stay, with their results. Nothing is written where
# a message follows the answer already: a conversation that continued with other rounds, or none, continues
# that way, so its prompts keep their prefix (P10).
_GIVEN: Mapping[str, sa.ColumnElement[Any]] = {column.name: p(column) for column in HIDDEN_ROUNDS.c}
_NEW_ROUNDS = insert(HIDDEN_ROUNDS).from_select(list(_GIVEN), sa.select(*_GIVEN.values()).where(~FOLLOWS))
_CHANGES = sa.or_(
    HIDDEN_ROUNDS.c.messages != _NEW_ROUNDS.excluded.messages,
    HIDDEN_ROUNDS.c.written.is_distinct_from(_NEW_ROUNDS.excluded.written),
)
PUT_ROUNDS = replacing(_NEW_ROUNDS, *ROUNDS, "created_at", where=_CHANGES)
PUT_ITEM = new_row(ITEMS).on_conflict_do_nothing()
