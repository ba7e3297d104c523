"""The index of words: a virtual table of FTS5 on SQLite, a table of arrays with a GIN index on PostgreSQL.

Must not know whose words they are. An entry's `rowid` is its session's number times 2**32, plus its arrival.

On SQLite the table holds no texts, only which entries hold a word (`detail=none`): a third of the bytes of
the different words. Rows removed from such a table leave words behind until their segments are merged,
FTS5's own `secure-delete` notwithstanding (measured with 3.53). A table that keeps its texts heeds that
option, but needs four times the space, and 2.6 s to remove 1,000 entries. So removing is quick here, and
the merging is a step of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Text, text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import NullType

from app.storage.database import Database, Reading, Statement, p, rows_of

# One word is one token: see `spelling`.
MAKE = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS recall_words USING fts5("
    "words, detail=none, content='', contentless_delete=1, tokenize=\"ascii tokenchars '_'\")"
)
# The tables that FTS5 keeps it in.
SHADOWS = tuple(f"recall_words_{part}" for part in ("data", "idx", "docsize", "config"))
# `contentless_delete` is there since.
_OLDEST = (3, 43)
# The lists of removed rows have ids from here on (fts5_index.c, FTS5_TOMBSTONE_ROWID).
_FIRST_REMOVED = 1 << 53


@dataclass(frozen=True, slots=True)
class WordIndex:
    """Which index a store has. `is_there`: its tables are; `works`: the database can use them as well."""

    is_there: bool
    works: bool
    is_fts5: bool


POSTGRES_INDEX = WordIndex(is_there=True, works=True, is_fts5=False)


def make_word_index(connection: Connection) -> None:
    """A SQLite that can has the table. Called at every migration: the library may have learned it since."""
    if connection.dialect.name != "sqlite":
        return
    rows = connection.execute(text(_CAN)).one()
    if _can(*rows):
        connection.execute(text(MAKE))
        connection.commit()


async def word_index_of(database: Database) -> WordIndex:
    """The index of an open SQLite file."""
    return await database.near(_reading())


def _reading() -> Reading[WordIndex]:
    can = yield from rows_of(_ABILITIES, {})
    there = yield from rows_of(_THERE, {})
    is_there = bool(there[0][0])
    return WordIndex(is_there, works=is_there and _can(*can[0]), is_fts5=True)


def _can(version: str, has_fts5: int) -> bool:
    return bool(has_fts5) and tuple(map(int, version.split(".")[:2])) >= _OLDEST


class Holds(ColumnElement[Any]):
    """An entry of `recall_words` holds all words of a text; each database asks in its own way."""

    inherit_cache = False
    # A Boolean would be compared with 1, which MATCH refuses.
    type = NullType()

    def __init__(self, words: str) -> None:
        self.words = p(words, Text)


class AsHeld(ColumnElement[Any]):
    """A text of words as the column takes it."""

    inherit_cache = False
    type = Text()

    def __init__(self, words: str) -> None:
        self.words = p(words, Text)


@compiles(Holds, "sqlite")
def _matches(element: Holds, compiler: SQLCompiler, **more: Any) -> str:
    return f"recall_words MATCH {compiler.process(element.words, **more)}"


@compiles(Holds, "postgresql")
def _contains(element: Holds, compiler: SQLCompiler, **more: Any) -> str:
    return f"recall_words.words @> string_to_array({compiler.process(element.words, **more)}, ' ')"


@compiles(AsHeld, "sqlite")
def _as_text(element: AsHeld, compiler: SQLCompiler, **more: Any) -> str:
    return compiler.process(element.words, **more)


@compiles(AsHeld, "postgresql")
def _as_array(element: AsHeld, compiler: SQLCompiler, **more: Any) -> str:
    return f"string_to_array({compiler.process(element.words, **more)}, ' ')"


_CAN = "SELECT sqlite_version(), EXISTS (SELECT 1 FROM pragma_module_list WHERE name = 'fts5')"
_ABILITIES = Statement(lambda _: text(_CAN))
_THERE = Statement(lambda _: text("SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'recall_words')"))
# All segments are merged into one, some pages at a time. The first call says so by a negative number.
MERGE = Statement(lambda _: text("INSERT INTO recall_words (recall_words, rank) VALUES ('merge', :p_pages)"))
# Pages of the index, and whether any list of removed rows is left.
PAGES = Statement(lambda _: text("SELECT count(*) FROM recall_words_data"))
HAS_REMOVED = Statement(
    lambda _: text("SELECT EXISTS (SELECT 1 FROM recall_words_data WHERE id >= :first)").bindparams(
        first=_FIRST_REMOVED
    )
)
