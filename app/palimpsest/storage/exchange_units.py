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

from palimpsest.core.history.branches import Mark
from palimpsest.core.history.stored_points import MessageState, Rebase
from palimpsest.core.recall.rounds.hidden import HiddenRounds
from palimpsest.core.wire.chat_answers import Usage
from palimpsest.core.wire.json_text import array_of
from palimpsest.storage import exchanges_sql as sql
from palimpsest.storage.accounts import Charge
from palimpsest.storage.compactions import ADD_DATED_COMPACTION, DatedCompaction, compaction_rows
from palimpsest.storage.database import Params, Statement, Step, Unit
from palimpsest.storage.journal import ADD_NUMBERED_EVENT, EventRow
from palimpsest.storage.sql import arrivals_step, fields_of, packed, plain, unfinished

ExchangeState = Literal["open", "done", "incomplete", "failed", "rejected", "refused"]

# Messages or other bodies, each with its sha256.
Bodies: TypeAlias = Sequence[tuple[bytes, bytes]]

_WITHDRAWN = frozenset({"rejected", "refused"})
# The rows of more messages are built on another thread (3 us each); more messages or bytes are committed on
# the writer's thread.
INLINE_MESSAGES = 256
_INLINE_BYTES = 256 * 1024
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
    (`core.wire.envelope`), `carried_digest` the joint sha256. `client` is the program that sent it.
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
    `code` and `cause` (client, proxy, upstream) of a failure, None if unknown. `charge`: what the answer adds
    to the use of an account with a limit.
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
    charge: Charge | None = None


def opening(exchange: OpenExchange, size: tuple[int, int], server: str | None) -> Unit:
    """The steps that record a request that `server` works on; `size` is its rebase's.

    Without `preamble` and `carried` if they are stored. Repeating them changes only the counter.
    """
    # One arrival for the rebase, one for each message, one for the exchange; the last is the newest.
    arrivals = len(exchange.messages) + 2
    given = _given(exchange, arrivals)
    given["server"] = server
    is_there, is_likely = exchange.continues, bool(exchange.base or exchange.rebase)
    steps = [
        Step(sql.RELEASE_NAME, [given] if exchange.takes_name else []),
        # Without a base the session rarely exists.
        Step(sql.REOPEN_SESSION, [given] if is_there or is_likely else [], needed=is_there),
        Step(sql.PUT_SESSION, [] if is_there else [given], "untouched" if is_likely else "any"),
        Step(sql.PUT_BODY, _body_rows(exchange.namespace, _bodies(exchange))),
        Step(sql.PUT_REBASE, _rebase_rows(given, exchange.rebase, size, arrivals - 1)),
        Step(sql.PUT_MESSAGE, _message_rows(exchange, arrivals - 2)),
        Step(sql.PUT_VARIANT, [{**given, **fields_of(variant)} for variant in exchange.variants]),
        Step(sql.PUT_PREAMBLE, _set_rows(exchange, exchange.preamble_digest, exchange.preamble)),
        Step(sql.PUT_PREAMBLE, _set_rows(exchange, exchange.carried_digest, exchange.carried)),
        Step(sql.PUT_EXCHANGE, [given]),
    ]
    if exchange.base:
        steps += [Step(sql.LEAVE_BASE, [given]), Step(sql.LEAVE_REBASE, [given], "untouched")]
    if exchange.base or exchange.rebase:
        steps.append(Step(sql.LEAVE_BEFORE, [given]))
    if not any(message.chain == exchange.head for message in exchange.messages):
        steps += [Step(sql.SET_HEAD, [given]), Step(sql.SET_REBASE_HEAD, [given], "untouched")]
    return [each for each in steps if each.rows]


