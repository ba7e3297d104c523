"""Building blocks of statements: conditions on session and namespace, upserts, lists of values, arrivals.

Lists of values are queried in groups of fixed sizes, so that a statement has one text and is compiled once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from operator import attrgetter
from typing import Any, TypeAlias, cast

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.sql import visitors
from sqlalchemy.sql.expression import ClauseElement

from palimpsest.storage.database import MARK, Params, Reading, Row, Statement, Step, p, rows_of, step
from palimpsest.storage.tables import BODIES, EXCHANGES, MESSAGES, SESSIONS

# A condition, and a query.
Where: TypeAlias = sa.ColumnElement[bool]
Query: TypeAlias = sa.Select[Any]

# Digests are sha256.
DIGEST_BYTES = 32
# Values per statement: for short lists and for long ones.
SIZES = (8, 256)
# Sort after every id and every arrival.
AFTER_ALL_IDS, AFTER_ALL_ARRIVALS = "\U0010ffff", 2**62
ESCAPE = "/"
# Begins the namespace of a session that is not whole, see `unfinished`; and what sorts after all of these.
UNFINISHED, AFTER_UNFINISHED = "unfinished:", "unfinished;"


def literal(value: int | str) -> sa.ColumnElement[Any]:
    """The value as a part of the statement's text."""
    if isinstance(value, int):
        return sa.literal_column(str(value))
    return sa.literal_column(f"'{value}'", sa.Text)


ONE = literal(1)
LIMIT = p("limit", sa.Integer)

SESSION_ROW = sa.and_(SESSIONS.c.namespace == p("namespace"), SESSIONS.c.id == p("session"))
IS_OPEN = EXCHANGES.c.state == literal("open")


def unfinished(namespace: str) -> str:
    """The namespace in which the row of a session stands while the session is imported or erased in slices.

    Readers find a session by its row, and so nothing of it.
    """
    return f"{UNFINISHED}{namespace}"


def key_of(namespace: str, session: str | None) -> dict[str, object]:
    """The parameters that name a session; None: all of the namespace."""
    return {"namespace": namespace, "session": session}


def of_namespace(table: sa.FromClause) -> Where:
    """The rows of the namespace."""
    return table.c.namespace == p("namespace")


def of_session(table: sa.FromClause) -> Where:
    """The rows of the session, in its namespace."""
    return sa.and_(table.c.session == p("session"), of_namespace(table))


def columns_of(table: sa.Table, *names: str) -> list[sa.ColumnElement[Any]]:
    """These columns, in this order."""
    return [table.c[name] for name in names]


def rows_in(table: sa.Table, *names: str) -> Query:
    """These columns of the session's rows."""
    return sa.select(*columns_of(table, *names)).where(of_session(table))


def same_session(table: Any, other: Any) -> Where:
    """In a join: rows of one session."""
    session = other.c.id if other is SESSIONS else other.c.session
    return sa.and_(table.c.session == session, table.c.namespace == other.c.namespace)


