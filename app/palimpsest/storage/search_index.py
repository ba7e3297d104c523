"""The index of words: a virtual table of FTS5 on SQLite, a table of arrays with a GIN index on PostgreSQL.

An entry's `rowid` is its session's number times 2**32, plus its arrival. FTS5 parses queries and tokenizes
texts: `spelled` makes any word one bare word of its query language and one token. PostgreSQL's arrays hold
the same spelling.

On SQLite the table stores no texts, only which entries contain a word (`detail=none`): a third of the bytes
of the different words. Rows removed from such a table leave words behind until their segments are merged,
even with FTS5's `secure-delete` (measured with 3.53). A table that stores its texts obeys that option, but
needs four times the space, and 2.6 s to remove 1,000 entries. So removing is quick here, and merging is a
separate step.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import NullType

from palimpsest.errors import SettingsError
from palimpsest.storage.database import Params, SqlDatabase, Step, p, rows_of, step
from palimpsest.storage.sql import Where, literal, of_namespace
from palimpsest.storage.sqlite_files import has_word_index, sqlite_version
from palimpsest.storage.tables import RECALL_MARKS, RECALL_WORDS

# The rowids per session: an entry's is the session's number times this, plus the arrival.
PLACES = 1 << 32
# The most words per query: those of a question, at most twelve, and words related to them.
MOST_WORDS = 96
# A word that no entry contains.
NO_WORD = "_x"
# Each spelled word is one token.
MAKE = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS recall_words USING fts5("
    "words, detail=none, content='', contentless_delete=1, tokenize=\"ascii tokenchars '_'\")"
)
# FTS5's shadow tables.
SHADOWS = tuple(f"recall_words_{part}" for part in ("data", "idx", "docsize", "config"))
# The lists of removed rows have ids from here on (fts5_index.c, FTS5_TOMBSTONE_ROWID).
_FIRST_REMOVED = 1 << 53
# Characters other than those of FTS5's bare words. Capitals are escaped too: FTS5 would fold them, and AND
# and OR are operators.
_SPECIAL = re.compile(r"[^a-z0-9\x80-\U0010ffff]")
# Words that need no escaping, the common case.
_PLAIN = re.compile(r"[a-z0-9]{1,64}")
# Bytes: a longer word is stored as its digest. PostgreSQL's index refuses keys of more than some 2,700.
_LONGEST = 200
# Bytes of a scope's digest: with 2**64 values, collisions are negligible.
_SCOPE_BYTES = 8
# A transaction takes some 20 ms: entries removed (37 us each on SQLite), and pages merged.
_SLICE_ENTRIES = literal(500)
_SLICE_PAGES = 64
# Merging starts again when others have added and removed entries meanwhile.
_MOST_ROUNDS = 8
# The namespace of forgotten sessions' marks; no caller has it.
_NOBODY = literal("")


def make_word_index(connection: sa.Connection) -> None:
    """Create the FTS5 table; SettingsError for a SQLite that cannot keep it."""
    if connection.dialect.name != "sqlite":
        return
    if not has_word_index():
        raise SettingsError(
            f"database.url: SQLite {sqlite_version()} cannot keep the index of words, which needs FTS5 and"
            " version 3.43. Install pysqlite3-binary, or use PostgreSQL."
        )
    connection.execute(sa.text(MAKE))
    connection.commit()


def spelled(word: str) -> str:
    """The word's spelling in the index: injective, not empty, at most 200 bytes, without spaces."""
    if _PLAIN.fullmatch(word):
        return word
    # A lone surrogate has no UTF-8: it is escaped, and backslashes are doubled to keep spellings distinct.
    encodable = word.replace("\\", "\\\\").encode("utf-8", "backslashreplace").decode()
    held = _SPECIAL.sub(lambda char: f"_{ord(char[0]):02x}", encodable) or "_e"
    if len(held.encode()) > _LONGEST:
        return f"_h{hashlib.sha256(held.encode()).hexdigest()}"
    return held


def spelled_text(words: Iterable[str]) -> str:
    """The different words' spellings, separated by spaces."""
    return " ".join(map(spelled, dict.fromkeys(words)))


def scope_of(namespace: str, session: str | None) -> str:
    """A word that all entries of the session, or of the namespace, contain; no word is spelled like it."""
    if session is None:
        return f"_n{_digest(namespace)}"
    return f"_s{_digest(namespace, session)}"