def closing(exchange: CloseExchange) -> Unit:
    """The steps that record how an exchange ended. Repeating them changes only the counter.

    An exchange that no longer exists was erased: nothing else is written then.
    """
    first = exchange.answers[0] if exchange.answers else None
    given = fields_of(exchange)
    given |= fields_of(exchange.usage)
    given["answer"] = first.chain if first else None
    given["arrivals"] = len(exchange.answers)
    given["created_at"] = given["updated_at"] = exchange.finished_at
    given["sent"] = exchange.sent_digest
    answers = _answer_rows(exchange)
    bodies = [(answer.digest, answer.body) for answer in exchange.answers]
    bodies += [(digest, body) for body, digest in exchange.sent]
    steps = [
        Step(sql.TOUCH_SESSION, [given], needed=True),
        Step(sql.CLOSE_EXCHANGE, [given], needed=True),
        Step(sql.PUT_BODY, _body_rows(exchange.namespace, bodies)),
        Step(sql.PUT_PREAMBLE, _set_rows(exchange, exchange.sent_digest, exchange.sent)),
        Step(sql.PUT_OTHER_SPELLING, answers),
        Step(sql.PUT_ANSWER, answers),
        Step(sql.PUT_ROUNDS, _round_rows(given, exchange)),
        Step(sql.PUT_ITEM, [row | {"id": plain(item)} for row in answers for item in exchange.items]),
        *_heads_after(exchange, given),
    ]
    return [each for each in steps if each.rows]


def beginning(exchange: OpenExchange, server: str | None) -> Iterator[Unit]:
    """The units of a request that brings a long history of a new session, in slices as an import."""
    steps = opening(replace(exchange, messages=()), (0, 0), server)
    free = [step for step in steps if step.statement is sql.RELEASE_NAME]
    rest = [step for step in steps if step.statement is not sql.RELEASE_NAME]
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
    first, size = Step(sql.BEGIN_IMPORT, [begun], needed=True), 0
    rows: defaultdict[Statement, list[Params]] = defaultdict(list)
    for statement, row in _imported(opened, times, events, made):
        rows[statement].append(row)
        size += 1 + sum([len(value) for value in row.values() if isinstance(value, bytes)]) // _ROW_BYTES
        # Bodies are written with the messages that name them: an erase finds them by these.
        if size >= _SLICE_ROWS and statement not in (sql.PUT_BODY, sql.PUT_PREAMBLE):
            yield [first, *_steps(rows)]
            first, size = replace(arrivals_step(hidden, 0), needed=True), 0
            rows.clear()
    end = Step(sql.END_IMPORT, [hidden | {"external_id": opened.external_id}])
    yield [first, *_steps(rows), *before, end, *after]


def _steps(rows: Mapping[Statement, list[Params]]) -> Iterator[Step]:
    for statement, own in rows.items():
        yield Step(statement, sorted(own, key=itemgetter("digest")) if statement is sql.PUT_BODY else [*own])


def _imported(
    opened: OpenExchange, times: Sequence[float], events: Sequence[EventRow], made: Sequence[DatedCompaction]
) -> Iterator[tuple[Statement, Params]]:
    """The rows of an import with the statements that add them; a body comes before what names it."""
    key = {"namespace": opened.namespace, "session": opened.session}
    arrivals = count(1)
    for body, digest in opened.preamble:
        yield sql.PUT_BODY, {**key, "digest": digest, "body": body}
    for preamble in _set_rows(opened, opened.preamble_digest, opened.preamble):
        yield sql.PUT_PREAMBLE, preamble
    for message, at in zip(opened.messages, times, strict=True):
        yield sql.PUT_BODY, {**key, "digest": message.digest, "body": message.body}
        (row,) = _message_rows(replace(opened, messages=[message]), 0)
        yield sql.ADD_MESSAGE, {**row, "created_at": at, "arrival": next(arrivals)}
    for each in made:
        (values,) = compaction_rows(key, [each], 0)
        yield ADD_DATED_COMPACTION, {**values, "arrival": next(arrivals)}
    for event in events:
        yield ADD_NUMBERED_EVENT, {**key, **fields_of(event), "seq": next(arrivals)}


def _heads_after(exchange: CloseExchange, given: Params) -> Iterator[Step]:
    """The steps that update the branch heads (rules 6 and 11)."""
    if exchange.state in _WITHDRAWN:
        # Newest first: a message that another request continued meanwhile stays.
        withdrawn = [{**given, "chain": chain} for chain in reversed(exchange.withdrawn)]
        yield Step(sql.WITHDRAW, withdrawn)
        yield Step(sql.CLEAR_REBASE_HEAD, [given])
        yield Step(sql.RESTORE_HEADS, [given])
        yield Step(sql.RESTORE_REBASE_HEAD, [given])
    if _has_new_head(exchange):
        yield Step(sql.LEAVE_HEAD, [given])
        yield Step(sql.CLEAR_REBASE_HEAD, [given], "untouched")
        # An answered message is on the path, even if another exchange that brought it was withdrawn
        # meanwhile.
        yield Step(sql.REVIVE_HEAD, [given])
        yield Step(sql.REVIVE_BASE, [given], "touched")
    else:
        yield Step(sql.REVIVE_HEAD if exchange.answers else sql.CLEAR_ANSWERED_HEAD, [given])


