"""Writes exchanges: a request before it is forwarded, its answer before the client sees the end.

Units are built from values, without reads. The first step locks the session's row and takes arrivals from its
counter, so that two writers of one session cannot interleave. Bodies are written in the order of their
digests: otherwise two sessions that share texts could deadlock. Hidden rounds (messages a model saw and the
client did not) and items belong to no path or transcript.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from palimpsest.core.history.branches import Mark
from palimpsest.core.history.stored_points import MessageState, Rebase
from palimpsest.core.recall.rounds.hidden import HiddenRounds
from palimpsest.core.wire.chat_answers import Usage
from palimpsest.core.wire.json_spans import raw_elements
from palimpsest.errors import StoreError
from palimpsest.storage import exchanges_sql as sql
from palimpsest.storage.accounts import ProvenNamespaces, proof_step
from palimpsest.storage.compactions import ADD_COMPACTION_IN_EPOCH, DatedCompaction, compaction_rows
from palimpsest.storage.database import Pace, Params, Reading, Row, SqlDatabase, Step, Unit, rows_of, step
from palimpsest.storage.erasure import RecentlyErased
from palimpsest.storage.journal import ADD_EVENT, EventRow, KnownSessions, event_rows
from palimpsest.storage.sql import SIZES, bodies_of, fields_of, grouped, listed, packed, plain, rows_among

ExchangeState = Literal["open", "done", "incomplete", "failed", "rejected", "refused"]

# Messages, each as its body and the body's sha256.
Instructions: TypeAlias = Sequence[tuple[bytes, bytes]]

_WITHDRAWN = frozenset({"rejected", "refused"})
# The rows of more messages are built on another thread (3 us each); more messages or bytes are committed on
# the writer's thread.
_INLINE_MESSAGES = 256
_INLINE_BYTES = 256 * 1024
# Open exchanges from which on a commit waits for further units: with fewer, hardly any would come.
_CROWD = 8


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
    preamble: Instructions
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


@dataclass(frozen=True, slots=True)
class CloseExchange:
    """How an exchange ended, with its answers: committed before the client sees the end (P3).

    `answers` follow `head`; a single one becomes the branch head (rule 6), unless `is_overtaken`: the
    conversation has continued from `head` meanwhile. `answer_state` is "incomplete" for a cut stream. With
    `state` "rejected" or "refused" the messages `withdrawn` (chains of those the request brought) leave the
    path but stay stored, and `base` is a branch head again (rule 11). `view` and its tokens are None when
    unknown. `response_id` is the upstream's id of the answer; of equal ids the newest counts. `hidden` are
    the hidden rounds of a single answer; results are stored separately (rule 31). `by_upstream`: the upstream
    answered, which proves the namespace (rule 26). `items` are the ids of items in the answers.
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


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """A finished request: its last message, its model and the tokens of its full prompt, tools included.

    `tokens_full` and `tokens_forwarded` (the prompt that was sent) are in our count, `prompt_tokens` is the
    upstream's count of the latter. None when unknown; `compaction` None: none was in force. `finished_at` is
    in seconds since 1970.
    """

    head: bytes
    model: str
    tokens_full: int
    tokens_forwarded: int | None = None
    prompt_tokens: int | None = None
    compaction: str | None = None
    finished_at: float | None = None


@dataclass(frozen=True, slots=True)
class InterruptedExchange:
    """An exchange that a dead process left open, and its answer as far as it was saved.

    `partial` is the answer's message as it was given to `save_partial`. `depth` and `answers` are those of
    `head`, the request's last message: an answer to it has one more of each. `is_followed`: the conversation
    has continued from `head` already.
    """

    namespace: str
    session: str
    exchange: str
    head: bytes
    base: bytes
    model: str
    partial: bytes
    depth: int
    answers: int
    is_followed: bool = False


