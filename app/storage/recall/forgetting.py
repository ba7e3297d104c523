"""Taking a session out of the index of words, so that none of its words is left in the files.

Must not know why. The session's mark loses its name at once, in whatever transaction asks for it: nothing is
found from then on. Its number stays until the entries are gone, so that a scrub that was broken off goes on.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Delete, Select, Text, Update, cast, delete, exists, select, update
from sqlalchemy.sql.expression import literal_column

from app.storage.database import Database, Params, Statement, Step, p, rows_of
from app.storage.recall.catching_up import PLACES
from app.storage.recall.word_index import HAS_REMOVED, MERGE, PAGES, WordIndex
from app.storage.tables.conversations import RECALL_MARKS, RECALL_WORDS

# A transaction takes some 20 ms: entries removed (37 us each on SQLite), and pages merged.
_SLICE_ENTRIES = 500
_SLICE_PAGES = 64
# Merging is begun again when others have added and removed meanwhile.
_MOST_ROUNDS = 8
# No caller's namespace.
_NOBODY: ColumnElement[str] = literal_column("''")


class Forgetting:
    """See the contract."""

    _db: Database
    _words: WordIndex

    async def forget_session(self, namespace: str, session: str) -> int:
        """See the contract."""
        key: Params = {"namespace": namespace, "session": session}
        held = await self._db.far(rows_of(_ENTRIES, key))
        await self._db.write([forgetting(key)])
        return int(held[0][0]) if held else 0

    async def scrub_words(self) -> None:
        """See the contract."""
        await scrubbed(self._db, self._words)

    async def words_left(self) -> bool:
        """See the contract."""
        if await self._db.far(rows_of(_FORGOTTEN, {})):
            return True
        is_split = self._words.is_there and self._words.is_fts5
        return is_split and bool((await self._db.far(rows_of(HAS_REMOVED, {})))[0][0])


def forgetting(key: Params) -> Step:
    """The step that makes nothing of the session of `key` be found any more."""
    return Step(_FORGET, [key])


async def scrubbed(database: Database, index: WordIndex) -> None:
    """No word of what was forgotten is left, or StoreUnavailable, for others wrote too much meanwhile."""
    for (number,) in await database.far(rows_of(_FORGOTTEN, {})):
        key: Params = {"number": number}
        if index.is_there:
            while (await database.write([Step(_REMOVE, [key])]))[0]:
                pass
        await database.write([Step(_DROP if index.is_there else _DROP_ANYHOW, [key])])
    if index.is_there and index.is_fts5:
        await _merged(database)


async def _merged(database: Database) -> None:
    """What was removed is in no segment: all of them are merged into one, which takes none of it along."""
    for _ in range(_MOST_ROUNDS):
        pages, first = (await database.far(rows_of(PAGES, {})))[0][0], -1
        for _ in range(2 + 2 * pages // _SLICE_PAGES):
            if not (await database.far(rows_of(HAS_REMOVED, {})))[0][0]:
                return
            await database.write([Step(MERGE, [{"pages": first * _SLICE_PAGES}])])
            first = 1


def _of(number: Any) -> Any:
    return (RECALL_WORDS.c.rowid >= number * PLACES) & (RECALL_WORDS.c.rowid < (number + 1) * PLACES)


def _number() -> Any:
    return p("number", RECALL_MARKS.c.number.type)


def _remove() -> Delete:
    listed = select(RECALL_WORDS.c.rowid).where(_of(_number())).limit(literal_column(str(_SLICE_ENTRIES)))
    return delete(RECALL_WORDS).where(RECALL_WORDS.c.rowid.in_(listed.scalar_subquery()))


def _drop(*where: Any) -> Delete:
    return delete(RECALL_MARKS).where(
        RECALL_MARKS.c.number == _number(), RECALL_MARKS.c.namespace == _NOBODY, *where
    )


def nameless(*where: Any) -> Update:
    """The marks of the namespace that also fulfil `where` belong to nobody, and say nothing."""
    return (
        update(RECALL_MARKS)
        .where(RECALL_MARKS.c.namespace == p("namespace"), *where)
        .values(namespace=_NOBODY, session=cast(RECALL_MARKS.c.number, Text), arrival=0, entries=0, words=0)
    )


def _forgotten() -> Select[Any]:
    return select(RECALL_MARKS.c.number).where(RECALL_MARKS.c.namespace == _NOBODY)


_FORGET = Statement(lambda _: nameless(RECALL_MARKS.c.session == p("session")))
_ENTRIES = Statement(
    lambda _: select(RECALL_MARKS.c.entries).where(
        RECALL_MARKS.c.session == p("session"), RECALL_MARKS.c.namespace == p("namespace")
    )
)
_FORGOTTEN = Statement(lambda _: _forgotten())
_REMOVE = Statement(lambda _: _remove())
_DROP = Statement(lambda _: _drop(~exists(select(1).select_from(RECALL_WORDS).where(_of(_number())))))
_DROP_ANYHOW = Statement(lambda _: _drop())