def _digest(*names: str) -> str:
    """Lengths are included, so that different names cannot make the same text."""
    parts = (f"{len(name)}:{name}".encode("utf-8", "surrogatepass") for name in names)
    return hashlib.sha256(b"".join(parts)).digest()[:_SCOPE_BYTES].hex()


def forgetting(key: Params) -> Step:
    """The step that removes the session in `key` from all searches.

    The session's mark loses its name at once. Its number stays until the entries are removed, so that an
    interrupted scrub can continue.
    """
    return step(_FORGET, **key)


def nameless(*where: Any) -> sa.Update:
    """Make the namespace's marks that fulfil `where` nameless, and clear their totals."""
    of_nobody = {"namespace": _NOBODY, "session": sa.cast(RECALL_MARKS.c.number, sa.Text)}
    marks = sa.update(RECALL_MARKS).where(of_namespace(RECALL_MARKS), *where)
    return marks.values(**of_nobody, arrival=0, entries=0, words=0)


async def scrub_words(database: SqlDatabase) -> None:
    """Remove all words of forgotten sessions; StoreUnavailable when that fails."""
    for (number,) in await database.read_snapshot(rows_of(FORGOTTEN)):
        while (await database.write([step(_REMOVE, number=number)]))[0]:
            pass
        await database.write([step(_DROP, number=number)])
    # Merging all segments into one drops the words of removed entries.
    for _ in range(_MOST_ROUNDS if database.has_fts5 else 0):
        pages, first = (await database.read_snapshot(rows_of(_PAGES)))[0][0], -1
        for _ in range(2 + 2 * pages // _SLICE_PAGES):
            if not (await database.read_snapshot(rows_of(HAS_REMOVED)))[0][0]:
                return
            await database.write([step(_MERGE, pages=first * _SLICE_PAGES)])
            first = 1


class WordsOf(sa.ColumnElement[Any]):
    """The parameter's words as the column's value; or `holds`: the condition that an entry contains them all.

    Compiled differently for each database.
    """

    inherit_cache = False
    # A Boolean would be compared with 1, which MATCH refuses.
    type = NullType()

    def __init__(self, words: str, *, holds: bool) -> None:
        self.words = p(words, sa.Text)
        self.holds = holds


@compiles(WordsOf, "sqlite")
def _as_text(element: WordsOf, compiler: SQLCompiler, **more: Any) -> str:
    words = compiler.process(element.words, **more)
    return f"recall_words MATCH {words}" if element.holds else words


@compiles(WordsOf, "postgresql")
def _as_array(element: WordsOf, compiler: SQLCompiler, **more: Any) -> str:
    words = f"string_to_array({compiler.process(element.words, **more)}, ' ')"
    return f"recall_words.words @> {words}" if element.holds else words


def _entries_of(number: Any) -> Where:
    rowid = RECALL_WORDS.c.rowid
    return sa.and_(rowid >= number * PLACES, rowid < (number + 1) * PLACES)


# Merges some pages of segments per call; a negative number in the first call starts merging all into one.
_MERGE = sa.text("INSERT INTO recall_words (recall_words, rank) VALUES ('merge', :p_pages)")
# The number of index pages, and whether a list of removed rows is left.
_PAGES = sa.text("SELECT count(*) FROM recall_words_data")
HAS_REMOVED = sa.text("SELECT EXISTS (SELECT 1 FROM recall_words_data WHERE id >= :first)").bindparams(
    first=_FIRST_REMOVED
)
_NUMBER = p("number", RECALL_MARKS.c.number.type)
_FORGET = nameless(RECALL_MARKS.c.session == p("session"))
FORGOTTEN = sa.select(RECALL_MARKS.c.number).where(RECALL_MARKS.c.namespace == _NOBODY)
_REMOVED = sa.select(RECALL_WORDS.c.rowid).where(_entries_of(_NUMBER)).limit(_SLICE_ENTRIES)
_REMOVE = sa.delete(RECALL_WORDS).where(RECALL_WORDS.c.rowid.in_(_REMOVED.scalar_subquery()))
_DROP = sa.delete(RECALL_MARKS).where(
    RECALL_MARKS.c.number == _NUMBER,
    RECALL_MARKS.c.namespace == _NOBODY,
    ~sa.exists(sa.select(1).select_from(RECALL_WORDS).where(_entries_of(_NUMBER))),
)