class Exchanges:
    """See the module docstring; `palimpsest.storage.store` states the guarantees of every method."""

    def __init__(
        self,
        database: SqlDatabase,
        proven: ProvenNamespaces,
        erased: RecentlyErased,
        known: KnownSessions,
        server: str | None,
    ) -> None:
        self._db = database
        self._known = known
        self._proven = proven
        self._erased = erased
        self._server = server
        # Open exchanges, on whose number the pace of commits depends.
        self._open: set[str] = set()

    async def open(self, exchange: OpenExchange) -> None:
        """Commit a request (P2). Conflict when `external_id` names another session already."""
        size = (0, 0)
        if exchange.rebase is not None:
            size = await self._db.read_snapshot(_rebase_size(exchange, exchange.rebase))
        instructed = exchange.session, exchange.preamble_digest
        is_instructed = exchange.continues and self._known.has_instructions(*instructed)
        preamble = () if is_instructed else exchange.preamble
        opening = partial(_opening, exchange, preamble, size, self._server)
        is_long = len(exchange.messages) > _INLINE_MESSAGES
        unit = await asyncio.to_thread(opening) if is_long else opening()
        place = exchange.namespace, exchange.session
        if place in self._erased or (exchange.namespace, "") in self._erased:
            # The session was erased meanwhile (rule 30). Nothing is awaited between this check and the write.
            return
        pace = self._pace(exchange.messages)
        self._open.add(exchange.exchange)
        try:
            await self._db.write(unit, pace=pace, counted=False)
        except StoreError:
            self._open.discard(exchange.exchange)
            raise
        self._known.instructed(*instructed)

    async def close(self, exchange: CloseExchange) -> None:
        """Commit an answer or a failure (P3); nothing is stored for an erased exchange (rule 30).

        A namespace's first answer proves it (rule 26).
        """
        unit = _closing(exchange)
        proves = exchange.namespace not in self._proven and _is_answered(exchange)
        if proves:
            unit = [*unit, proof_step(exchange.namespace, exchange.finished_at)]
        self._open.discard(exchange.exchange)
        pace = self._pace(exchange.answers)
        touched = await self._db.write(unit, pace=pace, counted=proves)
        if proves and touched[0]:
            self._proven.add(exchange.namespace)

    def _pace(self, messages: Sequence[StoredMessage]) -> Pace:
        """The pace for a unit with these messages, beside the exchanges that are open."""
        if not self._open and _is_quick(messages):
            return "alone"
        return "crowded" if len(self._open) >= _CROWD else "usual"

    async def import_session(
        self,
        opened: OpenExchange,
        times: Sequence[float],
        events: Sequence[EventRow],
        made: Sequence[DatedCompaction] = (),
    ) -> None:
        """Create a session without exchanges from `opened.messages`, with their `times`, and `events`.

        `made` are compactions, oldest first, each with the time it was made.
        Conflict, and nothing stored, when `external_id` names another session already.
        """
        self._known.writes(opened.namespace, opened.session)
        await self._db.write(_importing(opened, times, events, made))

    async def save_partial(self, namespace: str, session: str, exchange: str, body: bytes) -> None:
        """Save the answer so far, replacing the earlier one; `close` erases it.

        Nothing happens when the exchange is not open.
        """
        key = {"namespace": namespace, "session": session, "exchange": exchange}
        await self._db.write([step(sql.SAVE_PARTIAL, **key, partial=body)])

    async def interrupted(self) -> list[InterruptedExchange]:
        """Every failed exchange, of all namespaces, that still has a partial answer.

        A killed server leaves them. They are listed until `close`: on SQLite from the next start, on a shared
        PostgreSQL database from another server's `journal.give_up`.
        """
        return await self._db.read_snapshot(_interrupted())

    async def of_key(self, namespace: str, idempotency_key: str) -> tuple[str, bytes] | None:
        """Session and head of the newest exchange with this idempotency key."""
        key = plain(idempotency_key)
        rows = await self._db.read_bounded(rows_of(sql.OF_KEY, namespace=namespace, idempotency_key=key))
        return (rows[0][0], rows[0][1]) if rows else None

    async def finished(self, namespace: str, session: str, heads: Sequence[bytes]) -> FinishedRequest | None:
        """The newest finished request that ended at one of `heads` (at most 8), None when there is none."""
        if not heads:
            return None
        asked = {"namespace": namespace, "session": session, **listed("head", heads, sql.HEADS)}
        rows = await self._db.read_bounded(rows_of(sql.FINISHED, **asked))
        return FinishedRequest(*rows[0]) if rows else None

    async def newest_finished(self, namespace: str, sessions: Sequence[str]) -> dict[str, FinishedRequest]:
        """The newest finished request of each of `sessions` (at most 50); those without one are left out.

        Requests marked as beside a conversation do not count.
        """
        if not sessions:
            return {}
        named = listed("session", sessions, sql.LISTED_SESSIONS)
        rows = await self._db.read_snapshot(rows_of(sql.NEWEST_FINISHED, namespace=namespace, **named))
        return {session: FinishedRequest(*request) for session, *request in rows}

    async def hidden_rounds(
        self, namespace: str, session: str, chains: Sequence[bytes]
    ) -> dict[bytes, HiddenRounds]:
        """The hidden rounds of the answers at `chains`; answers without any are left out."""
        reading = rows_among(sql.ROUNDS_AMONG, "chain", chains, namespace=namespace, session=session)
        rows = await (
            self._db.read_bounded(reading) if len(chains) <= SIZES[-1] else self._db.read_snapshot(reading)
        )
        return {bytes(row[0]): _hidden(row) for row in rows}

    async def add_hidden_results(
        self, namespace: str, session: str, chain: bytes, results: Sequence[bytes], tokens: int
    ) -> bool:
        """Store the results of our tool calls in the answer at `chain`; `tokens` counts answer and results.

        False, and nothing stored, when they are stored already or a message follows the answer: a
        conversation that continued without them stays that way.
        """
        key = {"namespace": namespace, "session": session, "chain": chain}
        added = step(sql.ADD_RESULTS, **key, results=_array(results), written_tokens=tokens)
        return (await self._db.write([added]))[0] > 0

    async def answers_with(
        self, namespace: str, items: Sequence[str], after: bytes | None = None
    ) -> dict[str, list[bytes]]:
        """The bodies of relayed answers that contain an item of this id, for each known id.

        With `after`, only answers to the message of this chain. An id that more than 8 answers share has an
        empty list.
        """
        reading = _answers_with(namespace, items, after)
        return await (
            self._db.read_bounded(reading)
            if len(items) <= sql.ITEM_SIZES[0]
            else self._db.read_snapshot(reading)
        )

    async def items_of(self, namespace: str, session: str) -> list[str]:
        """The ids of the items of a session's answers, at most 4096, escaped by `plain`."""
        rows = await self._db.read_snapshot(rows_of(sql.ITEMS_OF, namespace=namespace, session=session))
        return [ident for (ident,) in rows]