def total_of(value: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
    """The sum of whole numbers; 0 over no rows."""
    return sa.cast(sa.func.coalesce(sa.func.sum(value), literal(0)), sa.BigInteger)


def new_row(table: sa.Table, **given: sa.ColumnElement[Any]) -> Insert:
    """An INSERT of a whole row whose values are parameters, except those `given`."""
    return insert(table).values({column.name: p(column) for column in table.c} | given)


def row_in_session(table: sa.Table, names: Iterable[str] = (), **given: sa.ColumnElement[Any]) -> Insert:
    """An INSERT of one row (of the columns `names`, default all) if the session exists.

    Values are parameters, except those `given`. The arrival (or `seq`) is the session's counter minus `back`.
    """
    place = "arrival" if "arrival" in table.c else "seq"
    own = [name for name in names or table.c.keys() if name not in given and name != place]
    values = {name: p(table.c[name]) for name in own} | given
    if place in table.c:
        values[place] = SESSIONS.c.arrivals - p("back", sa.BigInteger)
    row = sa.select(*values.values()).select_from(SESSIONS).where(SESSION_ROW)
    return insert(table).from_select(list(values), row)


def replacing(
    new: Insert, *changed: str, where: Where | None = None, **given: sa.ColumnElement[Any]
) -> Insert:
    """The INSERT as an upsert: an existing row takes the new values of `changed` and those `given`.

    With `where`, only a row for which it holds.
    """
    key = list(cast(sa.Table, new.table).primary_key.columns)
    values = {name: new.excluded[name] for name in changed} | given
    return new.on_conflict_do_update(index_elements=key, set_=values, where=where)


def there_is(*where: Where) -> sa.Exists:
    """Whether a row exists for which all conditions hold."""
    return sa.exists(sa.select(1).where(*where))


_DRAW = (
    sa.update(SESSIONS).where(SESSION_ROW).values(arrivals=SESSIONS.c.arrivals + p("count", sa.BigInteger))
)
_DRAW_IN_EPOCH = _DRAW.where(SESSIONS.c.epoch == p("epoch"))


def arrivals_step(key: Params, count: int) -> Step:
    """The step that takes `count` numbers from the counter of the session in `key`.

    It locks the session's row, so that writers of one session, and an erase of it, take turns. It touches no
    row when the session does not exist or, with an "epoch" in `key`, has another epoch.
    """
    return step(_DRAW_IN_EPOCH if "epoch" in key else _DRAW, **key, count=count)


def in_order(key: Params, values: Iterable[Params], after: int = 0) -> list[Params]:
    """Rows with `key` that take a unit's newest arrivals in this order; `after` more arrive after them."""
    rows = [{**row, **key} for row in values]
    return [{**row, "back": len(rows) - 1 + after - place} for place, row in enumerate(rows)]


def literally(text: str) -> str:
    """The text as a part of a LIKE pattern with `ESCAPE`."""
    for special in (ESCAPE, "%", "_"):
        text = text.replace(special, ESCAPE + special)
    return text


def listed(values: Sequence[object], size: int) -> dict[str, object]:
    """The parameters `value_1` and so on for `values` (at least one); the last value pads the rest."""
    return {f"value_{i + 1}": values[min(i, len(values) - 1)] for i in range(size)}


def among(column: sa.ColumnElement[Any]) -> Where:
    """The column has one of the values of `listed`, as many as `sized` says."""
    return column.in_(sa.bindparam(f"{MARK}value", [], expanding=True, type_=column.type))


def sized(statement: ClauseElement, sizes: Iterable[int] = SIZES) -> dict[int, Statement]:
    """The statement with `among` for each size of a list of values."""
    return {size: partial(_of_size, statement, size) for size in sizes}


def _of_size(statement: ClauseElement, size: int) -> ClauseElement:
    def fill(parameter: sa.BindParameter[Any]) -> None:
        if parameter.expanding:
            parameter.value = [None] * size

    return visitors.cloned_traverse(statement, {}, {"bindparam": fill})


def grouped(
    values: Sequence[object], sizes: Sequence[int] = SIZES
) -> Iterator[tuple[dict[str, object], int]]:
    """Parameters for `values` in groups of the smallest size, or of the largest if there are more."""
    size = sizes[0] if len(values) <= sizes[0] else sizes[-1]
    for start in range(0, len(values), size):
        yield listed(values[start : start + size], size), size


def rows_among(
    statements: Mapping[int, Statement], values: Iterable[object], **params: object
) -> Reading[list[Row]]:
    """The rows of a sized statement for any number of values, duplicates removed."""
    found: list[Row] = []
    for group, size in grouped(list(dict.fromkeys(values)), tuple(statements)):
        found += yield from rows_of(statements[size], **params, **group)
    return found


_BODIES = sized(sa.select(BODIES.c.digest, BODIES.c.body).where(of_namespace(BODIES), among(BODIES.c.digest)))


def bodies_of(namespace: str, digests: Iterable[bytes]) -> Reading[dict[bytes, bytes]]:
    """Bodies by their digests."""
    rows = yield from rows_among(_BODIES, digests, namespace=namespace)
    return {row[0]: row[1] for row in rows}


# Of a message, in a join.
HAS_BODY = sa.and_(BODIES.c.namespace == MESSAGES.c.namespace, BODIES.c.digest == MESSAGES.c.digest)


def packed(digests: Iterable[bytes]) -> bytes:
    """Digests of 32 bytes, concatenated for one column."""
    return b"".join(digests)


def unpacked(digests: bytes) -> tuple[bytes, ...]:
    """The inverse of `packed`."""
    return tuple(digests[i : i + DIGEST_BYTES] for i in range(0, len(digests), DIGEST_BYTES))


def fields_of(value: Any) -> dict[str, Any]:
    """A dataclass's fields as parameters by name; `plain` is applied to fields declared as text."""
    names, texts, fields = _fields(value.__class__)
    found = dict(zip(names, fields(value), strict=True))
    for name in texts:
        # Nearly all texts are printable: calling `plain` for each would cost more than the rest.
        if (text := found[name]) and not text.isprintable():
            found[name] = plain(text)
    return found


@cache
def _fields(kind: Any) -> tuple[tuple[str, ...], list[str], Callable[[Any], tuple[Any, ...]]]:
    declared = kind.__dataclass_fields__
    texts = [name for name, field in declared.items() if field.type in ("str", "str | None")]
    return tuple(declared), texts, attrgetter(*declared)


def plain(text: str) -> str:
    """`text` with NUL and lone surrogates escaped: PostgreSQL refuses the former, SQLite the latter.

    For names and labels only. Bodies and summaries are stored as bytes.
    """
    if text.isprintable():
        return text
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()
