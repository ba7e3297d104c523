"""What is written when an exchange opens and when it closes: units built from values, nothing read.

Must not know which database runs them. Arrivals are drawn from the session's counter, whose row the
first step locks, so that two writers of one session cannot interleave. Bodies are written in the
order of their digests: two sessions that share texts would otherwise wait for each other in a ring.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import LargeBinary, func, select, true

from app.errors import StoreError
from app.storage.contract import CloseExchange, OpenExchange, StoredMessage
from app.storage.database import (
    Database,
    Params,
    Reading,
    Statement,
    Step,
    Unit,
    p,
    plain,
    plain_or_none,
    rows_of,
)
from app.storage.erase.gone import Gone
from app.storage.exchange import head_sql as heads
from app.storage.exchange import row_sql as sql
from app.storage.exchange.hidden_rows import hidden_step
from app.storage.exchange.item_rows import items_step
from app.storage.exchange.rows import (
    bodies_of_opening,
    body_rows,
    facts_of,
    message_rows,
    preamble_rows,
    session_row,
)
from app.storage.packing import packed
from app.storage.standing import Proven, proving
from app.storage.tables.conversations import MESSAGES

# Members of a rebase asked for at once.
_MEMBERS = 64
_WITHDRAWN = frozenset({"rejected", "refused"})
# The rows of more messages are made beside the event loop (3 us each), and of more messages or bytes
# committed there.
_INLINE_MESSAGES = 256
_INLINE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class RebaseSize:
    """Messages and relayed answers on the path that a rebase names."""

    depth: int = 0
    answers: int = 0


class ExchangeWrites:
    """The two writes every request makes."""

    _db: Database
    _proven: Proven
    # Exchanges that have begun and not ended: a single one is alone.
    _open: set[str]
    server: str | None
    # Sessions and namespaces that were erased: nothing begins in them again.
    _gone: Gone

    async def open_exchange(self, exchange: OpenExchange) -> None:
        """See the contract (P2). Conflict: the client's name already belongs to another session."""
        size = RebaseSize()
        if exchange.rebase is not None:
            size = await self._db.far(_rebase_size(exchange))
        if len(exchange.messages) > _INLINE_MESSAGES:
            unit = await asyncio.to_thread(opening, exchange, size, self.server)
        else:
            unit = opening(exchange, size, self.server)
        place = exchange.namespace, exchange.session
        if place in self._gone or (exchange.namespace, "") in self._gone:
            # A request that was on its way (rule 30). Nothing is awaited between this look and the write.
            return
        alone = not self._open and _is_quick(exchange.messages)
        self._open.add(exchange.exchange)
        try:
            await self._db.write(unit, alone=alone)
        except StoreError:
            self._open.discard(exchange.exchange)
            raise

    async def close_exchange(self, exchange: CloseExchange) -> None:
        """See the contract (P3). The first answer of a namespace proves it (rule 26)."""
        unit = closing(exchange)
        proves = exchange.namespace not in self._proven and _is_answer(exchange)
        if proves:
            unit = [*unit, proving(exchange.namespace, exchange.finished_at)]
        self._open.discard(exchange.exchange)
        alone = not self._open and _is_quick(exchange.answers)
        touched = await self._db.write(unit, alone=alone)
        if proves and touched[0]:
            self._proven.add(exchange.namespace)


def _is_quick(messages: Sequence[StoredMessage]) -> bool:
    """Whether storing them holds nobody up, so that it may be done on the calling thread."""
    return len(messages) <= _INLINE_MESSAGES and sum(len(each.body) for each in messages) <= _INLINE_BYTES


