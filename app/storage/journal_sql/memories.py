"""Texts worth finding again, and finding them by their words.

Must not know who wrote them. Both databases compare letters in their own ways (SQLite knows the case of
ASCII only, PostgreSQL what its locale says): the text is stored a second time as it is looked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Delete, Integer, Select, Text, delete, func, select
from sqlalchemy.dialects.postgresql import Insert

from app.storage.database import (
    Database,
    InsertInto,
    Params,
    Row,
    Statement,
    Step,
    p,
    plain,
    plain_or_none,
    rows_of,
)
from app.storage.exchange.row_sql import arriving
from app.storage.journal import Memory, MemoryKind, StoredMemory
from app.storage.journal_sql.arrivals import drawing, in_epoch
from app.storage.tables.conversations import MEMORIES

_KINDS: tuple[MemoryKind, ...] = ("summary", "flush", "entry", "block")
_MOST_WORDS = 16
# SQLite refuses patterns of more than 50,000 bytes; a character may take 9.
_WORD_CHARS = 1000
_MOST_FOLDED = 256
_ESCAPE = "/"
_COLUMNS = ("id", "kind", "text", "compaction", "created_at")


class MemoryRows:
    """See the contract in `app/storage/journal.py`."""

    _db: Database

    async def add_memory(self, namespace: str, session: str, memory: Memory) -> None:
        """See the contract."""
        key: Params = {"namespace": namespace, "session": session}
        await self._db.write([drawing(key, 1), Step(_ADD_MEMORY, memory_rows(key, [memory], 0))])

    async def memories(
        self, namespace: str, session: str, limit: int, kinds: Sequence[MemoryKind] = ()
    ) -> Sequence[StoredMemory]:
        """See the contract."""
        asked = kinds or _KINDS
        listed = {f"kind_{i}": asked[min(i, len(asked) - 1)] for i in range(len(_KINDS))}
        key: Params = {"namespace": namespace, "session": session, "limit": limit, **listed}
        return [_stored(row) for row in await self._db.far(rows_of(_MEMORIES, key))]

    async def search_memories(
        self, namespace: str, words: Sequence[str], limit: int
    ) -> Sequence[StoredMemory]:
        """See the contract."""
        patterns = [_pattern(word) for word in words] or ["%"]
        listed = {f"word_{i}": patterns[min(i, len(patterns) - 1)] for i in range(_MOST_WORDS)}
        rows = await self._db.far(rows_of(_SEARCH, {"namespace": namespace, "limit": limit, **listed}))
        return [_stored(row) for row in rows]

    async def replace_memory_block(
        self, namespace: str, session: str, folded: Sequence[str], block: Memory
    ) -> bool:
        """See the contract; ValueError for more than 256 ids."""
        key: Params = {"namespace": namespace, "session": session}
        ids = list(dict.fromkeys(map(plain, folded)))
        if len(ids) > _MOST_FOLDED:
            raise ValueError(f"at most {_MOST_FOLDED} memories are folded at once, not {len(ids)}")
        put = Step(_PUT_BLOCK, memory_rows(key, [block], 0), "touched")
        if not ids:
            return (await self._db.write([drawing(key, 1), put]))[-1] > 0
        listed = {f"id_{i}": ids[min(i, len(ids) - 1)] for i in range(_MOST_FOLDED)}
        remove = Step(_REMOVE_ALL, [{**key, **listed, "count": len(ids)}])
        return (await self._db.write([drawing(key, 1), remove, put]))[-1] > 0


def memory_rows(key: Params, memories: Sequence[Memory], after: int) -> list[Params]:
    """The rows of `memories`; `after` more arrive after them in the unit."""
    last = len(memories) - 1 + after
    return [{**key, **_row(memory), "back": last - i} for i, memory in enumerate(memories)]


def _row(memory: Memory) -> Params:
    return {
        "id": memory.id,
        "kind": memory.kind,
        "text": memory.text,
        "searched": _searched(memory.text),
        "compaction": plain_or_none(memory.compaction),
        "created_at": memory.created_at,
    }


def _searched(text: bytes) -> str:
    """As a text is looked for: in one case, without what a text column refuses."""
    return text.decode("utf-8", "replace").replace("\0", "\ufffd").casefold()


def _pattern(word: str) -> str:
    found = _searched(word[:_WORD_CHARS].encode("utf-8", "surrogatepass"))
    for special in (_ESCAPE, "%", "_"):
        found = found.replace(special, _ESCAPE + special)
    return f"%{found}%"


def _stored(row: Row) -> StoredMemory:
    arrival, session, ident, kind, text, compaction, created_at = row
    return StoredMemory(Memory(ident, kind, bytes(text), compaction, created_at), session, arrival)


def _select(*where: ColumnElement[bool]) -> Select[Any]:
    columns = (MEMORIES.c[name] for name in ("arrival", "session", *_COLUMNS))
    return select(*columns).where(MEMORIES.c.namespace == p("namespace"), *where).limit(p("limit", Integer))


def _of_session(_: InsertInto) -> Select[Any]:
    kinds = MEMORIES.c.kind.in_([p(f"kind_{i}", Text) for i in range(len(_KINDS))])
    return _select(MEMORIES.c.session == p("session"), kinds).order_by(MEMORIES.c.arrival.desc())


def _search(_: InsertInto) -> Select[Any]:
    words = (MEMORIES.c.searched.like(p(f"word_{i}", Text), escape=_ESCAPE) for i in range(_MOST_WORDS))
    return _select(*words).order_by(MEMORIES.c.id.desc())


def _new(insert: InsertInto, *where: ColumnElement[bool]) -> Insert:
    return arriving(insert, MEMORIES, ("session", "namespace", "searched", *_COLUMNS), *where)


def _put_block(insert: InsertInto) -> Insert:
    new = _new(insert)
    changed = ("arrival", "kind", "text", "searched", "compaction", "created_at")
    return new.on_conflict_do_update(
        index_elements=list(MEMORIES.primary_key.columns),
        set_={name: new.excluded[name] for name in changed},
    )


def _remove_all(_: InsertInto) -> Delete:
    """All of the listed rows, or none when one is gone: two that fold the same make one block."""
    there = MEMORIES.alias("there")
    ids = [p(f"id_{i}", Text) for i in range(_MOST_FOLDED)]
    count = (
        select(func.count())
        .where(there.c.session == p("session"), there.c.id.in_(ids), there.c.namespace == p("namespace"))
        .scalar_subquery()
    )
    return delete(MEMORIES).where(
        MEMORIES.c.session == p("session"),
        MEMORIES.c.id.in_(ids),
        MEMORIES.c.namespace == p("namespace"),
        count == p("count", Integer),
    )


_ADD_MEMORY = Statement(lambda insert: _new(insert).on_conflict_do_nothing())
ADD_MEMORY_IN_EPOCH = Statement(lambda insert: _new(insert, in_epoch()).on_conflict_do_nothing())
_MEMORIES = Statement(_of_session)
_SEARCH = Statement(_search)
_PUT_BLOCK = Statement(_put_block)
_REMOVE_ALL = Statement(_remove_all)
