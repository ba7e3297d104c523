"""Reading the branches of a session: its tree without bodies, and the few texts that tell branches apart.

Must not know what is decided from them: that is `app.core.history.branches`. Where one branch is all there
is, and every request had the same instructions, the tree is not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, CompoundSelect, LargeBinary, Select, Table, func, select, union_all
from sqlalchemy.sql.expression import literal_column, true

from app.core.history.alike import words_of
from app.core.history.branches import MOST_TEXTS, Asked, SessionTree, Texts, TreePoint
from app.storage.contract import Head
from app.storage.database import InsertInto, Params, Reading, Row, Statement, p, rows_of
from app.storage.exchange.row_sql import OFF_PATH, ON_PATH
from app.storage.packing import unpacked
from app.storage.path import bodies_of
from app.storage.tables.conversations import EXCHANGES, MESSAGES, PREAMBLES, REBASES

_HEAD = ("chain", "answers", "depth", "arrival", "preamble")


def heads_of(namespace: str, session: str) -> Reading[Sequence[Head]]:
    """The branches, the default one first."""
    key: Params = {"namespace": namespace, "session": session}
    heads = [Head(*row) for row in (yield from rows_of(_HEADS, key))]
    ((instructions, marks),) = yield from rows_of(_VARIETY, key)
    if len(heads) <= 1 and instructions <= 1 and not marks:
        return heads
    rows = yield from rows_of(_POINTS, key)
    requests = yield from rows_of(_REQUESTS, key)
    tree = SessionTree(_points(rows), [_asked(row) for row in requests])
    instructions_wanted, bodies_wanted = tree.wanted()
    texts = yield from _texts(key, instructions_wanted, bodies_wanted)
    sizes = {row[0]: row for row in rows}
    return [
        Head(
            chain=branch.chain,
            answers=sizes[branch.chain][8],
            depth=sizes[branch.chain][7],
            arrival=sizes[branch.chain][4],
            preamble=branch.preamble or sizes[branch.chain][9],
            kind=branch.kind,
            beside=branch.beside,
        )
        for branch in tree.branches(texts)
    ]


def _points(rows: Sequence[Row]) -> list[TreePoint]:
    """A message and the end of a rebased list may bear one digest: the message counts, as for paths."""
    found: dict[bytes, TreePoint] = {}
    for chain, parent, role, relayed, arrival, is_head, digest, _, _, preamble in rows:
        if role or chain not in found:
            found[chain] = TreePoint(
                chain, parent, role, bool(relayed), arrival, bool(is_head), bytes(digest), preamble
            )
    return list(found.values())


def _asked(row: Row) -> Asked:
    head, preamble, arrival, mark, mode, tokens = row
    return Asked(head, preamble, arrival, mark or "", mode == "append", tokens or 0)


def _texts(key: Params, instructions: Sequence[bytes], bodies: Sequence[bytes]) -> Reading[Texts]:
    namespace = str(key["namespace"])
    told: dict[bytes, list[bytes]] = {digest: [] for digest in instructions}
    if instructions:
        most = 2 * MOST_TEXTS
        listed = {f"digest_{i}": instructions[min(i, len(instructions) - 1)] for i in range(most)}
        told |= {row[0]: unpacked(row[1]) for row in (yield from rows_of(_PREAMBLES, {**key, **listed}))}
    digests = [digest for each in told.values() for digest in each]
    raws = yield from bodies_of(namespace, [*digests, *bodies])
    return Texts(
        {name: words_of(raws[digest] for digest in each) for name, each in told.items()},
        {digest: words_of([raws[digest]]) for digest in bodies},
    )


def _here(table: Table) -> tuple[ColumnElement[bool], ...]:
    return (table.c.namespace == p("namespace"), table.c.session == p("session"))


def _heads(_: InsertInto) -> CompoundSelect[Any]:
    def of(table: Table, *where: ColumnElement[bool]) -> Select[Any]:
        columns = (table.c[name] for name in _HEAD)
        return select(*columns).where(*_here(table), table.c.is_head.is_(true()), *where)

    return union_all(of(MESSAGES, MESSAGES.c.state.in_(ON_PATH)), of(REBASES))


def _points_read(_: InsertInto) -> CompoundSelect[Any]:
    """Messages, then rebased lists, whose anchor is what they go on from."""
    columns = ("chain", "parent", "role", "relayed", "arrival", "is_head", "digest", "depth", "answers")
    rebase: tuple[ColumnElement[Any], ...] = (
        *(REBASES.c.chain, REBASES.c.anchor, literal_column("''"), true(), REBASES.c.arrival),
        *(REBASES.c.is_head, REBASES.c.chain, REBASES.c.depth, REBASES.c.answers, REBASES.c.preamble),
    )
    return union_all(
        select(*(MESSAGES.c[name] for name in columns), MESSAGES.c.preamble).where(
            *_here(MESSAGES), MESSAGES.c.state.in_(ON_PATH)
        ),
        select(*rebase).where(*_here(REBASES)),
    )


_HEADS = Statement(_heads)
# How many instructions there are, and requests that were marked.
_VARIETY = Statement(
    lambda _: select(func.count(EXCHANGES.c.preamble.distinct()), func.count(EXCHANGES.c.mark)).where(
        *_here(EXCHANGES)
    )
)
_POINTS = Statement(_points_read)
_REQUESTS = Statement(
    lambda _: select(
        *(EXCHANGES.c[name] for name in ("head", "preamble", "arrival", "mark", "mode", "tokens_full"))
    ).where(*_here(EXCHANGES), EXCHANGES.c.state.not_in(OFF_PATH))
)
_PREAMBLES = Statement(
    lambda _: select(PREAMBLES.c.digest, PREAMBLES.c.bodies).where(
        *_here(PREAMBLES),
        PREAMBLES.c.digest.in_([p(f"digest_{i}", LargeBinary) for i in range(2 * MOST_TEXTS)]),
    )
)