def is_quick(messages: Sequence[StoredMessage]) -> bool:
    """Whether storing them is quick enough for the calling thread."""
    return len(messages) <= INLINE_MESSAGES and sum([len(each.body) for each in messages]) <= _INLINE_BYTES


def is_answered(exchange: CloseExchange) -> bool:
    """Whether the upstream has answered."""
    is_answered = exchange.state in ("done", "incomplete") and 200 <= (exchange.status or 0) < 300
    return is_answered and exchange.by_upstream


def _has_new_head(exchange: CloseExchange) -> bool:
    """A single answer becomes the head; of several, none does until the client sends one (rule 6)."""
    if exchange.is_overtaken:
        return False
    return len(exchange.answers) == 1 and exchange.answer_state not in _WITHDRAWN


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


def _bodies(exchange: OpenExchange) -> Iterator[tuple[bytes, bytes]]:
    """All bodies of the request, by digest."""
    for message in exchange.messages:
        yield message.digest, message.body
    for variant in exchange.variants:
        yield variant.digest, variant.body
    for body, digest in (*exchange.preamble, *exchange.carried):
        yield digest, body


def _body_rows(namespace: str, bodies: Iterable[tuple[bytes, bytes]]) -> list[Params]:
    """One row per body, in the order of the digests."""
    ordered = sorted(dict(bodies).items())
    return [{"namespace": namespace, "digest": digest, "body": body} for digest, body in ordered]


def _message_rows(exchange: OpenExchange, back: int) -> list[dict[str, object]]:
    """The messages in order; the first is `back` places before the newest arrival."""
    shared = {
        "namespace": exchange.namespace,
        "session": exchange.session,
        "relayed": False,
        "state": "live",
        "preamble": exchange.preamble_digest,
        "finish_reason": None,
        "created_at": exchange.started_at,
    }
    return [
        {**shared, **fields_of(message), "back": back - i, "is_head": message.chain == exchange.head}
        for i, message in enumerate(exchange.messages)
    ]


def _answer_rows(exchange: CloseExchange) -> list[dict[str, Any]]:
    shared = {
        "namespace": exchange.namespace,
        "session": exchange.session,
        "exchange": exchange.exchange,
        "relayed": True,
        "state": exchange.answer_state,
        "is_head": _has_new_head(exchange),
        "finish_reason": exchange.finish_reason and plain(exchange.finish_reason),
        "created_at": exchange.finished_at,
    }
    last = len(exchange.answers) - 1
    return [{**shared, **fields_of(answer), "back": last - i} for i, answer in enumerate(exchange.answers)]


def _set_rows(exchange: OpenExchange | CloseExchange, digest: bytes | None, bodies: Bodies) -> list[Params]:
    """The row that lists these bodies in their order; none without bodies."""
    key = {"namespace": exchange.namespace, "session": exchange.session, "digest": digest}
    return [{**key, "bodies": packed(of for _, of in bodies)}] if bodies else []


def _rebase_rows(given: Params, rebase: Rebase | None, size: tuple[int, int], back: int) -> list[Params]:
    if rebase is None:
        return []
    own = {"members": packed(rebase.members), "depth": size[0], "answers": size[1]}
    return [{**given, **fields_of(rebase), **own, "back": back, "is_head": False}]


def _round_rows(given: Params, exchange: CloseExchange) -> list[Params]:
    """The row of hidden rounds; none without rounds, or with several answers."""
    hidden = exchange.hidden
    if hidden is None or len(exchange.answers) != 1:
        return []
    own = {"chain": exchange.answers[0].chain, "messages": array_of(hidden.before), "results": None}
    return [{**given, **fields_of(hidden), **own}]
