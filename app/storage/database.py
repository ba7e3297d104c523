"""The seam between the store's logic and the two databases: statements, units, readings, executors.

Statements are SQLAlchemy Core, compiled once per dialect and then run through the raw driver:
SQLAlchemy's own execution costs 750 us a row, the driver 15 (measured on 2 cores, 2026-11).
Must not know what any table means. A reading is a generator that asks for rows and returns a
value, so that the same logic runs on SQLite without a loop and on PostgreSQL with one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from sqlalchemy import BindParameter, Column, Table, bindparam
from sqlalchemy.dialects.postgresql import Insert
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.expression import ClauseElement
from sqlalchemy.types import TypeEngine

from app.storage.erase.contract import Scrub
from app.storage.trouble import Trouble

T = TypeVar("T")
Params: TypeAlias = Mapping[str, object]
Row: TypeAlias = Sequence[Any]
# Both dialects' inserts take the same `on_conflict_*` calls; PostgreSQL's type stands for both.
InsertInto: TypeAlias = Callable[[Table], Insert]

# SQLAlchemy reserves the names of a table's columns in its INSERT and UPDATE; ours are marked.
_MARK = "p_"


def p(
    what: str | Column[Any], type_: TypeEngine[Any] | type[TypeEngine[Any]] | None = None
) -> BindParameter[Any]:
    """A parameter called by name, or called and typed as a column."""
    if isinstance(what, str):
        return bindparam(_MARK + what, type_=type_)
    return bindparam(_MARK + what.name, type_=what.type)


def named(table: Table, *columns: str) -> dict[str, BindParameter[Any]]:
    """Parameters for these columns (all when none is given), as INSERT takes its values."""
    return {name: p(table.c[name]) for name in columns or table.c.keys()}


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """One SQL statement. `build` gets the dialect's INSERT, the only construct that differs."""

    build: Callable[[InsertInto], ClauseElement]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A statement's text for one driver, and its parameters in the order the text expects them.

    `bind` makes the driver's positional arguments; KeyError when a parameter is missing.
    """

    sql: str
    names: tuple[str, ...]
    bind: Callable[[Params], tuple[object, ...]]


class Compiler(dict[Statement, Compiled]):
    """Each statement in one dialect, compiled when it is first looked up."""

    def __init__(self, dialect: Dialect, insert: InsertInto) -> None:
        super().__init__()
        self._dialect = dialect
        self._insert = insert

    def __missing__(self, statement: Statement) -> Compiled:
        """The statement in this dialect."""
        text = statement.build(self._insert).compile(dialect=self._dialect)
        order: Sequence[str] = getattr(text, "positiontup", None) or ()
        constants = {k: v for k, v in text.params.items() if not k.startswith(_MARK)}
        names = tuple(name.removeprefix(_MARK) for name in order)
        compiled = self[statement] = Compiled(str(text), names, _binding(names, constants))
        return compiled


def _binding(names: Sequence[str], constants: Params) -> Callable[[Params], tuple[object, ...]]:
    """Takes the named values out of a mapping; in C where it can, at a third of the price."""
    if constants or len(names) < 2:
        return lambda params: tuple([{**constants, **params}[name] for name in names])
    return itemgetter(*names)


# What must be true of the last step that ran: that it touched a row, or none.
After: TypeAlias = Literal["any", "touched", "untouched"]


@dataclass(frozen=True, slots=True)
class Step:
    """One statement of a unit, run for each of `rows`; left out when `after` does not hold.

    `needed`: when it touches no row, the unit ends with it, and what came before it stays done.
    """

    statement: Statement
    rows: Sequence[Params]
    after: After = "any"
    needed: bool = False


def is_due(after: After, touched: int) -> bool:
    """True when a step runs, given the rows that the last one touched."""
    return after == "any" or (after == "touched") == (touched > 0)


# Steps that are committed together or not at all.
Unit: TypeAlias = Sequence[Step]


@dataclass(frozen=True, slots=True)
class Ask:
    """What a reading yields: it is sent the rows."""

    statement: Statement
    params: Params


Reading: TypeAlias = Generator[Ask, Sequence[Row], T]


def rows_of(statement: Statement, params: Params) -> Reading[Sequence[Row]]:
    """The reading of one statement."""
    return (yield Ask(statement, params))


class Database(Protocol):
    """Executes units and readings. Every wait is bounded; what fails raises StoreUnavailable."""

    async def write(
        self, unit: Unit, *, alone: bool = False, urgent: bool = False, seconds: float | None = None
    ) -> Sequence[int]:
        """The unit is durable. Rows touched by each step, 0 when left out; Conflict: a name is taken.

        `urgent`: what is kept for a full disk may be used for it.
        `alone`: nobody else is being served, so that the commit may hold up the calling thread. `seconds`:
        it is waited for so long, not as long as for others.
        """

    def trouble(self) -> Trouble | None:
        """Why nothing can be written, as far as files and disk say so."""

    async def keep_reserve(self, size: int) -> bool:
        """So many bytes are kept for `urgent` units; False when there is no room for them."""

    async def scrub(self, tables: Sequence[str]) -> Scrub:
        """As little as possible is left of the rows deleted from `tables`, beyond what SQL shows."""

    def compile(self, statements: Sequence[Statement]) -> None:
        """The statements are ready to run; others are when they are first run. Any thread may ask."""

    async def near(self, reading: Reading[T]) -> T:
        """The reading's value. For a few indexed rows: it may run on the calling thread."""

    async def far(self, reading: Reading[T], seconds: float | None = None) -> T:
        """The reading's value, from one snapshot. For anything without a bound; `seconds` as for writing."""

    async def close(self) -> None:
        """Accepted units are durable; connections are closed. Idempotent."""


def plain(text: str) -> str:
    """`text` with NUL and lone surrogates spelled out: PostgreSQL refuses the one, SQLite the other.

    For names and labels only. Bodies and summaries are stored as bytes.
    """
    if text.isprintable():
        return text
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


def plain_or_none(text: str | None) -> str | None:
    """`plain`, where there may be nothing."""
    return None if text is None else plain(text)