def opening(exchange: OpenExchange, size: RebaseSize, server: str | None = None) -> Unit:
    """The steps that record a request, which `server` has under way.

    Repeating them changes nothing but the counter.
    """
    # One arrival for the rebase, one for each message, one for the exchange; the last is the newest.
    arrivals = len(exchange.messages) + 2
    place: Params = {
        "namespace": exchange.namespace,
        "session": exchange.session,
        "base": exchange.base,
        "head": exchange.head,
        "anchor": exchange.rebase.anchor if exchange.rebase else b"",
        "preamble": exchange.preamble_digest,
    }
    session = session_row(exchange, arrivals)
    is_there, is_likely = exchange.continues, bool(exchange.base or exchange.rebase)
    steps = [
        Step(sql.RELEASE_NAME, [session] if exchange.takes_name else []),
        # Where nothing goes before there is rarely a session yet.
        Step(sql.REOPEN_SESSION, [session] if is_there or is_likely else [], needed=is_there),
        Step(sql.PUT_SESSION, [] if is_there else [session], "untouched" if is_likely else "any"),
        Step(sql.PUT_BODY, body_rows(exchange.namespace, bodies_of_opening(exchange))),
        Step(sql.PUT_REBASE, _rebase_rows(exchange, size, arrivals - 1)),
        Step(sql.PUT_MESSAGE, message_rows(exchange, arrivals - 2)),
        Step(sql.PUT_VARIANT, _variant_rows(exchange)),
        Step(sql.PUT_PREAMBLE, preamble_rows(exchange)),
        Step(sql.PUT_EXCHANGE, [{**_exchange_row(exchange), "server": server}]),
    ]
    if exchange.base:
        steps += [Step(heads.LEAVE_BASE, [place]), Step(heads.LEAVE_REBASE, [place], "untouched")]
    if exchange.base or exchange.rebase:
        steps.append(Step(heads.LEAVE_BEFORE, [place]))
    if not any(message.chain == exchange.head for message in exchange.messages):
        steps += [Step(heads.SET_HEAD, [place]), Step(heads.SET_REBASE_HEAD, [place], "untouched")]
    return [step for step in steps if step.rows]


def closing(exchange: CloseExchange) -> Unit:
    """The steps that record how an exchange ended. Repeating them changes nothing but the counter.

    An exchange that is not there any more was erased: then nothing else is written.
    """
    place: Params = {
        "namespace": exchange.namespace,
        "session": exchange.session,
        "exchange": exchange.exchange,
        "head": exchange.head,
        "base": exchange.base,
    }
    answers = _answer_rows(exchange)
    steps = [
        Step(sql.TOUCH_SESSION, [_touch_row(exchange)], needed=True),
        Step(sql.CLOSE_EXCHANGE, [_closed_row(exchange)], needed=True),
        Step(sql.PUT_BODY, body_rows(exchange.namespace, ((a.digest, a.body) for a in exchange.answers))),
        Step(sql.PUT_OTHER_SPELLING, answers),
        Step(sql.PUT_ANSWER, answers),
        hidden_step(exchange),
        items_step(exchange),
        *_heads_after(exchange, place),
    ]
    return [step for step in steps if step.rows]


def _heads_after(exchange: CloseExchange, place: Params) -> Iterator[Step]:
    """Which message is a branch's newest now: rules 6 and 11."""
    if exchange.state in _WITHDRAWN:
        # Newest first: a message that something else was built on meanwhile stays.
        withdrawn = [{**place, "chain": c, "state": exchange.state} for c in reversed(exchange.withdrawn)]
        yield Step(heads.WITHDRAW, withdrawn)
        yield Step(heads.CLEAR_REBASE_HEAD, [place])
        yield Step(heads.RESTORE_HEADS, [place])
        yield Step(heads.RESTORE_REBASE_HEAD, [place])
    if _has_new_head(exchange):
        yield Step(heads.LEAVE_HEAD, [place])
        yield Step(heads.CLEAR_REBASE_HEAD, [place], "untouched")
        # An answered message is on the path, whatever another exchange that brought it made of it meanwhile.
        yield Step(heads.REVIVE_HEAD, [place])
        yield Step(heads.REVIVE_BASE, [place], "touched")
    elif exchange.answers:
        yield Step(heads.REVIVE_HEAD, [place])
    else:
        yield Step(heads.CLEAR_ANSWERED_HEAD, [place])


def _is_answer(exchange: CloseExchange) -> bool:
    is_answered = exchange.state in ("done", "incomplete") and 200 <= (exchange.status or 0) < 300
    return is_answered and exchange.by_upstream


def _has_new_head(exchange: CloseExchange) -> bool:
    """One answer follows; of several, none is head until one comes back (rule 6)."""
    if exchange.is_overtaken:
        return False
    return len(exchange.answers) == 1 and exchange.answer_state not in _WITHDRAWN


