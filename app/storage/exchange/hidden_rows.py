"""Hidden rounds as rows: one an answer, its messages as JSON arrays of their exact bytes.

Must not know when they are written, but for what a model found late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Exists, LargeBinary, Select, Update, exists, null, or_, select, update
from sqlalchemy.dialects.postgresql import Insert

from app.core.recall.rounds.hidden import HiddenRounds
from app.core.wire.json_members import raw_elements
from app.storage.contract import CloseExchange
from app.storage.database import (
    Database,
    InsertInto,
    Params,
    Reading,
    Row,
    Statement,
    Step,
    named,
    p,
    rows_of,
)
from app.storage.exchange.row_sql import at
from app.storage.tables.conversations import HIDDEN_ROUNDS, MESSAGES

# Answers asked for at once.
_SIZES = (8, 256)


class HiddenRows:
    """See the contract in `app/storage/exchange/hidden.py`."""

    _db: Database

    async def hidden_rounds(
        self, namespace: str, session: str, chains: Sequence[bytes]
    ) -> Mapping[bytes, HiddenRounds]:
        """See the contract."""
        reading = _rounds(namespace, session, chains)
        return await (self._db.near(reading) if len(chains) <= _SIZES[-1] else self._db.far(reading))

    async def add_hidden_results(
        self, namespace: str, session: str, chain: bytes, results: Sequence[bytes], tokens: int
    ) -> bool:
        """See the contract."""
        row: Params = {
            "namespace": namespace,
            "session": session,
            "chain": chain,
            "results": _listed(results),
            "written_tokens": tokens,
        }
        (touched,) = await self._db.write([Step(_ADD_RESULTS, [row])])
        return touched > 0


def hidden_step(exchange: CloseExchange) -> Step:
    """Writes the rounds of an exchange's answer; without rows where there is nothing of both."""
    hidden = exchange.hidden
    if hidden is None or len(exchange.answers) != 1:
        return Step(_PUT_ROUNDS, [])
    row: Params = {
        "chain": exchange.answers[0].chain,
        "session": exchange.session,
        "namespace": exchange.namespace,
        "messages": _listed(hidden.before),
        "tokens": hidden.tokens,
        "written": hidden.written,
        "results": None,
        "written_tokens": hidden.written_tokens,
        "created_at": exchange.finished_at,
    }
    return Step(_PUT_ROUNDS, [row])


def _listed(messages: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(messages) + b"]"


def _rounds(namespace: str, session: str, chains: Sequence[bytes]) -> Reading[dict[bytes, HiddenRounds]]:
    found: dict[bytes, HiddenRounds] = {}
    size = _SIZES[0] if len(chains) <= _SIZES[0] else _SIZES[-1]
    for start in range(0, len(chains), size):
        part = chains[start : start + size]
        listed = {f"chain_{i}": part[min(i, len(part) - 1)] for i in range(size)}
        key: Params = {"namespace": namespace, "session": session, **listed}
        rows = yield from rows_of(_ROUNDS_AMONG[size], key)
        found.update((bytes(row[0]), _hidden(row)) for row in rows)
    return found


def _hidden(row: Row) -> HiddenRounds:
    _, messages, tokens, written, results, written_tokens = row
    return HiddenRounds(
        before=tuple(raw_elements(bytes(messages))),
        tokens=tokens,
        written=None if written is None else bytes(written),
        results=None if results is None else tuple(raw_elements(bytes(results))),
        written_tokens=written_tokens,
    )


def _put_rounds(insert: InsertInto) -> Insert:
    """The newest of the rounds that led to one and the same answer; written again they stay, with results.

    Nothing is written where something follows the answer already: what went on with other rounds, or without
    any, goes on so, and its prompts keep their beginning (P10).
    """
    table = HIDDEN_ROUNDS
    given = named(table)
    new = insert(table).from_select(list(given), select(*given.values()).where(~_follows()))
    taken = ("messages", "tokens", "written", "results", "written_tokens", "created_at")
    return new.on_conflict_do_update(
        index_elements=list(table.primary_key.columns),
        set_={name: new.excluded[name] for name in taken},
        where=or_(
            table.c.messages != new.excluded.messages, table.c.written.is_distinct_from(new.excluded.written)
        ),
    )


def _add_results(_: InsertInto) -> Update:
    table = HIDDEN_ROUNDS
    return (
        update(table)
        .where(
            *at(table, p("chain")),
            table.c.written.is_not(None),
            table.c.results.is_(null()),
            ~_follows(),
        )
        .values(named(table, "results", "written_tokens"))
    )


def _follows() -> Exists:
    """A message stands behind the answer."""
    return exists(
        select(1).where(
            MESSAGES.c.session == p("session"),
            MESSAGES.c.parent == p("chain"),
            MESSAGES.c.namespace == p("namespace"),
        )
    )


def _rounds_among(_: InsertInto, size: int) -> Select[Any]:
    table = HIDDEN_ROUNDS
    names = ("chain", "messages", "tokens", "written", "results", "written_tokens")
    return select(*(table.c[name] for name in names)).where(
        table.c.session == p("session"),
        table.c.chain.in_([p(f"chain_{i}", LargeBinary) for i in range(size)]),
        table.c.namespace == p("namespace"),
    )


_PUT_ROUNDS = Statement(_put_rounds)
_ADD_RESULTS = Statement(_add_results)
_ROUNDS_AMONG = {size: Statement(partial(_rounds_among, size=size)) for size in _SIZES}
