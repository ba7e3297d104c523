"""The interface between the repositories and the two databases: statements, units, readings, `SqlDatabase`.

Statements are SQLAlchemy Core, compiled once per dialect and run through the raw driver: SQLAlchemy's own
execution costs 750 us a row, the driver 15 (measured on 2 cores, 2026-11). A reading is a generator that
yields queries, receives rows and returns a value: the same logic runs on SQLite without an event loop and on
PostgreSQL with one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial, wraps
from operator import itemgetter
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeAlias, TypeVar

from sqlalchemy import BindParameter, Column, bindparam
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.expression import ClauseElement
from sqlalchemy.types import TypeEngine

K = TypeVar("K")
P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")
# One SQL statement for both databases, which both accept PostgreSQL's INSERT ... ON CONFLICT. A `partial`
# builds the element when it is compiled: one with hundreds of values is large (some 400 kB).
Statement: TypeAlias = ClauseElement | partial[Any]
Params: TypeAlias = Mapping[str, object]
Row: TypeAlias = Sequence[Any]
# What is left of deleted rows. "scrubbed": nothing in the files. "pending": something for now, ask again.
# "vacuumed": VACUUM has removed the rows; the contents of the files are up to PostgreSQL.
Scrub: TypeAlias = Literal["scrubbed", "pending", "vacuumed"]
Reason: TypeAlias = Literal["file_missing", "file_replaced", "damaged", "disk_error", "disk_full"]

_REMEDIES: Mapping[Reason, str] = {
    "file_missing": "it, or its log, is gone: put both back where they were, or stop and restore a backup",
    "file_replaced": "another file has its name: put the first one back, or restart to use the other",
    "damaged": "stop, keep a copy of its files, and restore a backup",
    "disk_error": "look at the disk and the system's log, then restart",
    "disk_full": "make room on its disk; erasing works meanwhile",
}
# What `Recent` keeps if nothing else is said.
REMEMBERED = 50_000
# The prefix of our parameters: SQLAlchemy reserves a table's column names in its INSERT and UPDATE.
MARK = "p_"


def p(
    what: str | Column[Any], type_: TypeEngine[Any] | type[TypeEngine[Any]] | None = None
) -> BindParameter[Any]:
    """A parameter with this name, or with a column's name and type."""
    if isinstance(what, str):
        return bindparam(MARK + what, None, type_=type_)
    return bindparam(MARK + what.name, None, type_=what.type)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A statement's text for one driver, and its parameters in the order of the text.

    `bind` makes the driver's positional arguments; KeyError when a parameter is missing.
    """

    sql: str
    names: tuple[str, ...]
    bind: Callable[[Params], tuple[object, ...]]


class Compiler(dict[Statement, Compiled]):
    """Statements in one dialect, compiled at the first look-up."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__()
        self._dialect = dialect

    def __missing__(self, statement: Statement) -> Compiled:
        """The statement in this dialect."""
        element = statement() if isinstance(statement, partial) else statement
        text = element.compile(dialect=self._dialect, compile_kwargs={"render_postcompile": True})
        order: Sequence[str] = getattr(text, "positiontup", None) or ()
        constants = {k: v for k, v in text.params.items() if not k.startswith(MARK)}
        names = tuple(name.removeprefix(MARK) for name in order)

        def bind(params: Params) -> tuple[object, ...]:
            return tuple([{**constants, **params}[name] for name in names])

        # In C where possible, at a third of the cost.
        binding = bind if constants or len(names) < 2 else itemgetter(*names)
        compiled = self[statement] = Compiled(str(text), names, binding)
        return compiled


@cache
def compiler_of(dialect: Callable[[], Dialect]) -> Compiler:
    """Statements are the same for every database of a kind: they are compiled once per process."""
    return Compiler(dialect())


# The condition for running a step: whether the last step that ran touched a row.
After: TypeAlias = Literal["any", "touched", "untouched"]


@dataclass(frozen=True, slots=True)
class Step:
    """One statement of a unit, run for each of `rows`; skipped when `after` does not hold.

    `needed`: when it touches no row, the unit ends with it; earlier steps are committed.
    """

    statement: Statement
    rows: Sequence[Params]
    after: After = "any"
    needed: bool = False