def _opening(
    exchange: OpenExchange, preamble: Instructions, size: tuple[int, int], server: str | None
) -> Unit:
    """The steps that record a request that `server` works on; `size` is its rebase's.

    `preamble`: its instructions, if they are not stored.

    Repeating them changes only the counter.
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
        Step(sql.PUT_BODY, _body_rows(exchange.namespace, _bodies(exchange, preamble))),
        Step(sql.PUT_REBASE, _rebase_rows(given, exchange.rebase, size, arrivals - 1)),
        Step(sql.PUT_MESSAGE, _message_rows(exchange, arrivals - 2)),
        Step(sql.PUT_VARIANT, [{**given, **fields_of(variant)} for variant in exchange.variants]),
        Step(sql.PUT_PREAMBLE, _preamble_rows(exchange, preamble)),
        Step(sql.PUT_EXCHANGE, [given]),
    ]
    if exchange.base:
        steps += [Step(sql.LEAVE_BASE, [given]), Step(sql.LEAVE_REBASE, [given], "untouched")]
    if exchange.base or exchange.rebase:
        steps.append(Step(sql.LEAVE_BEFORE, [given]))
    if not any(message.chain == exchange.head for message in exchange.messages):
        steps += [Step(sql.SET_HEAD, [given]), Step(sql.SET_REBASE_HEAD, [given], "untouched")]
    return [each for each in steps if each.rows]


def _closing(exchange: CloseExchange) -> Unit:
    """The steps that record how an exchange ended. Repeating them changes only the counter.

    An exchange that no longer exists was erased: nothing else is written then.
    """
    first = exchange.answers[0] if exchange.answers else None
    given = fields_of(exchange)
    given |= fields_of(exchange.usage)
    given["answer"] = first.chain if first and exchange.response_id else None
    given["arrivals"] = len(exchange.answers)
    given["created_at"] = given["updated_at"] = exchange.finished_at
    answers = _answer_rows(exchange)
    bodies = ((answer.digest, answer.body) for answer in exchange.answers)
    steps = [
        Step(sql.TOUCH_SESSION, [given], needed=True),
        Step(sql.CLOSE_EXCHANGE, [given], needed=True),
        Step(sql.PUT_BODY, _body_rows(exchange.namespace, bodies)),
        Step(sql.PUT_OTHER_SPELLING, answers),
        Step(sql.PUT_ANSWER, answers),
        Step(sql.PUT_ROUNDS, _round_rows(given, exchange)),
        Step(sql.PUT_ITEM, [row | {"id": plain(item)} for row in answers for item in exchange.items]),
        *_heads_after(exchange, given),
    ]
    return [each for each in steps if each.rows]


def _importing(
    opened: OpenExchange, times: Sequence[float], events: Sequence[EventRow], made: Sequence[DatedCompaction]
) -> Unit:
    """The steps of an import. Repeating them changes only the counter."""
    key = {"namespace": opened.namespace, "session": opened.session}
    behind = len(made) + len(events)
    messages = _message_rows(opened, behind + len(opened.messages) - 1)
    dated = [row | {"created_at": at} for row, at in zip(messages, times, strict=True)]
    steps = [
        Step(sql.PUT_SESSION, [_given(opened, len(opened.messages) + behind)]),
        Step(sql.PUT_BODY, _body_rows(opened.namespace, _bodies(opened, opened.preamble))),
        Step(sql.PUT_MESSAGE, dated),
        Step(sql.PUT_PREAMBLE, _preamble_rows(opened, opened.preamble)),
        Step(ADD_COMPACTION_IN_EPOCH, compaction_rows({**key, "epoch": 0}, made, len(events))),
        Step(ADD_EVENT, event_rows(key, events)),
    ]
    return [each for each in steps if each.rows]


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


def _is_quick(messages: Sequence[StoredMessage]) -> bool:
    """Whether storing them is quick enough for the calling thread."""
    return len(messages) <= _INLINE_MESSAGES and sum([len(each.body) for each in messages]) <= _INLINE_BYTES


def _is_answered(exchange: CloseExchange) -> bool:
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
        "rebase": rebase.chain if rebase else b"",
        "anchor": rebase.anchor if rebase else b"",
        "created_at": exchange.started_at,
        "updated_at": exchange.started_at,
    }
    return given


def _bodies(exchange: OpenExchange, preamble: Instructions) -> Iterator[tuple[bytes, bytes]]:
    """All bodies of the request, by digest."""
    for message in exchange.messages:
        yield message.digest, message.body
    for variant in exchange.variants:
        yield variant.digest, variant.body
    for body, digest in preamble:
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


def _preamble_rows(exchange: OpenExchange, preamble: Instructions) -> list[Params]:
    """One row, or none without instructions."""
    key = {"namespace": exchange.namespace, "session": exchange.session, "digest": exchange.preamble_digest}
    bodies = packed(digest for _, digest in preamble)
    return [{**key, "bodies": bodies}] if bodies else []


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
    own = {"chain": exchange.answers[0].chain, "messages": _array(hidden.before), "results": None}
    return [{**given, **fields_of(hidden), **own}]


def _array(messages: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(messages) + b"]"


def _hidden(row: Row) -> HiddenRounds:
    _, messages, tokens, written, results, written_tokens = row
    return HiddenRounds(
        before=tuple(raw_elements(bytes(messages))),
        tokens=tokens,
        written=None if written is None else bytes(written),
        results=None if results is None else tuple(raw_elements(bytes(results))),
        written_tokens=written_tokens,
    )


def _rebase_size(exchange: OpenExchange, rebase: Rebase) -> Reading[tuple[int, int]]:
    """The numbers of messages and relayed answers on the path of a rebase."""
    point: Params = {"namespace": exchange.namespace, "session": exchange.session, "chain": rebase.base}
    base = (yield from rows_of(sql.SIZE_OF, **point)) if rebase.base else []
    depth, answers = base[0] if base else (0, 0)
    for members, _ in grouped("chain", rebase.members, (sql.MEMBERS,)):
        answers += (yield from rows_of(sql.RELAYED_AMONG, **{**point, **members}))[0][0]
    return depth + len(rebase.members), answers


def _interrupted() -> Reading[list[InterruptedExchange]]:
    found = []
    for row in (yield from rows_of(sql.INTERRUPTED)):
        point = {"namespace": row[0], "session": row[1], "chain": row[3]}
        sizes = yield from rows_of(sql.SIZE_OF, **point)
        depth, answers = sizes[0] if sizes else (0, 0)
        followed = yield from rows_of(sql.IS_FOLLOWED, **point)
        found.append(InterruptedExchange(*[*row, depth, answers, bool(followed[0][0])]))
    return found


def _answers_with(
    namespace: str, items: Sequence[str], after: bytes | None
) -> Reading[dict[str, list[bytes]]]:
    asked = {"namespace": namespace, "after": after}
    statements = sql.ANSWERS_WITH if after is None else sql.ANSWERS_AFTER_WITH
    found: defaultdict[str, set[bytes]] = defaultdict(set)
    for ident, digest in (yield from rows_among(statements, "item", map(plain, items), **asked)):
        found[ident].add(digest)
    few = {ident: digests for ident, digests in found.items() if len(digests) <= sql.MOST_ANSWERS}
    bodies = yield from bodies_of(namespace, [digest for digests in few.values() for digest in digests])
    known = [ident for ident in items if plain(ident) in found]
    return {ident: [bodies[digest] for digest in few.get(plain(ident), ())] for ident in known}
