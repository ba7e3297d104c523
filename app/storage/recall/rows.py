"""Rows of messages and summaries with their bodies, not more bytes of them at once than asked for.

Must not know why they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, LargeBinary, Select, and_, func, select

from app.storage.database import InsertInto, Params, Reading, Row, Statement, p, rows_of
from app.storage.recall.contract import RecallRow
from app.storage.tables.conversations import BODIES, COMPACTIONS, MESSAGES

# Bodies asked for by their digests at once.
_SIZES = (8, 128)
_MESSAGE = (
    "session",
    "chain",
    "parent",
    "role",
    "depth",
    "arrival",
    "state",
    "relayed",
    "created_at",
    "tokens",
    "digest",
)
_SUMMARY = ("session", "id", "watermark", "arrival", "undone_at", "created_at", "summary")


@dataclass(frozen=True, slots=True)
class Fact:
    """A row that may be without its body: then `digest` names it, and `length` is its bytes."""

    row: RecallRow
    digest: bytes | None
    length: int


BODY = and_(BODIES.c.digest == MESSAGES.c.digest, BODIES.c.namespace == MESSAGES.c.namespace)
MESSAGE_COLUMNS: tuple[ColumnElement[Any], ...] = (
    *(MESSAGES.c[name] for name in _MESSAGE),
    func.length(BODIES.c.body),
)
SUMMARY_COLUMNS: tuple[ColumnElement[Any], ...] = tuple(COMPACTIONS.c[name] for name in _SUMMARY)


def messages() -> Select[Any]:
    """The messages as `message_of` takes them; a condition is to be added."""
    return select(*MESSAGE_COLUMNS).select_from(MESSAGES).join(BODIES, BODY)


def summaries() -> Select[Any]:
    """The summaries as `summary_of` takes them; a condition is to be added."""
    return select(*SUMMARY_COLUMNS)


def message_of(row: Row) -> Fact:
    """A row of `MESSAGE_COLUMNS`."""
    session, chain, parent, role, depth, arrival, state, relayed, at, tokens, digest, length = row
    found = RecallRow(
        session=session,
        kind="message",
        ref=chain,
        chain=chain,
        parent=parent,
        role=role,
        depth=depth,
        arrival=arrival,
        state=state,
        relayed=bool(relayed),
        at=at,
        tokens=tokens,
        body=b"",
    )
    return Fact(found, digest, length)


def summary_of(row: Row) -> Fact:
    """A row of `SUMMARY_COLUMNS`."""
    session, ident, watermark, arrival, undone_at, at, summary = row
    found = RecallRow(
        session=session,
        kind="summary",
        ref=ident.encode(),
        chain=watermark,
        parent=b"",
        role="",
        depth=0,
        arrival=arrival,
        state="live" if undone_at is None else "undone",
        relayed=False,
        at=at,
        tokens=0,
        body=summary,
    )
    return Fact(found, None, len(summary))


def within(facts: Iterable[Fact], most_bytes: int) -> list[Fact]:
    """The first of them, as far as their bodies have at most so many bytes together; at least one."""
    kept: list[Fact] = []
    for fact in facts:
        most_bytes -= fact.length
        if kept and most_bytes < 0:
            break
        kept.append(fact)
    return kept


def fitting(facts: Sequence[Fact], most_bytes: int) -> list[Fact]:
    """The first, and of the others in their order all that have their place in so many bytes together."""
    kept: list[Fact] = []
    for fact in facts:
        if not kept or fact.length <= most_bytes:
            kept.append(fact)
            most_bytes -= fact.length
    return kept


def with_bodies(namespace: str, facts: Sequence[Fact]) -> Reading[list[RecallRow]]:
    """The rows in their order, whole."""
    digests = list(dict.fromkeys(fact.digest for fact in facts if fact.digest is not None))
    bodies: dict[bytes, bytes] = {}
    for listed, size in listed_in("digest", digests, _SIZES):
        found = yield from rows_of(_BODIES[size], {"namespace": namespace, **listed})
        bodies.update((digest, body) for digest, body in found)
    return [_with(fact, bodies) for fact in facts]


def listed_in(name: str, values: Sequence[object], sizes: tuple[int, int]) -> Iterator[tuple[Params, int]]:
    """Parameters that name `values` in groups of the smaller size, or the larger if there are many.

    The last of a group fills it up.
    """
    size = sizes[0] if len(values) <= sizes[0] else sizes[1]
    for start in range(0, len(values), size):
        part = values[start : start + size]
        yield {f"{name}_{i}": part[min(i, len(part) - 1)] for i in range(size)}, size


def among(column: ColumnElement[bytes], name: str, size: int) -> ColumnElement[bool]:
    """The column has one of the values that `listed_in` names."""
    return column.in_([p(f"{name}_{i}", LargeBinary) for i in range(size)])


def _with(fact: Fact, bodies: dict[bytes, bytes]) -> RecallRow:
    return fact.row if fact.digest is None else replace(fact.row, body=bodies[fact.digest])


def _bodies(_: InsertInto, size: int) -> Select[Any]:
    return select(BODIES.c.digest, BODIES.c.body).where(
        BODIES.c.namespace == p("namespace"), among(BODIES.c.digest, "digest", size)
    )


def _bodies_of_size(size: int) -> Statement:
    return Statement(lambda insert: _bodies(insert, size))


_BODIES = {size: _bodies_of_size(size) for size in _SIZES}