def _rebase_size(exchange: OpenExchange) -> Reading[RebaseSize]:
    rebase = exchange.rebase
    if rebase is None:
        return RebaseSize()
    point: Params = {"namespace": exchange.namespace, "session": exchange.session, "chain": rebase.base}
    base = (yield from rows_of(sql.SIZE_OF, point)) if rebase.base else []
    depth, answers = base[0] if base else (0, 0)
    for start in range(0, len(rebase.members), _MEMBERS):
        part = rebase.members[start : start + _MEMBERS]
        listed = {f"chain_{i}": part[min(i, len(part) - 1)] for i in range(_MEMBERS)}
        rows = yield from rows_of(_RELAYED_AMONG, {**point, **listed})
        answers += rows[0][0]
    return RebaseSize(depth + len(rebase.members), answers)


def _rebase_rows(exchange: OpenExchange, size: RebaseSize, back: int) -> list[Params]:
    rebase = exchange.rebase
    if rebase is None:
        return []
    row: Params = {
        "namespace": exchange.namespace,
        "session": exchange.session,
        "chain": rebase.chain,
        "base": rebase.base,
        "anchor": rebase.anchor,
        "members": packed(rebase.members),
        "depth": size.depth,
        "answers": size.answers,
        "back": back,
        "is_head": False,
        "preamble": exchange.preamble_digest,
        "created_at": exchange.started_at,
    }
    return [row]


def _answer_rows(exchange: CloseExchange) -> list[Params]:
    shared = {
        "namespace": exchange.namespace,
        "session": exchange.session,
        "exchange": exchange.exchange,
        "relayed": True,
        "state": exchange.answer_state,
        "is_head": _has_new_head(exchange),
        "finish_reason": plain_or_none(exchange.finish_reason),
        "created_at": exchange.finished_at,
    }
    last = len(exchange.answers) - 1
    return [{**shared, **facts_of(answer), "back": last - i} for i, answer in enumerate(exchange.answers)]


def _variant_rows(exchange: OpenExchange) -> Sequence[Params]:
    return [
        {
            "namespace": exchange.namespace,
            "session": exchange.session,
            "chain": variant.chain,
            "digest": variant.digest,
            "created_at": exchange.started_at,
        }
        for variant in exchange.variants
    ]


def _exchange_row(exchange: OpenExchange) -> Params:
    return {
        "namespace": exchange.namespace,
        "id": exchange.exchange,
        "session": exchange.session,
        "head": exchange.head,
        "base": exchange.base,
        "rebase": exchange.rebase.chain if exchange.rebase else b"",
        "preamble": exchange.preamble_digest,
        "state": "open",
        "model": plain(exchange.model),
        "found_by": exchange.found_by,
        "mode": exchange.mode,
        "idempotency_key": plain_or_none(exchange.idempotency_key),
        "started_at": exchange.started_at,
        "mark": exchange.mark or None,
        "back": 0,
    }


def _touch_row(exchange: CloseExchange) -> Params:
    return {
        "namespace": exchange.namespace,
        "id": exchange.session,
        "arrivals": len(exchange.answers),
        "updated_at": exchange.finished_at,
    }


def _closed_row(exchange: CloseExchange) -> Params:
    return {
        "namespace": exchange.namespace,
        "exchange": exchange.exchange,
        "state": exchange.state,
        "finish_reason": plain_or_none(exchange.finish_reason),
        "status": exchange.status,
        "view": exchange.view,
        "tokens_full": exchange.tokens_full,
        "tokens_forwarded": exchange.tokens_forwarded,
        "compaction": exchange.compaction,
        "prompt_tokens": exchange.usage.prompt_tokens,
        "completion_tokens": exchange.usage.completion_tokens,
        "cached_tokens": exchange.usage.cached_tokens,
        "response_id": plain_or_none(exchange.response_id),
        "answer": exchange.answers[0].chain if exchange.response_id and exchange.answers else None,
        "finished_at": exchange.finished_at,
    }


_RELAYED_AMONG = Statement(
    lambda _: select(func.count()).where(
        *heads.SESSION_MESSAGES,
        MESSAGES.c.chain.in_([p(f"chain_{i}", LargeBinary) for i in range(_MEMBERS)]),
        MESSAGES.c.relayed.is_(true()),
    )
)