def step(statement: Statement, /, **params: object) -> Step:
    """The statement run once with these parameters."""
    return Step(statement, [params])


def is_due(after: After, touched: int) -> bool:
    """True when a step runs, given the rows that the last one touched."""
    return after == "any" or (after == "touched") == (touched > 0)


# How a unit is committed. "alone": no other request is being served, so the commit may block the calling
# thread. "crowded": many are, and their units may join the commit. "urgent": it may use the disk reserve.
Pace: TypeAlias = Literal["usual", "alone", "crowded", "urgent"]
# Steps that are committed together or not at all.
Unit: TypeAlias = Sequence[Step]


# A query that a reading yields, with its parameters; the rows are sent back to it.
Ask: TypeAlias = tuple[Statement, Params]
Reading: TypeAlias = Generator[Ask, Sequence[Row], T]


def rows_of(statement: Statement, /, **params: object) -> Reading[Sequence[Row]]:
    """The reading of one statement."""
    return (yield statement, params)


@dataclass(frozen=True, slots=True)
class StoreFault:
    """Why nothing can be recorded."""

    reason: Reason

    @property
    def remedy(self) -> str:
        """The fault and what an operator does about it, as a clause."""
        return _REMEDIES[self.reason]


class SqlDatabase(Protocol):
    """Executes units and readings. Every wait is bounded; what fails raises StoreUnavailable.

    `has_fts5`: the words of searches are in a table of FTS5, whose segments are merged by hand. `compiled`
    has the statements, each from its first run on, or from when it was looked up there, on any thread.
    """

    has_fts5: bool
    compiled: Compiler

    async def write(self, unit: Unit, *, pace: Pace = "usual", seconds: float | None = None) -> Sequence[int]:
        """Commit the unit durably; returns the rows touched by each step, 0 when skipped.

        Conflict: a name is taken. `seconds` replaces the default deadline.
        """

    def trouble(self) -> StoreFault | None:
        """Why nothing can be written, judged by files and disk."""

    async def size_bytes(self) -> int:
        """The size of the database, its log included."""

    async def keep_reserve(self, size: int) -> bool:
        """Reserve disk space of `size` bytes for `urgent` units; False when there is no room."""

    async def scrub(self) -> Scrub:
        """Remove the remains of deleted rows from the files, as far as possible."""

    async def read_bounded(self, reading: Reading[T]) -> T:
        """The reading's value. For a few indexed rows: it may run on the calling thread, with no snapshot."""

    async def read_snapshot(self, reading: Reading[T], seconds: float | None = None) -> T:
        """The reading's value, from one snapshot. For unbounded reads; `seconds` as for `write`."""

    async def close(self) -> None:
        """Finish accepted units and close the connections. Idempotent."""


class Recent(OrderedDict[K, V]):
    """The newest things of a kind, at most `most`, of some 200 bytes each; one that is set again is new."""

    def __init__(self, most: int = REMEMBERED) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)


class Repository:
    """A part of the store: reads and writes of its rows."""

    def __init__(self, database: SqlDatabase) -> None:
        self._db = database

    async def _rows(self, statement: Statement, /, **params: object) -> Sequence[Row]:
        """The rows of one statement, from a snapshot."""
        return await self._db.read_snapshot(rows_of(statement, **params))

    async def _all(self, kind: Callable[..., T], statement: Statement, /, **params: object) -> list[T]:
        """The rows of one statement, each as a value of this kind."""
        return [kind(*row) for row in await self._rows(statement, **params)]

    async def _few(self, statement: Statement, /, **params: object) -> Sequence[Row]:
        """A few indexed rows, read as `read_bounded` does."""
        return await self._db.read_bounded(rows_of(statement, **params))

    async def _wrote(self, statement: Statement, /, **params: object) -> int:
        """Commit one statement; returns the rows it touched."""
        return (await self._db.write([step(statement, **params)]))[0]


def from_snapshot(
    reading: Callable[Concatenate[Any, P], Reading[T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The method of a repository that returns a reading's value, from one snapshot."""

    @wraps(reading)
    async def method(self: Any, /, *given: P.args, **named: P.kwargs) -> T:
        found: T = await self._db.read_snapshot(reading(self, *given, **named))
        return found

    return method
